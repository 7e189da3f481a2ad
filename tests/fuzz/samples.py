"""Good files of each kind, and a folder of runs made of them: what is then spoilt."""

from __future__ import annotations

import io
import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
from pyarrow import parquet

from rlbench.harness.commands.read_runs import find
from rlbench.harness.contract.budget import Limits
from rlbench.harness.plan.cells import Cell
from rlbench.harness.run.sweep import PLAN_FILE
from rlbench.results.reading.tables import SPANS_FILE
from rlbench.results.records.index import index_path
from rlbench.results.records.parts import SERIES_FILE
from rlbench.results.records.schema import RunRecord
from rlbench.results.records.store import RUN_FILE
from rlbench.results.summary.document import HistoryRow
from rlbench.scenarios.emulated.profile import PROFILES_FOLDER, read_profile
from tests.harness.run.synthetic_run import make_spans
from tests.results.summaries import make_run

SWEEP = "20260101-000000-abcd"
VICTIM = "002-ver-x2"
"""The run of which a file is spoilt."""
RUNS = {"000-sync-x1": ("sync", 1), "001-ver-x1": ("ver", 1), VICTIM: ("ver", 2)}


def record(name: str = VICTIM) -> RunRecord:
    """The record of one of `RUNS`."""
    system, gpus = RUNS[name]
    gpu = {"index": 0, "name": "V100", "memory_bytes": 16, "memory_used_bytes": 3, "process_ids": [1]}
    return make_run(
        *(system, gpus),
        id=name,
        sweep=SWEEP,
        scenario={"num_envs": 4, "rollout_steps": 16},
        warnings=["the 2 cores were 91 % busy"],
        figures={"steps_per_s_interval": (90.0, 110.0), "success": 0.5, "lag": {"mean": 0.5, "max": 2.0}},
        machine={"gpus": [gpu]},
    )


def series(num_ranks: int = 2) -> pa.Table:
    """12 iterations of each rank."""
    rows = [(rank, at) for rank in range(num_ranks) for at in range(12)]
    return pa.table(
        {
            "rank": [rank for rank, _ in rows],
            "iteration": [at for _, at in rows],
            "begin_s": [float(at) for _, at in rows],
            "end_s": [at + 1.0 for _, at in rows],
            "learned": [64 + at for _, at in rows],
            "reused": [64 for _ in rows],
            "span/learn": [0.3 for _ in rows],
            "span/communicate": [0.1 for _ in rows],
            "return": [at / 10 if at > 2 else None for _, at in rows],
            "in_step": [True for _ in rows],
            "lost": [False for _ in rows],
        }
    )


def spans() -> pa.Table:
    """Of one rank of 4 environments."""
    frame = make_spans(read_profile("open-fridge"), num_envs=4, num_steps=16)
    return pa.Table.from_pandas(frame, preserve_index=False)


def packed(table: pa.Table) -> bytes:
    """A table as a run leaves it."""
    made = io.BytesIO()
    parquet.write_table(table, made, compression="zstd")
    return made.getvalue()


def plan() -> bytes:
    """`sweep.json` of two cells."""
    cells = [
        Cell(
            system=system,
            system_settings={"preempt": "never"} if system == "ver" else {},
            scenario="emulated/open-fridge",
            scenario_settings={"num_envs": "4"},
            workload="homogeneous",
            gpus=2,
            seed=0,
            device="emulated",
            protocol="steady",
            limits=Limits(seconds=30.0, until="return>=0.5"),
            stall_s=60.0,
            time_limit_s=3600.0,
        )
        for system in ("sync", "ver")
    ]
    return json.dumps({"command": ["rlbench", "run"], "cells": [asdict(cell) for cell in cells]}, indent=1).encode()


def history() -> bytes:
    """Revisions of one cell, which became faster."""
    rows = (
        HistoryRow(
            commit=f"{number:040x}",
            measured_at=f"2026-01-{number + 1:02d}T00:00:00+00:00",
            machine="EPYC, 16 cores",
            system="ver",
            scenario="emulated/open-fridge",
            workload="homogeneous",
            gpus=2,
            device="emulated",
            length="protocol=steady",
            kind="emulated",
            steps_per_s=100.0 + number % 3 + 50 * (number > 5),
            low=90.0,
            high=None,
            num_runs=3,
        )
        for number in range(12)
    )
    return "".join(f"{row.model_dump_json()}\n" for row in rows).encode()


def profile() -> str:
    """One that comes with the package."""
    return (PROFILES_FOLDER / "open-fridge.toml").read_text(encoding="utf-8")


def make_sweep(folder: Path) -> Path:
    """A sweep of `RUNS`; returns its folder."""
    sweep = folder / SWEEP
    for name, (_, gpus) in RUNS.items():
        run = sweep / name
        run.mkdir(parents=True)
        (run / RUN_FILE).write_text(record(name).model_dump_json(indent=1), encoding="utf-8")
        (run / SERIES_FILE).write_bytes(packed(series(gpus)))
        (run / SPANS_FILE).write_bytes(packed(spans()))
    (sweep / PLAN_FILE).write_bytes(plan())
    return sweep


def index() -> bytes:
    """What is remembered of the runs of a sweep that is not there any more."""
    with tempfile.TemporaryDirectory() as name, patch.dict(os.environ, XDG_CACHE_HOME=name):
        find([make_sweep(Path(name))])
        return index_path().read_bytes()
