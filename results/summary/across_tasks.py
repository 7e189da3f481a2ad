"""How well systems learned over several tasks: scenarios and workloads of one sweep, on the same number of GPUs.

Only metrics of the same scale are combined: `success` of all tasks, which is between 0 and 1, and returns of one
scenario. A system counts only if it has learning curves on all tasks that any system has: a mean over the easier tasks
would flatter it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from rlbench.results.statistics.learning_curves import (
    Floats,
    interquartile_mean,
    performance_profile,
    probability_of_improvement,
    stratified_interval,
)
from rlbench.results.summary.document import AcrossTasks, CellSummary, Estimate, Kind

MOST_THRESHOLDS = 200
"""Maximum number of thresholds of a performance profile; if more runs differ, it has this many, evenly spaced."""

_Group = tuple[str, Kind, int, str, str]
_Finals = dict[str, Floats]
"""Final scores of the runs, by task."""


def across_tasks(cells: Sequence[CellSummary], reference: str | None) -> list[AcrossTasks]:
    """How well each system learned over the tasks of its sweep, in the order of the cells.

    Args:
        cells: cells with their learning.
        reference: the system with which others are compared.
    """
    groups: dict[_Group, dict[str, _Finals]] = defaultdict(lambda: defaultdict(dict))
    for cell in cells:
        if cell.learning is not None:
            of_scenario = "" if cell.learning.metric == "success" else cell.scenario
            key = cell.sweep, cell.kind, cell.gpus, cell.learning.metric, of_scenario
            groups[key][cell.system][f"{cell.scenario}, {cell.workload}"] = np.array(cell.learning.finals)
    return [each for key, systems in groups.items() for each in _of_group(key, systems, reference)]


def _of_group(key: _Group, systems: Mapping[str, _Finals], reference: str | None) -> Iterator[AcrossTasks]:
    sweep, kind, gpus, metric, _ = key
    tasks = list(dict.fromkeys(task for finals in systems.values() for task in finals))
    whole = {
        system: [finals[task] for task in tasks] for system, finals in systems.items() if len(finals) == len(tasks)
    }
    if not whole:
        return
    thresholds = _thresholds(metric, np.concatenate([runs for scores in whole.values() for runs in scores]))
    base = whole.get(reference) if reference is not None else None
    for system, scores in whole.items():
        ends = stratified_interval(scores)
        low, high = ends or (None, None)
        yield AcrossTasks(
            sweep=sweep,
            kind=kind,
            gpus=gpus,
            system=system,
            metric=metric,
            tasks=tasks,
            num_runs=sum(map(len, scores)),
            final=Estimate(
                value=float(interquartile_mean(scores)),
                low=low,
                high=high,
                units=None if ends is None else "seeds",
                num_units=0 if ends is None else min(map(len, scores)),
            ),
            improvement=None if base is None or system == reference else probability_of_improvement(scores, base),
            thresholds=thresholds.tolist(),
            shares=performance_profile(scores, thresholds).tolist(),
        )


def _thresholds(metric: str, finals: Floats) -> Floats:
    """Every value at which a profile has a step: for `success` from 0 to 1, else from the worst run to the best."""
    ends = [0.0, 1.0] if metric == "success" else []
    steps = np.unique([*ends, *finals])
    return steps if len(steps) <= MOST_THRESHOLDS else np.linspace(steps[0], steps[-1], MOST_THRESHOLDS)
