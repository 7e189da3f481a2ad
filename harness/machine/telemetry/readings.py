"""Figures from the samples of machines: means over a window, and peaks."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from statistics import fmean

from rlbench.harness.machine.telemetry import nvml
from rlbench.harness.machine.telemetry.processes import CPU_SOURCE, MEMORY_SOURCE
from rlbench.results.records.schema import Reading

Row = dict[str, float | None]
SUMMED = ("cpu_percent", "memory_bytes", "num_processes")
"""Columns that are summed over several machines."""


class Readings:
    """Samples in the order of their times, and the figures from them; `Telemetry` says what a row has."""

    def __init__(self, rows: list[Row], num_gpus: int, problem: str | None = None) -> None:
        self.rows = rows
        self.num_gpus = num_gpus
        self.problem = problem
        """Why readings are missing; None if none are."""

    @classmethod
    def joined(cls, nodes: Sequence[Readings]) -> Readings:
        """Joins the samples of several machines, whose times are on one clock; one row for each of the first machine's.

        CPU, memory and process counts are summed, using the row of each other machine that is nearest in time. GPUs are
        numbered on from one machine to the next. If a machine has no row, the result has none either.
        """
        first, *others = nodes
        problem = next((node.problem for node in nodes if node.problem), None)
        rows = [_joined(row, others, first.num_gpus) for row in first.rows] if all(node.rows for node in nodes) else []
        return cls(rows, sum(node.num_gpus for node in nodes), problem)

    def cpu_percent(self, begin_s: float, end_s: float) -> Reading:
        """Mean CPU use of the process tree between two moments; 100 is one core."""
        return self._reading(fmean, self._column("cpu_percent", begin_s, end_s), CPU_SOURCE)

    def memory_bytes(self) -> Reading:
        """Peak of the process tree's private memory, over the whole run."""
        return self._reading(max, self._column("memory_bytes"), f"{MEMORY_SOURCE}; peak of samples")

    def utilisation(self, begin_s: float, end_s: float) -> Reading:
        """Mean over GPUs between two moments: busy SMs if all GPUs give it, else the share of time with a kernel."""
        for name, source in (("sm_busy", nvml.SM_SOURCE), ("busy", nvml.BUSY_SOURCE)):
            means = self._means(name, begin_s, end_s)
            if means:
                return self._reading(fmean, means, f"{source}; mean over GPUs")
        return self._reading(fmean, [], nvml.BUSY_SOURCE)

    def gpu_memory_bytes(self) -> Reading:
        """Peak memory of the fullest GPU, over the whole run."""
        used = [value for k in range(self.num_gpus) for value in self._column(f"gpu{k}_memory_bytes")]
        return self._reading(max, used, f"{nvml.MEMORY_SOURCE}; peak of samples, fullest GPU")

    def gpu_power_w(self, begin_s: float, end_s: float) -> Reading:
        """Mean power between two moments, summed over GPUs."""
        return self._reading(sum, self._means("power_w", begin_s, end_s), f"{nvml.POWER_SOURCE}; summed over GPUs")

    def _means(self, name: str, begin_s: float, end_s: float) -> list[float]:
        """The mean of each GPU; empty if any GPU has no reading."""
        columns = [self._column(f"gpu{k}_{name}", begin_s, end_s) for k in range(self.num_gpus)]
        return [fmean(column) for column in columns] if all(columns) else []

    def _column(self, name: str, begin_s: float = 0.0, end_s: float = float("inf")) -> list[float]:
        values = (row.get(name) for row in self.rows if begin_s <= (row["t"] or 0.0) <= end_s)
        return [value for value in values if value is not None]

    def _reading(self, combine: Callable[[list[float]], float], values: list[float], source: str) -> Reading:
        if values:
            return Reading(value=combine(values), source=source)
        return Reading(value=None, source=self.problem or f"no sample of: {source}")


def _joined(row: Row, others: Sequence[Readings], num_gpus: int) -> Row:
    row = dict(row)
    for other in others:
        nearest = _nearest(other.rows, row["t"] or 0.0)
        for name in SUMMED:
            mine, theirs = row.get(name), nearest.get(name)
            row[name] = None if mine is None or theirs is None else mine + theirs
        for name, value in nearest.items():
            if name.startswith("gpu"):
                number, _, what = name.removeprefix("gpu").partition("_")
                row[f"gpu{num_gpus + int(number)}_{what}"] = value
        num_gpus += other.num_gpus
    return row


def _nearest(rows: Sequence[Row], at_s: float) -> Row:
    after = bisect_left(rows, at_s, key=lambda row: row["t"] or 0.0)
    return min(rows[max(0, after - 1) : after + 1], key=lambda row: abs((row["t"] or 0.0) - at_s))
