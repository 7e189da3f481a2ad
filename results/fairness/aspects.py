"""What must be alike for runs to be compared: aspects of a run, each a text that is equal where runs are alike.

An aspect that does not apply to a run is None. One that a run should have and does not tell, since its system is
somebody else's, say, is `NOT_RECORDED`, which is unlike any value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from results.records.schema import RunRecord

NOT_RECORDED = "not recorded"
NOT_WORK = frozenset(
    {
        *("kind", "learn", "num_envs", "rollout_steps", "policy", "time_scale", "preload"),
        *("frameskip", "resolution", "width", "height", "render_resolutions"),
    }
)
"""Fields of a scenario that have an aspect of their own, or none."""
CORRECTION = frozenset({"correct", "rho", "c"})
"""How stale samples are weighted is one of a system's own choices."""
OF_OPTIMISER = {"adam_eps": "adam", "momentum": "sgd"}
"""Learning settings that say nothing with another optimiser."""
OWN_WAY = "as rlbench's own systems"
"""Of a system that does not depart where another one does."""
CORRECTS = "correction of stale samples"
OF_WORK = frozenset({"torch", "vizdoom", "ale-py", "habitat-sim"})
"""Packages that simulate and compute."""
PRECISION = "float32"
"""Of a run that does not state one: what the engine computes in."""

Reader = Callable[[RunRecord], str | None]


def aspects(run: RunRecord) -> dict[str, str | None]:
    """All aspects of a run by name; a text that is a JSON object holds texts by field."""
    return {
        **{name: read(run) for name, read in WORK.items()},
        **_further_learning(run),
        **{name: read(run) for name, read in EXECUTION.items()},
    }


def departures(run: RunRecord) -> dict[str, str]:
    """In what the system, which is somebody else's, does other work than rlbench's own with the same settings."""
    said = part(run, "system", "departures")
    return {str(what): _text(theirs) for what, theirs in said.items()} if isinstance(said, dict) else {}


def is_of_library(run: RunRecord) -> bool:
    """Whether the system is made with somebody else's library, in a Python of its own."""
    return isinstance(part(run, "system", "departures"), dict)


def beside_libraries(run: RunRecord) -> dict[str, str | None]:
    """Aspects of a run that stands beside one of a library, where they are others than beside rlbench's own systems.

    A correction of stale samples that the library does not have is no choice of scheduling. Libraries pin what they
    are made of, so that their Pythons differ by nature: alike must be what does the work.
    """
    learn = part(run, "scenario", "learn")
    versions = {name: version for name, version in run.packages.items() if name in OF_WORK}
    return {
        CORRECTS: _recorded(learn.get("correct")) if isinstance(learn, dict) else NOT_RECORDED,
        "versions": _fields(versions | {"Python": run.machine.get("python")}),
    }


def surroundings(run: RunRecord) -> dict[str, str | None]:
    """Those that are alike for all runs of a sweep, on however many GPUs, unless it was taken up elsewhere or later."""
    cores = None if run.figures.predicted else _recorded(usable_cores(run))
    return {"usable cores": cores, **{name: EXECUTION[name](run) for name in ("machine", "GPUs", "versions", "commit")}}


def usable_cores(run: RunRecord) -> float | None:
    """Cores of one machine that the run could keep busy, by affinity and the control group's quota; None if unknown."""
    known = [run.machine.get("num_affine_cores"), run.machine.get("cpu_quota_cores")]
    return min((float(each) for each in known if isinstance(each, (int, float)) and each > 0), default=None)


def gpus_of(run: RunRecord) -> list[Mapping[str, Any]]:
    """What the run says of each GPU of its machine."""
    gpus = run.machine.get("gpus")
    return [gpu for gpu in gpus if isinstance(gpu, dict)] if isinstance(gpus, (list, tuple)) else []


def part(run: RunRecord, *path: str) -> Any:
    """Something of the configuration, by its keys; None where it is not there."""
    value: Any = run.configuration
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _text(value: Any) -> str:
    """A value as people read it; numbers that are equal to six digits are alike."""
    if value is None:
        return "none"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, (list, tuple)):
        return "+".join(map(_text, value))
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _recorded(value: Any) -> str:
    return NOT_RECORDED if value is None else _text(value)


def _fields(values: Mapping[str, Any]) -> str:
    """Several values as one text."""
    return json.dumps(_flat(values), sort_keys=True)


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for field, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{field}.")
        else:
            flat[prefix + field] = _text(value)
    return flat


def _field(*path: str) -> Reader:
    """Something of the configuration that every run should have."""
    return lambda run: _recorded(part(run, *path))


def _work(run: RunRecord) -> str:
    scenario = part(run, "scenario")
    if not isinstance(scenario, dict) or not scenario:
        return NOT_RECORDED
    return _fields({field: value for field, value in scenario.items() if field not in NOT_WORK})


def _frameskip(run: RunRecord) -> str | None:
    frames = part(run, "scenario", "frameskip")
    return None if frames is None else _text(frames)


def _resolution(run: RunRecord) -> str | None:
    """Of what is observed, and of what is rendered for it."""
    width, height = part(run, "scenario", "width"), part(run, "scenario", "height")
    observed = part(run, "scenario", "resolution") if width is None else f"{_text(width)}x{_text(height)}"
    rendered = part(run, "scenario", "render_resolutions")
    if observed is None:
        return None
    return _text(observed) + (f" from {_text(rendered)}" if rendered else "")


def _batch(run: RunRecord) -> str:
    """Env steps of one learning phase that a GPU has: all of a rank's own, or its share of the only learner's."""
    num_envs, steps = part(run, "scenario", "num_envs"), part(run, "scenario", "rollout_steps")
    steps = part(run, "system", "rollout", "num_steps") or steps
    batch = part(run, "system", "rollout", "batch")
    if isinstance(batch, int) and batch:
        sharing = run.cell.gpus if part(run, "system", "average", "kind") == "Central" else 1
        return f"{batch / sharing:,.10g} env steps per GPU"
    if not (isinstance(num_envs, int) and isinstance(steps, int)):
        return NOT_RECORDED
    return f"{num_envs * steps:,} env steps per GPU"


def _precision(run: RunRecord) -> str:
    learn = part(run, "scenario", "learn")
    stated = part(run, "scenario", "learn", "precision") or part(run, "system", "precision")
    return _recorded(stated or (None if learn is None else PRECISION))


def _further_learning(run: RunRecord) -> dict[str, str | None]:
    """Learning settings, under their own names, that are no aspect of `WORK` and that the optimiser uses."""
    learn = part(run, "scenario", "learn")
    known = {"kind", "epochs", "num_minibatches", "optimizer", "learning_rate", "precision", *CORRECTION}
    return {
        field: _text(value)
        for field, value in (learn.items() if isinstance(learn, dict) else ())
        if field not in known and OF_OPTIMISER.get(field) in (None, learn.get("optimizer"))
    }


def _cores_per_gpu(run: RunRecord) -> str | None:
    cores = usable_cores(run)
    return None if run.figures.predicted else _recorded(cores and cores * max(1, len(run.nodes)) / run.cell.gpus)


def _machine(run: RunRecord) -> str | None:
    """What does not change by itself; a prediction needs no machine."""
    fields = {"CPU": "cpu_model", "clock governor": "governors", "turbo": "turbo", "system": "os", "kernel": "kernel"}
    if run.figures.predicted:
        return None
    return _fields({name: run.machine.get(field) for name, field in fields.items()}) if run.machine else NOT_RECORDED


def _machines(run: RunRecord) -> str | None:
    """How many the ranks were spread over, and how."""
    if run.figures.predicted:
        return None
    ranks = " + ".join(str(node.num_ranks) for node in run.nodes)
    return f"{len(run.nodes)} with {ranks} ranks" if len(run.nodes) > 1 else "1"


def _gpus(run: RunRecord) -> str | None:
    names = [str(gpu.get("name")) for gpu in gpus_of(run)]
    counted = [f"{names.count(name)} x {name}" for name in dict.fromkeys(names)]
    return None if run.figures.predicted else " + ".join(counted) or "none"


def _versions(run: RunRecord) -> str:
    told: dict[str, Any] = {**run.packages, "Python": run.machine.get("python")}
    driver = run.machine.get("gpu_source")
    if isinstance(driver, str) and driver.startswith("driver "):
        told["GPU driver"] = driver.removeprefix("driver ")
    return _fields(told)


def _commit(run: RunRecord) -> str:
    head, dash, dirty = (run.commit or "none").partition("-")
    return head[:10] + dash + dirty


def _limits(run: RunRecord) -> str:
    limits = part(run, "limits")
    if not isinstance(limits, dict):
        return NOT_RECORDED
    return _fields({field: value for field, value in limits.items() if field != "kind"})


WORK: dict[str, Reader] = {
    "work": _work,
    "frameskip": _frameskip,
    "resolution": _resolution,
    "environments per GPU": _field("scenario", "num_envs"),
    "network": _field("scenario", "policy"),
    "precision": _precision,
    "batch": _batch,
    "epochs": _field("scenario", "learn", "epochs"),
    "mini-batches": _field("scenario", "learn", "num_minibatches"),
    "optimiser": _field("scenario", "learn", "optimizer"),
    "learning rate": _field("scenario", "learn", "learning_rate"),
    "steps/s counts env steps": lambda run: run.figures.steps_counted,
}
"""What is done."""
EXECUTION: dict[str, Reader] = {
    "device": lambda run: run.cell.device,
    "time scale": lambda run: f"{run.figures.time_scale:g}",
    "protocol": lambda run: run.cell.protocol,
    "limits": _limits,
    "cores per GPU": _cores_per_gpu,
    "machine": _machine,
    "number of machines": _machines,
    "GPUs": _gpus,
    "versions": _versions,
    "commit": _commit,
}
"""How and where it is done."""
