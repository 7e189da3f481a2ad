"""Readings of the machine while a run goes on: a thread that samples processes and GPUs and keeps the rows in memory.

Who writes: the sampling thread alone, which also makes, uses and closes both samplers. Who reads: its owner, `rows` at
any time (a list only grows, by whole rows), the readings best after `stop`. What blocks: nothing but the wait between
samples, which `stop` ends at once. The thread is a daemon, so it never keeps a dying harness alive.
Telemetry never fails a run: what went wrong with it is in `problem`, and a reading without rows is n/a for that reason.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean

from harness.telemetry import nvml
from harness.telemetry.processes import CPU_SOURCE, MEMORY_SOURCE, ProcessSampler
from results.schema import Reading

Row = dict[str, float | None]
SHORTEST_PERIOD_S = 0.2
PERIOD_SHARE = 0.1
"""Of what a run has lasted: a short one is sampled more often at first, else it could be over between two samples."""


class Telemetry:
    """Samples the process tree of `pid`, and the GPUs of NVML's `gpu_indices`, every `period_s`.

    More often at first, see `PERIOD_SHARE`. A row has `t` (s, `perf_counter`, as the meter's), `cpu_percent`,
    `memory_bytes`, `num_processes` and for each GPU k of the list `gpu{k}_` with each of `nvml.READINGS`. Rows are kept
    until the owner drops this object.
    """

    def __init__(self, pid: int, period_s: float, gpu_indices: Sequence[int] = ()) -> None:
        if not period_s > 0:
            raise ValueError(f"telemetry period_s={period_s}: must be above 0")
        self.rows: list[Row] = []
        self.gpu_indices = tuple(gpu_indices)
        self.problem: str | None = None
        """Why readings are missing, if any are."""
        self._pid = pid
        self._period_s = period_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Takes one last sample, ends the thread and waits for it. May be called again."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        gpus: nvml.GpuSampler | None = None
        try:
            if self.gpu_indices:
                gpus = self._open_gpus()
            self._sample_until_stopped(ProcessSampler(self._pid), gpus)
        except Exception as problem:  # noqa: BLE001  the run that is watched must go on; the owner reports it
            self.problem = f"telemetry stopped: {type(problem).__name__}: {problem}"
        finally:
            if gpus:
                gpus.close()

    def _open_gpus(self) -> nvml.GpuSampler | None:
        try:
            return nvml.GpuSampler(self.gpu_indices)
        except nvml.NvmlMissingError as problem:
            self.problem = str(problem)
            return None

    def _sample_until_stopped(self, processes: ProcessSampler, gpus: nvml.GpuSampler | None) -> None:
        began_s = due_s = time.perf_counter()
        stopping = False
        while not stopping:
            stopping = self._stopping.wait(max(due_s - time.perf_counter(), 0.0))
            self.rows.append(_row(processes, gpus))
            now_s = time.perf_counter()
            period_s = min(self._period_s, max(SHORTEST_PERIOD_S, PERIOD_SHARE * (now_s - began_s)))
            due_s = max(due_s + period_s, now_s)  # a late sample delays the next, none is made up

    def cpu_percent(self, begin_s: float, end_s: float) -> Reading:
        """Mean of the process tree between two moments; 100 is one core."""
        return self._reading(fmean, self._column("cpu_percent", begin_s, end_s), CPU_SOURCE)

    def memory_bytes(self) -> Reading:
        """Peak of the process tree's private memory, over the whole run."""
        return self._reading(max, self._column("memory_bytes"), f"{MEMORY_SOURCE}; peak of samples")

    def utilisation(self, begin_s: float, end_s: float) -> Reading:
        """Mean over GPUs between two moments: busy SMs if all GPUs tell, else the share of time with a kernel."""
        for name, source in (("sm_busy", nvml.SM_SOURCE), ("busy", nvml.BUSY_SOURCE)):
            means = self._means(name, begin_s, end_s)
            if means:
                return self._reading(fmean, means, f"{source}; mean over GPUs")
        return self._reading(fmean, [], nvml.BUSY_SOURCE)

    def gpu_memory_bytes(self) -> Reading:
        """Peak of the fullest GPU, over the whole run."""
        used = [value for k in range(len(self.gpu_indices)) for value in self._column(f"gpu{k}_memory_bytes")]
        return self._reading(max, used, f"{nvml.MEMORY_SOURCE}; peak of samples, fullest GPU")

    def gpu_power_w(self, begin_s: float, end_s: float) -> Reading:
        """Mean between two moments, summed over GPUs."""
        return self._reading(sum, self._means("power_w", begin_s, end_s), f"{nvml.POWER_SOURCE}; summed over GPUs")

    def _means(self, name: str, begin_s: float, end_s: float) -> list[float]:
        """The mean of each GPU; none at all when one of them has no reading."""
        columns = [self._column(f"gpu{k}_{name}", begin_s, end_s) for k in range(len(self.gpu_indices))]
        return [fmean(column) for column in columns] if all(columns) else []

    def _column(self, name: str, begin_s: float = 0.0, end_s: float = float("inf")) -> list[float]:
        values = (row.get(name) for row in self.rows if begin_s <= (row["t"] or 0.0) <= end_s)
        return [value for value in values if value is not None]

    def _reading(self, combine: Callable[[list[float]], float], values: list[float], source: str) -> Reading:
        if values:
            return Reading(value=combine(values), source=source)
        return Reading(value=None, source=self.problem or f"no sample of: {source}")


def _row(processes: ProcessSampler, gpus: nvml.GpuSampler | None) -> Row:
    sample = processes.sample()
    return {
        "t": time.perf_counter(),
        "cpu_percent": sample.cpu_percent,
        "memory_bytes": sample.memory_bytes,
        "num_processes": sample.num_processes,
        **dict(_gpu_columns(gpus)),
    }


def _gpu_columns(gpus: nvml.GpuSampler | None) -> Iterator[tuple[str, float | None]]:
    for k, readings in enumerate(gpus.sample() if gpus else ()):
        for name, value in readings.items():
            yield f"gpu{k}_{name}", value
