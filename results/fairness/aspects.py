"""Aspects of a run that must be alike for runs to be compared: each is a text that is equal where runs are alike.

An aspect that does not apply to a run is None. One that a run should have but did not record, for example because its
system is somebody else's, is `NOT_RECORDED`, which differs from any value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from rlbench.results.records.schema import RunRecord

NOT_RECORDED = "not recorded"
NOT_WORK = frozenset(
    {
        *("kind", "learn", "num_envs", "rollout_steps", "policy", "time_scale", "preload"),
        *("frameskip", "resolution", "width", "height", "render_resolutions"),
    }
)
"""Fields of a scenario that are not part of the aspect `work`: they have an aspect of their own, or none."""
CORRECTION = frozenset({"correct", "rho", "c"})
"""Learning settings that weight stale samples; this is one of a system's own choices."""
OF_OPTIMISER = {"adam_eps": "adam", "momentum": "sgd"}
"""Learning settings that matter for one optimiser only, with its name."""
OWN_WAY = "as rlbench's own systems"
"""Value of a departure for a system that does not depart there."""
CORRECTS = "correction of stale samples"
OF_WORK = frozenset(
    {"torch", "vizdoom", "ale-py", "habitat-sim", "mujoco", "dm-control", "minigrid", "pettingzoo", "envpool"}
)
"""Packages that simulate and compute."""
PRECISION = "float32"
"""Precision of a run that does not state one: the engine computes in it."""

Reader = Callable[[RunRecord], str | None]


def aspects(run: RunRecord) -> dict[str, str | None]:
    """All aspects of a run, by name; a text that is a JSON object holds several values, by field."""
    return {
        **{name: read(run) for name, read in WORK.items()},
        **_further_learning(run),
        **{name: read(run) for name, read in EXECUTION.items()},
    }


def departures(run: RunRecord) -> dict[str, str]:
    """Where somebody else's system departs from rlbench's own systems with the same settings, and what it does."""
    said = part(run, "system", "departures")
    return {str(what): _text(theirs) for what, theirs in said.items()} if isinstance(said, dict) else {}


def is_of_library(run: RunRecord) -> bool:
    """Whether the system uses somebody else's library, in a separate Python."""
    return isinstance(part(run, "system", "departures"), dict)


def beside_libraries(run: RunRecord) -> dict[str, str | None]:
    """The aspects that change when a run is compared with a run of a library.

    A correction of stale samples that the library lacks is not a choice of scheduling. Libraries pin their
    dependencies, so their Pythons always differ: only the packages that do the work must be alike.
    """
    learn = part(run, "scenario", "learn")
    versions = {name: version for name, version in run.packages.items() if name in OF_WORK}
    return {
        CORRECTS: _recorded(learn.get("correct")) if isinstance(learn, dict) else NOT_RECORDED,
        "versions": _fields(versions | {"Python": run.machine.get("python")}),
    }


def surroundings(run: RunRecord) -> dict[str, str | None]:
    """Aspects alike in all runs of a sweep, on any number of GPUs, unless it was resumed elsewhere or later."""
    cores = None if run.figures.predicted else _recorded(usable_cores(run))
    return {"usable cores": cores, **{name: EXECUTION[name](run) for name in ("machine", "GPUs", "versions", "commit")}}


def usable_cores(run: RunRecord) -> float | None:
    """Cores of one machine that the run may use, by its affinity and the quota of its cgroup; None if unknown."""
    known = [run.machine.get("num_affine_cores"), run.machine.get("cpu_quota_cores")]
    return min((float(each) for each in known if isinstance(each, (int, float)) and each > 0), default=None)


def gpus_of(run: RunRecord) -> list[Mapping[str, Any]]:
    """The run's description of each GPU of its machine."""
    gpus = run.machine.get("gpus")
    return [gpu for gpu in gpus if isinstance(gpu, dict)] if isinstance(gpus, (list, tuple)) else []


def part(run: RunRecord, *path: str) -> Any:
    """A value of the configuration, by its path of keys; None if it is missing."""
    value: Any = run.configuration
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _text(value: Any) -> str:
    """A value as text for people; floats that agree to six digits are equal."""
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
    """Several values as one text, a JSON object."""
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
    """Reads a value of the configuration that every run should have."""
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
    """Resolution of the observation, and of the renderings that it is made from."""
    width, height = part(run, "scenario", "width"), part(run, "scenario", "height")
    observed = part(run, "scenario", "resolution") if width is None else f"{_text(width)}x{_text(height)}"
    rendered = part(run, "scenario", "render_resolutions")
    if observed is None:
        return None
    return _text(observed) + (f" from {_text(rendered)}" if rendered else "")


def _batch(run: RunRecord) -> str:
    """Samples of one learning phase per GPU: all of a rank's batch, or its share of the central learner's."""
    num_envs, steps = part(run, "scenario", "num_envs"), part(run, "scenario", "rollout_steps")
    steps = part(run, "system", "rollout", "num_steps") or steps
    batch = part(run, "system", "rollout", "batch")
    if isinstance(batch, int) and batch:
        sharing = run.cell.gpus if part(run, "system", "average", "kind") == "Central" else 1
        return f"{batch / sharing:,.10g} {run.counters.unit} per GPU"
    if not (isinstance(num_envs, int) and isinstance(steps, int)):
        return NOT_RECORDED
    agents = part(run, "scenario", "agents_per_env")
    num_rows = num_envs * agents if isinstance(agents, int) else num_envs
    return f"{num_rows * steps:,} {run.counters.unit} per GPU"


def _precision(run: RunRecord) -> str:
    learn = part(run, "scenario", "learn")
    stated = part(run, "scenario", "learn", "precision") or part(run, "system", "precision")
    return _recorded(stated or (None if learn is None else PRECISION))


def _further_learning(run: RunRecord) -> dict[str, str | None]:
    """Learning settings that are not in `WORK` and that the optimiser uses, under their own names."""
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
    """The stable properties of the machine; None for a prediction, which needs none."""
    fields = {"CPU": "cpu_model", "clock governor": "governors", "turbo": "turbo", "system": "os", "kernel": "kernel"}
    if run.figures.predicted:
        return None
    if not run.machine:
        return NOT_RECORDED
    variables = run.machine.get("variables")
    told = variables if isinstance(variables, dict) else {}
    return _fields({name: run.machine.get(field) for name, field in fields.items()} | told)


def _machines(run: RunRecord) -> str | None:
    """The number of machines, and how the ranks were spread over them."""
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
    "rate counts samples": lambda run: f"{run.figures.steps_counted} {run.counters.unit}",
}
"""Aspects of what is done."""
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
"""Aspects of how and where it is done."""
