"""Summaries of runs as pandas frames: a column is named by its figure and unit, and has its type also without a row.

Counts that may be unknown are `Int64` with `<NA>`, other figures `float64` with NaN; names are texts. `_low` and
`_high` are the ends of the 95 % interval of the figure before them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from rlbench.results.reading.untrusted import is_text, visible
from rlbench.results.records import labels
from rlbench.results.records.schema import RunRecord
from rlbench.results.records.store import StoredRun
from rlbench.results.summary.cells import kind_of
from rlbench.results.summary.document import CellSummary, Comparison, Estimate, Finding

TEXT, WHOLE, COUNT, FIGURE, FLAG, TIME = "text", "int64", "Int64", "float64", "bool", "time in UTC"
CELL = {
    "sweep": TEXT,
    "system": TEXT,
    "scenario": TEXT,
    "workload": TEXT,
    "gpus": WHOLE,
    "device": TEXT,
    "protocol": TEXT,
    "kind": TEXT,
}
"""What tells a cell."""
RUNS = {
    **{name: kind for name, kind in CELL.items() if name != "kind"},
    "seed": WHOLE,
    "kind": TEXT,
    "run": TEXT,
    "status": TEXT,
    "reason": TEXT,
    "unit": TEXT,
    **dict.fromkeys(("steps_per_s", "steps_per_s_low", "steps_per_s_high", "env_steps_per_s", "frames_per_s"), FIGURE),
    **dict.fromkeys(("scaling", "scaling_low", "scaling_high", "efficiency", "utilisation"), FIGURE),
    **dict.fromkeys(("env_steps", "agent_steps", "frames", "learned", "reused", "discarded", "in_flight"), COUNT),
    "episodes": COUNT,
    **dict.fromkeys(("episode_return", "episode_length", "success", "spl", "lag_mean", "lag_max"), FIGURE),
    **dict.fromkeys(("cpu_percent", "core_wait", "memory_bytes", "gpu_memory_bytes", "gpu_power_w"), FIGURE),
    "time_scale": FIGURE,
    "started_at": TIME,
    "duration_s": FIGURE,
    "starting_s": FIGURE,
    "commit": TEXT,
    "num_warnings": WHOLE,
    "folder": TEXT,
}
CELLS = {
    **CELL,
    "num_runs": WHOLE,
    "num_finished": WHOLE,
    "unit": TEXT,
    **dict.fromkeys(("steps_per_s", "steps_per_s_low", "steps_per_s_high", "env_steps_per_s", "frames_per_s"), FIGURE),
    **dict.fromkeys(("scaling", "scaling_low", "scaling_high"), FIGURE),
    **dict.fromkeys(("efficiency", "efficiency_low", "efficiency_high", "utilisation"), FIGURE),
    "bound_by": TEXT,
    **dict.fromkeys(("lag_mean", "lag_max", "uses_per_sample", "useful_fraction"), FIGURE),
    **dict.fromkeys(("cpu_percent", "core_wait", "memory_bytes", "gpu_power_w"), FIGURE),
    "metric": TEXT,
    **dict.fromkeys(("final", "final_low", "final_high", "area", "area_low", "area_high"), FIGURE),
    "steady": "boolean",
}
INTERVALS = {
    **CELL,
    "figure": TEXT,
    "value": FIGURE,
    "low": FIGURE,
    "high": FIGURE,
    "over": TEXT,
    "num_units": WHOLE,
    "needs": COUNT,
}
COMPARISONS = {
    **{name: CELL[name] for name in ("sweep", "scenario", "workload", "gpus", "kind", "system")},
    "against": TEXT,
    **dict.fromkeys(("ratio", "ratio_low", "ratio_high"), FIGURE),
    "over": TEXT,
    "comparable": FLAG,
}
LEARNING = {
    **CELL,
    "metric": TEXT,
    **dict.fromkeys(("env_steps", "seconds", "gpu_seconds", "value", "lowest", "highest"), FIGURE),
}
TIME_SHARES = {**CELL, "of": TEXT, "stage": TEXT, "share": FIGURE}
FINDINGS = {"severity": TEXT, "text": TEXT, "num_runs": WHOLE}
Row = dict[str, Any]


def frame_of(rows: Iterable[Row], columns: Mapping[str, str]) -> pd.DataFrame:
    """A frame of these columns, in their order."""
    frame = pd.DataFrame(list(rows), columns=list(columns))
    texts: Any = pd.Series(["a text"]).dtype  # which depends on the version of pandas
    for name, kind in columns.items():
        if kind == TIME:
            frame[name] = pd.to_datetime(frame[name], utc=True, errors="coerce", format="ISO8601")
        else:
            own: Any = texts if kind == TEXT else kind
            frame[name] = frame[name].astype(own)
    return frame


def runs_frame(runs: Sequence[StoredRun], records: Sequence[RunRecord]) -> pd.DataFrame:
    """A row for each run; `records` are those of `runs`, with the figures that compare them filled in."""
    return frame_of((_run(stored.path, record) for stored, record in zip(runs, records, strict=True)), RUNS)


def cells_frame(cells: Iterable[CellSummary]) -> pd.DataFrame:
    """A row for each cell: the runs that differ only in their seeds."""
    return frame_of(map(_cell, cells), CELLS)


def intervals_frame(cells: Iterable[CellSummary]) -> pd.DataFrame:
    """A row for each figure of a cell that has an interval, or could: what it comes from, or what it lacks."""
    return frame_of((row for cell in cells for row in _intervals(cell)), INTERVALS)


def comparisons_frame(comparisons: Iterable[Comparison]) -> pd.DataFrame:
    """A row for each pair of systems on the same work: steps/s of one / those of the other."""
    return frame_of(map(_comparison, comparisons), COMPARISONS)


def learning_frame(cells: Iterable[CellSummary]) -> pd.DataFrame:
    """A row for each point of each cell's learning curve."""
    rows = (
        {
            **_key(cell),
            "metric": cell.learning.metric,
            **point.model_dump(exclude={"low", "high"}),
            "lowest": point.low,
            "highest": point.high,
        }
        for cell in cells
        if cell.learning is not None
        for point in cell.learning.curve
    )
    return frame_of(rows, LEARNING)


def time_shares_frame(cells: Iterable[CellSummary]) -> pd.DataFrame:
    """A row for each stage of each cell: its share of the ranks' time, or of the environments'."""
    rows = (
        {**_key(cell), "of": of, "stage": stage, "share": share}
        for cell in cells
        for of, shares in (("ranks", cell.time_shares), ("environments", cell.env_time_shares))
        for stage, share in shares.items()
    )
    return frame_of(rows, TIME_SHARES)


def findings_frame(findings: Iterable[Finding]) -> pd.DataFrame:
    """A row for each problem that spoils figures, or may."""
    rows = ({"severity": each.severity, "text": each.text, "num_runs": len(each.runs)} for each in findings)
    return frame_of(rows, FINDINGS)


def _run(folder: Path, record: RunRecord) -> Row:
    cell, figures, counters = record.cell, record.figures, record.counters
    return {
        **{name: getattr(cell, name) for name in ("workload", "gpus", "device", "protocol", "seed")},
        **{name: getattr(figures, name) for name in RUNS if name in _OF_FIGURES},
        **{name: getattr(counters, name) for name in RUNS if name in _OF_COUNTERS},
        **{name: getattr(figures, name).value for name in RUNS if name in _READINGS},
        **{name: getattr(record, name) for name in RUNS if name in _OF_RECORD},
        **_ends("steps_per_s", figures.steps_per_s_interval),
        **_ends("scaling", figures.scaling_factor_interval),
        "system": labels.system(cell),
        "scenario": labels.scenario(cell),
        "kind": kind_of(record),
        "run": record.id,
        "scaling": figures.scaling_factor,
        "lag_mean": None if figures.lag is None else figures.lag.mean,
        "lag_max": None if figures.lag is None else figures.lag.max,
        "num_warnings": len(record.warnings),
        "folder": str(folder) if is_text(str(folder)) else visible(str(folder)),
    }


_OF_FIGURES = {
    *("steps_per_s", "env_steps_per_s", "frames_per_s", "efficiency", "time_scale"),
    *("episode_return", "episode_length", "success", "spl"),
}
_OF_COUNTERS = {
    *("unit", "env_steps", "agent_steps", "frames", "learned", "reused", "discarded", "in_flight", "episodes"),
}
_READINGS = {"utilisation", "cpu_percent", "core_wait", "memory_bytes", "gpu_memory_bytes", "gpu_power_w"}
_OF_RECORD = {"sweep", "status", "reason", "started_at", "duration_s", "starting_s", "commit"}


def _key(cell: CellSummary) -> Row:
    return {name: getattr(cell, name) for name in CELL}


def _cell(cell: CellSummary) -> Row:
    learning = cell.learning
    return {
        **{name: getattr(cell, name) for name in CELLS if name in CellSummary.model_fields},
        **{name: value for figure, each in _estimates(cell) for name, value in _spread(figure, each).items()},
        "num_runs": len(cell.runs),
        "num_finished": cell.statuses.get("finished", 0),
        "bound_by": None if cell.bottleneck is None else cell.bottleneck.stage,
        "metric": None if learning is None else learning.metric,
    }


def _intervals(cell: CellSummary) -> Iterator[Row]:
    for figure, estimate in _estimates(cell):
        if estimate is not None and (estimate.low is not None or estimate.needs is not None):
            yield {
                **_key(cell),
                **estimate.model_dump(exclude={"units"}),
                "figure": figure,
                "over": estimate.units,
            }


def _estimates(cell: CellSummary) -> Iterator[tuple[str, Estimate | None]]:
    yield "steps_per_s", cell.steps_per_s
    yield "scaling", cell.scaling
    yield "efficiency", cell.efficiency
    yield "final", None if cell.learning is None else cell.learning.final
    yield "area", None if cell.learning is None else cell.learning.area


def _comparison(comparison: Comparison) -> Row:
    return {
        **comparison.model_dump(exclude={"ratio"}),
        **_spread("ratio", comparison.ratio),
        "over": comparison.ratio.units,
    }


def _spread(name: str, estimate: Estimate | None) -> Row:
    """A figure and the ends of its interval."""
    if estimate is None:
        return {name: None, **_ends(name, None)}
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


def _ends(name: str, interval: tuple[float, float] | None) -> Row:
    low, high = interval or (None, None)
    return {f"{name}_low": low, f"{name}_high": high}
