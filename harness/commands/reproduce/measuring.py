"""The rates of points as runs on emulated GPUs measured them, and the commands that would make such runs.

A run belongs to a point if its system, scenario and GPUs resolve to the same configuration, whatever was typed; a run
on a profile that has changed since belongs to none. Time scales, protocols and lengths of runs may differ.
"""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rlbench.harness.contract.scenario import WORKLOADS
from rlbench.harness.predicting.points import plan_point
from rlbench.results.records import store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rlbench.harness.commands.reproduce.table import PaperTable
    from rlbench.harness.predicting.points import RatePoint, Rates

MOST_EMULATED = 8
"""Most GPUs that a command asks for, since a laptop emulates that many; runs on more are shown if there are any."""


def measured_rates(table: PaperTable, out: Path) -> Rates:
    """Env steps/s of the points with finished runs below `out`: the mean over seeds of the latest run of each.

    Raises ValueError when `out` cannot be read.
    """
    of_seeds: dict[str, dict[int, float]] = defaultdict(dict)
    for run in store.read_readable(out)[0] if out.exists() else []:  # oldest first
        cell, rate = run.record.cell, run.record.figures.steps_per_s
        if cell.device == "emulated" and run.record.status == "finished" and rate is not None:
            of_seeds[_work(cell.system, run.record.configuration)][cell.seed] = rate
    rates = {}
    for point in table.points:
        if point.system is not None:
            planned = plan_point(point, table.length)[0]
            rates_of_seeds = of_seeds.get(_work(planned.system, planned.configuration()))
            if rates_of_seeds:
                rates[point] = fmean(rates_of_seeds.values())
    return rates


def _work(system: str, configuration: Mapping[str, Any]) -> str:
    """Identifies what a run did, whatever its seed and length."""
    parts = {name: configuration.get(name) for name in ("system", "scenario", "gpus")}
    if isinstance(parts["scenario"], dict):
        parts["scenario"] = {name: value for name, value in parts["scenario"].items() if name != "time_scale"}
    return json.dumps([system, parts], sort_keys=True)


def commands(table: PaperTable, points: Sequence[RatePoint], out: Path) -> Iterator[str]:
    """`rlbench run` commands that measure points, as few as their systems, GPUs and scenarios allow."""
    of_scenarios: dict[tuple[str, str], list[RatePoint]] = defaultdict(list)
    for point in points:
        if point.system is not None and point.gpus <= MOST_EMULATED:
            of_scenarios[point.scenario, point.workload].append(point)
    sweeps: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for (scenario, workload), of_scenario in of_scenarios.items():
        systems = ",".join(dict.fromkeys(point.system for point in of_scenario if point.system))
        gpus = ",".join(map(str, sorted({point.gpus for point in of_scenario})))
        sweeps[systems, gpus, workload].append(scenario)
    for (systems, gpus, workload), scenarios in sweeps.items():
        options = ["--systems", systems, "--gpus", gpus, "--scenario", ",".join(scenarios)]
        options += [] if workload == WORKLOADS[0] else ["--workload", workload]
        options += [*table.run_options.split(), "--out", str(out)]
        yield shlex.join(["rlbench", "run", "--device", "emulated", *options])
