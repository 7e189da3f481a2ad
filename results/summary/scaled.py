"""Scales runs against the one on the fewest GPUs: scaling factor, its interval, and efficiency."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rlbench.results.records.store import StoredRun


def scale(runs: Sequence[StoredRun]) -> list[StoredRun]:
    """Fills in the scaling factor, its interval and the efficiency of finished runs; keeps the order.

    Runs of a sweep that differ only in their GPUs are scaled against the finished one on the fewest GPUs (of several
    such runs, the latest).
    """
    comparable: dict[str, list[StoredRun]] = defaultdict(list)
    for run in runs:
        if run.record.status == "finished" and run.record.figures.steps_per_s:
            cell = run.record.cell.model_dump(mode="json", exclude={"gpus", "hash"})
            comparable[json.dumps([run.record.sweep, cell], sort_keys=True)].append(run)
    scaled = {}
    for group in comparable.values():
        fewest = min(run.record.cell.gpus for run in group)
        base = max((run for run in group if run.record.cell.gpus == fewest), key=lambda run: run.record.started_at)
        for run in group:
            scaled[run.path] = _scaled(run, base)
    return [scaled.get(run.path, run) for run in runs]


def _scaled(run: StoredRun, base: StoredRun) -> StoredRun:
    from rlbench.results.statistics import intervals

    figures, base_gpus = run.record.figures, base.record.cell.gpus
    base_rate = base.record.figures.steps_per_s
    assert figures.steps_per_s is not None
    assert base_rate
    factor = figures.steps_per_s / base_rate
    interval = None  # a run has no uncertainty against itself
    units, base_units = intervals.of_parts(run.parts), intervals.of_parts(base.parts)
    if run is not base and units and base_units:
        interval = intervals.ratio_interval(units, base_units)
    figures = figures.model_copy(
        update={
            "scaling_factor": factor,
            "scaling_factor_interval": interval,
            "scaling_base_gpus": base_gpus,
            "efficiency": factor * base_gpus / run.record.cell.gpus,
        }
    )
    return replace(run, record=run.record.model_copy(update={"figures": figures}))
