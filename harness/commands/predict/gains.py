"""What would help a predicted run: the model is asked again, with 10 % more of each stage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from rlbench.harness.contract.prediction import MORE, STAGES, Predictable, Prediction, Profiled
from rlbench.harness.plan.cells import Cell

MOST_GPUS = 256
"""Runs on more are not predicted again: that would take minutes."""


def asked_why(cells: Iterable[Cell]) -> list[Cell]:
    """Of each system on each work and number of GPUs, up to `MOST_GPUS`, the first seed."""
    chosen: dict[tuple[object, ...], Cell] = {}
    for cell in cells:
        if cell.gpus <= MOST_GPUS:
            chosen.setdefault(_but_for_seed(cell), cell)
    return list(chosen.values())


def gains(cell: Cell, prediction: Prediction) -> dict[str, float]:
    """How many times as many steps/s `MORE` of each stage gives, by its name; empty where nothing states its times."""
    return dict(_gains(cell, prediction))


def _gains(cell: Cell, prediction: Prediction) -> Iterator[tuple[str, float]]:
    system, scenario = cell.load()
    if not isinstance(scenario, Profiled) or not _rate(prediction):
        return
    assert isinstance(system, Predictable)
    stages = [stage for stage in STAGES if stage != "communication" or cell.gpus > 1]
    for stage in stages:
        quicker: Any = scenario.quicker(stage, MORE)
        if quicker == scenario:  # the profile has no such times
            yield stage, 1.0
            continue
        again = system.predict(replace(quicker, time_scale=1.0), cell.gpus, cell.seed, cell.limits)
        yield stage, _rate(again) / _rate(prediction)


def _rate(prediction: Prediction) -> float:
    learned = float(prediction.of_ranks["learned"].sum())
    return learned / max(float(row["end_s"]) for row in prediction.rows)


def _but_for_seed(cell: Cell) -> tuple[object, ...]:
    settings = *cell.system_settings.items(), None, *cell.scenario_settings.items()
    return cell.system, cell.scenario, *settings, cell.workload, cell.gpus, cell.scaling, cell.protocol
