"""Runs as they are read back, and parts of a summary, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlbench.results.records.schema import RunRecord
from rlbench.results.records.store import StoredRun
from rlbench.results.summary.document import CellSummary, Comparison, Estimate
from tests.results.made_records import make_parts, make_record

LEARN = {
    "kind": "LearnSettings",
    "epochs": 2,
    "num_minibatches": 2,
    "optimizer": "adam",
    "learning_rate": 1e-3,
    "adam_eps": 1e-5,
    "momentum": 0.9,
    "clip": 0.2,
    "correct": "none",
    "rho": 1.0,
    "c": 1.0,
}
SCENARIO = {
    "kind": "AtariScenario",
    "num_envs": 8,
    "rollout_steps": 128,
    "policy": "conv",
    "games": ["breakout"],
    "frameskip": 4,
    "resolution": 84,
}
SYSTEM = {
    "kind": "EngineSystem",
    "collect": {"kind": "Lockstep"},
    "rollout": {"kind": "Fixed", "num_steps": 0},
    "overlap": {"kind": "Alternate"},
    "average": {"kind": "AllReduce"},
}
MACHINE = {
    "cpu_model": "EPYC",
    "num_affine_cores": 16,
    "cpu_quota_cores": None,
    "gpus": [{"index": 0, "name": "V100"}, {"index": 1, "name": "V100"}],
    "gpu_source": "driver 550.1",
    "os": "Debian 12",
    "python": "3.11.7",
}


def make_run(
    system: str = "ddppo",
    gpus: int = 1,
    *,
    seed: int = 0,
    learn: Mapping[str, Any] | None = None,
    scenario: Mapping[str, Any] | None = None,
    choices: Mapping[str, Any] | None = None,
    machine: Mapping[str, Any] | None = None,
    cell: Mapping[str, Any] | None = None,
    **fields: Any,
) -> RunRecord:
    """The record of a run with a whole configuration and a machine; `learn`, `scenario` and so on override."""
    configuration = {
        "system": SYSTEM | dict(choices or {}),
        "scenario": {**SCENARIO, "learn": LEARN | dict(learn or {}), **(scenario or {})},
        "gpus": gpus,
        "seed": seed,
        "limits": {"kind": "Limits", "seconds": 60.0},
    }
    all_fields: dict[str, Any] = {
        "id": f"{system}-{gpus}-{seed}",
        "configuration": configuration,
        "machine": MACHINE | dict(machine or {}),
        "packages": {"torch": "2.13", "numpy": "2.3"},
        "commit": "0123456789abcdef",
    }
    own_cell = {"seed": seed, "hash": f"{system}-{gpus}-{seed}", **(cell or {})}
    return make_record(system, gpus, cell=own_cell, **all_fields | fields)


def stored(record: RunRecord, rates: Sequence[float] = ()) -> StoredRun:
    """The run of a record, whose window has parts of these rates; there is no such folder."""
    return StoredRun(path=Path("nowhere", record.sweep, record.id), record=record, parts=tuple(make_parts(rates)))


def make_cell(system: str = "ver", gpus: int = 8, steps_per_s: float | None = 600.0, **fields: Any) -> CellSummary:
    """A cell of an emulated scenario that one run has measured, or has failed to; `fields` override."""
    rate = None if steps_per_s is None else Estimate(value=steps_per_s)
    all_fields: dict[str, Any] = {
        "id": f"{system}-{gpus}",
        "sweep": "sweep-1",
        "system": system,
        "scenario": "emulated/open-fridge",
        "workload": "homogeneous",
        "gpus": gpus,
        "device": "emulated",
        "protocol": "steady",
        "kind": "emulated",
        "time_scale": 1.0,
        "runs": [f"{system}-{gpus}"],
        "seeds": [] if rate is None else [0],
        "statuses": {"failed" if rate is None else "finished": 1},
        "steps_per_s": rate,
    }
    return CellSummary(**all_fields | fields)


def make_comparison(
    system: str, against: str, value: float, ends: tuple[float, float] | None = None, **fields: Any
) -> Comparison:
    """A comparison of two systems on 8 GPUs, as of `make_cell`; `fields` override."""
    low, high = ends or (None, None)
    all_fields: dict[str, Any] = {
        "sweep": "sweep-1",
        "scenario": "emulated/open-fridge",
        "workload": "homogeneous",
        "gpus": 8,
        "kind": "emulated",
        "comparable": True,
    }
    ratio = Estimate(value=value, low=low, high=high)
    return Comparison(system=system, against=against, ratio=ratio, **all_fields | fields)
