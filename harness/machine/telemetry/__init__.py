"""Readings of the machine while a run goes on: a thread that samples processes and GPUs and keeps the rows in memory.

Who writes: only the sampling thread, which also makes, uses and closes both samplers. Who reads: the owner; it may read
`rows` at any time (the list only grows, by whole rows), and should read the readings after `stop`. What blocks: only
the wait between samples, which `stop` ends at once. The thread is a daemon, so it never keeps a dying harness alive.
Telemetry never fails a run: `problem` holds what went wrong, and is the reason of a reading that is n/a.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence

from rlbench.harness.machine.telemetry import nvml
from rlbench.harness.machine.telemetry.processes import ProcessSampler
from rlbench.harness.machine.telemetry.readings import Readings, Row

__all__ = ["PERIOD_S", "Readings", "Row", "Telemetry"]

PERIOD_S = 2.0
SHORTEST_PERIOD_S = 0.2
PERIOD_SHARE = 0.1
"""The period is at most this share of the run's time so far, so that a short run is not over between two samples."""


class Telemetry(Readings):
    """Samples the process tree of `pid`, and the GPUs of NVML's `gpu_indices`, every `period_s`.

    It samples more often at first, see `PERIOD_SHARE`. A row has `t` (s, `perf_counter`, as in the meter),
    `cpu_percent`, `memory_bytes`, `num_processes`, and `gpu{k}_` plus the name of each of NVML's readings for each GPU
    k of the list. Rows are kept until the owner drops this object.
    """

    def __init__(self, pid: int, period_s: float, gpu_indices: Sequence[int] = ()) -> None:
        if not period_s > 0:
            raise ValueError(f"telemetry period_s={period_s}: must be above 0")
        super().__init__([], len(gpu_indices))
        self.gpu_indices = tuple(gpu_indices)
        self._pid = pid
        self._period_s = period_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Takes one last sample, then ends the thread and waits for it. May be called again."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        gpus: nvml.GpuSampler | None = None
        try:
            if self.gpu_indices:
                gpus = self._open_gpus()
            self._sample_until_stopped(ProcessSampler(self._pid), gpus)
        except Exception as problem:  # noqa: BLE001  the watched run must go on; the owner reports the problem
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
            due_s = max(due_s + period_s, now_s)  # a late sample delays the next; missed samples are not made up for


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
