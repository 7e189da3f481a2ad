"""Cells over seeds: groups of runs that differ only in their seeds, their rates, and their scaling.

The interval of a cell with one run equals that in the run's record (`results.summary.scaled.scale`,
`harness.run.figures`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlbench.results.records import labels
from rlbench.results.records import units as units_of
from rlbench.results.records.schema import RunRecord
from rlbench.results.records.store import StoredRun
from rlbench.results.statistics.intervals import (
    LEAST_PARTS,
    Units,
    interval,
    needed,
    of_parts,
    of_seeds,
    ratio_interval,
    says_nothing,
)
from rlbench.results.summary.assumed import assumed_keys
from rlbench.results.summary.bottleneck import find_bottleneck, what_would_help
from rlbench.results.summary.document import CellSummary, Estimate, Kind, Repeated

Group = tuple[str, str, str, int]
"""Sweep, scenario, workload, GPUs: cells that share these are compared."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CellRuns:
    """The runs of a cell, and the units that the interval of its rate comes from."""

    summary: CellSummary
    finished: list[StoredRun]
    timed_out: list[StoredRun]
    """Timed-out runs: their figures do not count, but they do count as not having reached a threshold."""
    units: Units | None
    repeated: Repeated | None

    @property
    def group(self) -> Group:
        """The group of cells that it is compared with."""
        return (self.summary.sweep, self.summary.scenario, self.summary.workload, self.summary.gpus)

    @property
    def rate(self) -> float:
        """Samples learned per second of a cell that has finished runs."""
        assert self.summary.steps_per_s is not None
        return self.summary.steps_per_s.value


def make_cells(runs: Sequence[StoredRun]) -> list[CellRuns]:
    """Groups runs into cells, ordered by sweep, work, system (in the order of first runs) and GPUs; scales them.

    Of a cell that was run again, the run that `latest` chooses counts.
    """
    order = {name: place for place, name in enumerate(dict.fromkeys(labels.system(run.record.cell) for run in runs))}
    groups = enumerate(_grouped(latest(runs), order))
    cells = [_summarise_cell(number, group) for number, group in groups]
    alike: dict[tuple[object, ...], list[CellRuns]] = defaultdict(list)
    for cell in cells:
        if cell.finished:
            alike[_scaled_with(cell)].append(cell)
    bases = {key: min(each, key=lambda cell: cell.summary.gpus) for key, each in alike.items()}
    return [_scaled(cell, bases[_scaled_with(cell)]) if cell.finished else cell for cell in cells]


def latest(runs: Sequence[StoredRun]) -> list[StoredRun]:
    """Of the runs of each cell of a sweep, the latest finished one, else the latest; keeps the order."""
    kept: dict[tuple[str, str], StoredRun] = {}
    for run in sorted(runs, key=lambda run: run.record.started_at):
        key = (run.record.sweep, run.record.cell.hash)
        if key not in kept or run.record.status == "finished" or kept[key].record.status != "finished":
            kept[key] = run
    chosen = {run.path for run in kept.values()}
    return [run for run in runs if run.path in chosen]


def other_tries(runs: Sequence[StoredRun]) -> list[StoredRun]:
    """The runs that `latest` leaves out."""
    kept = {run.path for run in latest(runs)}
    return [run for run in runs if run.path not in kept]


def _grouped(runs: Sequence[StoredRun], order: Mapping[str, int]) -> list[list[StoredRun]]:
    """Groups of runs that differ only in their seeds, in the order of sweep, work, system and GPUs."""
    groups: dict[tuple[Any, ...], list[StoredRun]] = defaultdict(list)
    for run in runs:
        cell = run.record.cell
        key = (
            run.record.sweep,
            labels.scenario(cell),
            cell.workload,
            order[labels.system(cell)],
            cell.gpus,
            cell.device,
            cell.protocol,
            run.record.figures.time_scale,
        )
        groups[key].append(run)
    return [groups[key] for key in sorted(groups)]


def kind_of(record: RunRecord) -> Kind:
    """What a run's figures speak of."""
    return "predicted" if record.figures.predicted else "emulated" if record.figures.emulated else "measured"


def _summarise_cell(number: int, runs: Sequence[StoredRun]) -> CellRuns:
    finished = [run for run in runs if run.record.status == "finished" and run.record.figures.steps_per_s]
    first = (finished or runs)[0].record
    name = (labels.system(first.cell), labels.scenario(first.cell), first.cell.workload, first.cell.gpus)
    units, repeated = _units(finished) if finished else (None, None)
    fields: dict[str, Any] = {
        "id": f"cell-{number}",
        "sweep": first.sweep,
        "system": name[0],
        "scenario": name[1],
        "workload": first.cell.workload,
        "gpus": first.cell.gpus,
        "device": first.cell.device,
        "protocol": first.cell.protocol,
        "kind": kind_of(first),
        "time_scale": first.figures.time_scale,
        "runs": [run.record.id for run in runs],
        "assumed": assumed_keys(first),
        "seeds": sorted(run.record.cell.seed for run in finished),
        "statuses": dict(Counter(run.record.status for run in runs)),
        "unit": units_of.common(run.record.counters.unit for run in finished or runs),
    }
    if finished:
        rate = float(np.mean([run.record.figures.steps_per_s for run in finished]))
        ends = interval(units) if units else None
        fields |= {"steps_per_s": estimate(rate, ends, units, repeated), **_means([run.record for run in finished])}
    timed_out = [run for run in runs if run.record.status == "timed-out"]
    return CellRuns(
        summary=CellSummary(**fields), finished=finished, timed_out=timed_out, units=units, repeated=repeated
    )


def _units(finished: Sequence[StoredRun]) -> tuple[Units | None, Repeated]:
    """The units of a cell's rate: its seeds, or the iterations of its only run."""
    if len(finished) == 1:
        units = of_parts(finished[0].parts)
        return units, "iterations"
    return of_seeds([run.record.figures.steps_per_s or 0.0 for run in finished]), "seeds"


def estimate(
    value: float, ends: tuple[float, float] | None, units: Units | None, repeated: Repeated | None
) -> Estimate:
    """Makes an estimate, with an interval if it says anything, or else with how many units that needs."""
    if units is None:
        return Estimate(value=value, units=repeated, needs=LEAST_PARTS)
    if ends is None:
        return Estimate(value=value)
    num = len(units.amounts)
    if says_nothing(ends):
        return Estimate(value=value, units=repeated, num_units=num, needs=needed(ends, num))
    return Estimate(value=value, low=ends[0], high=ends[1], units=repeated, num_units=num)


def ratio(a: CellRuns, b: CellRuns, value: float) -> Estimate:
    """The ratio `value` of a's rate to b's, and its interval: of seeds if both have several, else of iterations."""
    if not (a.units and b.units):
        return Estimate(value=value)
    ends = ratio_interval(a.units, b.units)
    fewer = min(a.units, b.units, key=lambda units: len(units.amounts))
    return estimate(value, ends, fewer, a.repeated if a.repeated == b.repeated else "iterations")


_OF_SAMPLES = ("learned", "reused", "discarded")


def _means(records: Sequence[RunRecord]) -> dict[str, Any]:
    """All other figures of a cell: means over its finished runs; the maximum of lag_max and memory."""
    figures, counters = [record.figures for record in records], [record.counters for record in records]
    learned, reused, discarded = (_sum(getattr(each, name) for each in counters) for name in _OF_SAMPLES)
    shares, env_shares = (
        _mean_shares(getattr(each, name) for each in figures) for name in ("time_shares", "env_time_shares")
    )
    gains = _mean_shares(each.gains for each in figures if each.gains)
    lags = [each.lag for each in figures if each.lag]
    readings = [each.utilisation for each in figures]
    source = next((each for each in readings if each.value is not None), readings[0]).source
    system = records[0].configuration.get("system")
    return {
        "env_steps_per_s": _mean(each.env_steps_per_s for each in figures),
        "frames_per_s": _mean(each.frames_per_s for each in figures),
        "utilisation": _mean(each.value for each in readings),
        "utilisation_source": source,
        "time_shares": shares,
        "env_time_shares": env_shares,
        "lag_mean": _mean(each.mean for each in lags),
        "lag_max": max((each.max for each in lags), default=None),
        "uses_per_sample": 1 + reused / learned if learned and reused is not None else None,
        "useful_fraction": _share(learned, discarded),
        "cpu_percent": _mean(each.cpu_percent.value for each in figures),
        "core_wait": _mean(each.core_wait.value for each in figures),
        "memory_bytes": max((peak for each in figures if (peak := each.memory_bytes.value) is not None), default=None),
        "gpu_power_w": _mean(each.gpu_power_w.value for each in figures),
        "bottleneck": what_would_help(
            gains, predicted=figures[0].predicted, unit=units_of.common(each.unit for each in counters)
        )
        if gains
        else find_bottleneck(
            shares, env_shares, system=system if isinstance(system, dict) else None, gpus=records[0].cell.gpus
        ),
        "steps_counted": "collected" if any(each.steps_counted == "collected" for each in figures) else "learned",
        "steady": all(each.window is not None and each.window.steady for each in figures),
    }


def _sum(values: Iterable[int | None]) -> int | None:
    """The sum; None if a run does not report the value."""
    each = list(values)
    return None if None in each else sum(value or 0 for value in each)


def _share(learned: int | None, discarded: int | None) -> float | None:
    return (
        learned / (learned + discarded)
        if learned is not None and discarded is not None and learned + discarded
        else None
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _mean_shares(each: Iterable[Mapping[str, float]]) -> dict[str, float]:
    runs = list(each)
    names = dict.fromkeys(name for shares in runs for name in shares)
    return {name: float(np.mean([shares.get(name, 0.0) for shares in runs])) for name in names}


def _scaled_with(cell: CellRuns) -> tuple[object, ...]:
    """Key that cells share if they differ only in their GPUs."""
    own = cell.summary
    return (*cell.group[:3], own.system, own.device, own.protocol, own.time_scale)


def _scaled(cell: CellRuns, base: CellRuns) -> CellRuns:
    """Adds scaling and efficiency to a cell, relative to `base`, the same cell on the fewest GPUs of its sweep."""
    own = cell.summary
    scaling = Estimate(value=1) if base is cell else ratio(cell, base, cell.rate / base.rate)
    scaled = {
        "scaling": scaling,
        "scaling_base_gpus": base.summary.gpus,
        "efficiency": _times(scaling, base.summary.gpus / own.gpus),
    }
    return replace(cell, summary=own.model_copy(update=scaled))


def _times(figure: Estimate, share: float) -> Estimate:
    low, high = (None if end is None else end * share for end in (figure.low, figure.high))
    return figure.model_copy(update={"value": figure.value * share, "low": low, "high": high})
