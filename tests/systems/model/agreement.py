"""Holds predictions against the engine's own code on virtual time: what one says of a run, the other must leave."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlbench.harness.contract.budget import Limits
from rlbench.harness.contract.prediction import Prediction
from rlbench.harness.contract.traits import Traits
from rlbench.harness.plan.cells import Cell
from rlbench.harness.predicting.planning import predict_cell
from tests.systems.engine.cells import make_cell
from tests.systems.engine.ranks import Run
from tests.systems.model.profiles import Changes, write_profile
from tests.systems.model.virtual_engine import run_virtually

COUNTED = ("learned", "reused", "discarded", "lag_sum", "gpu_busy_s")
TIMELINE = re.compile("span/|sampler/")
OF_TRAINING = re.compile("collected|preempt/")
Row = Mapping[str, Any]


def cell_of(
    folder: Path, system: str, profile: Changes, *, num_ranks: int, limits: Limits | None = None, **fields: Any
) -> Cell:
    """A cell on a profile that is written to `folder`; 4 iterations unless told otherwise."""
    scenario = write_profile(folder, "profile", profile)
    cell = make_cell(system, scenario, iterations=4, gpus=num_ranks, device="emulated", **fields)
    return cell if limits is None else replace(cell, limits=limits)


def hold(folder: Path, cell: Cell) -> Prediction:
    """Predicts a cell and runs it on virtual time; asserts that both did the same. Returns the prediction."""
    run, prediction = run_virtually(folder / "run", cell), predict_cell(cell)
    system, _ = cell.load()
    in_step = Traits.of(system).in_step
    zero_s = run.rows(0)[0]["begin_s"]
    ours = {rank: [row for row in prediction.rows if row["rank"] == rank] for rank in range(cell.gpus)}
    # A rank that is over says good-bye, and its messages hold up those that are not: no part of the run.
    over_s = float("inf") if in_step else min(rows[-1]["end_s"] for rows in ours.values())
    for rank, rows in ours.items():
        theirs = run.rows(rank)
        assert len(rows) == len(theirs), rank
        for mine, other in zip(rows, theirs, strict=True):
            if mine["end_s"] <= over_s:
                assert picked(mine, in_step=in_step) == pytest.approx(
                    picked(other, in_step=in_step, zero_s=zero_s), rel=1e-9, abs=1e-9, nan_ok=True
                )
        hold_counters(run, prediction, rank, in_step=in_step)
    hold_fates(run, prediction)
    return prediction


def hold_fates(run: Run, prediction: Prediction) -> None:
    """Asserts that the same became of each environment's env steps, in each block of iterations."""
    theirs = [fates for rank in range(len(prediction.of_envs["env_steps"])) if (fates := run.fates(rank))]
    assert len(theirs) == len(prediction.fates)
    for mine, other in zip(prediction.fates, theirs, strict=True):
        for name in ("first_env", "num_whole", "blocks", "cut", "in_flight"):
            assert np.array_equal(getattr(mine, name), getattr(other, name)), name


def picked(row: Row, *, in_step: bool, zero_s: float = 0.0) -> dict[str, float]:
    """What a row of the series says that the model has: losses are none of it.

    Ranks that are not in step hear of each other's statistics with a delay, so theirs are left out.
    """
    times = {name: row[name] - zero_s for name in ("begin_s", "end_s")}
    kept = {name: row[name] for name in row if TIMELINE.match(name) or (in_step and OF_TRAINING.match(name))}
    return times | {name: row[name] for name in COUNTED} | kept


def hold_counters(run: Run, prediction: Prediction, rank: int, *, in_step: bool) -> None:
    """Asserts that the counters of a rank and of its environments are the same."""
    meter = run.meter(rank)
    assert {name: values[rank] for name, values in prediction.of_ranks.items()} == {
        name: meter.count(0, name) for name in prediction.of_ranks
    }
    of_envs = {name: values[rank].tolist() for name, values in prediction.of_envs.items()}
    for env in range(meter.num_envs):
        theirs = {
            name: meter.count(1 + env, name) if name in {"env_steps", "episodes"} else meter.seconds(1 + env, name)
            for name in of_envs
        }
        if in_step:
            assert {name: values[env] for name, values in of_envs.items()} == pytest.approx(theirs, rel=1e-9, abs=1e-9)
        else:
            assert [of_envs[name][env] for name in ("env_steps", "episodes")] == [
                theirs[name] for name in ("env_steps", "episodes")
            ]
