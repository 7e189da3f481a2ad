from __future__ import annotations

import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from statistics import median

import psutil
import pynvml
import pytest

from rlbench.harness.machine.telemetry import Telemetry
from rlbench.harness.machine.telemetry.nvml import GpuSampler, NvmlMissingError, close_nvml, open_nvml, visible_indices
from rlbench.harness.machine.telemetry.processes import ProcessSampler
from tests.harness.machine.fake_nvml import FakeGpu, installed
from tests.harness.runs import PATIENCE_S, wait_until
from tests.lanes import deep

MIB = 1 << 20
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@contextmanager
def program(code: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process that has printed a line; killed, with its children, at the end."""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert child.stdout
        child.stdout.readline()
        yield child
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


def until(condition: Callable[[], bool], what: str) -> None:
    """Waits for a condition."""
    wait_until(condition, what)


def test_cpu_of_a_busy_tree() -> None:
    """CPU percent is that of the whole tree as the kernel counts it: a child of the watched process that spins."""
    spin = "while True: pass"
    start = f"p = subprocess.Popen([sys.executable, '-c', {spin!r}])"
    code = f"import subprocess, sys; {start}; print('up', flush=True); p.wait()"
    with program(code) as child:
        sampler = ProcessSampler(child.pid)
        (spinner,) = psutil.Process(child.pid).children()

        def look() -> tuple[float, float]:
            return sum(spinner.cpu_times()[:2]), time.perf_counter()

        looks = [look()]
        assert sampler.sample().cpu_percent is None
        looks.append(look())
        until(lambda: look()[0] > looks[1][0] + 0.3, "CPU time")
        looks.append(look())
        sample = sampler.sample()
        looks.append(look())
        assert sample.num_processes == 2
        assert sample.cpu_percent is not None
        # What the sampler saw lies between what was there before and after its looks, to a tick of the kernel's clock.
        (outer_s, began_s), (inner_s, begun_s), (inner_end_s, end_s), (outer_end_s, ended_s) = looks
        least = (inner_end_s - inner_s - 2 * TICK_S) / (ended_s - began_s)
        most = (outer_end_s - outer_s + 2 * TICK_S) / (end_s - begun_s)
        assert 100 * least <= sample.cpu_percent <= 100 * most


def test_private_memory_counts_no_shared_memory() -> None:
    """200 MiB of a process's own count; 200 MiB of shared memory that it has filled do not."""
    own = "b = bytearray(200 << 20)"
    shared = "import mmap; m = mmap.mmap(-1, 200 << 20); m.write(bytes(200 << 20))"
    used = []
    for code in ("pass", own, shared):
        with program(f"{code}\nprint('up', flush=True)\nimport time; time.sleep(60)") as child:
            used.append(ProcessSampler(child.pid).sample().memory_bytes)
    assert used[1] - used[0] == pytest.approx(200 * MIB, rel=0.1)
    assert used[2] - used[0] < 20 * MIB


def test_tree_follows_births_and_deaths() -> None:
    """Children that come are found, children that go are dropped, and orphans stay in the tree."""
    code = """
import os, sys, time
middle = os.fork()
if middle == 0:
    if os.fork() == 0:
        time.sleep(60)
    print("up", flush=True)
    time.sleep(60)
time.sleep(60)
"""
    with program(code) as child:
        sampler = ProcessSampler(child.pid)
        assert sampler.sample().num_processes == 3
        (middle,) = psutil.Process(child.pid).children()
        middle.kill()
        until(lambda: sampler.sample().num_processes == 2 or middle.status() == psutil.STATUS_ZOMBIE, "its death")
        orphans = [p for p in psutil.process_iter() if p.pid in sampler._tree and p.pid not in {child.pid, middle.pid}]
        assert len(orphans) == 1


def test_tree_that_has_ended() -> None:
    """A run that is over is one of no processes, not an error."""
    with program("print('up', flush=True)") as child:
        child.wait()
    sampler = ProcessSampler(child.pid)
    assert (sampler.sample().num_processes, sampler.sample().cpu_percent) == (0, 0)


@deep
def test_cost_of_a_sample() -> None:
    """A sample of a tree of 140 processes costs under 15 ms of CPU time, the median of 9."""
    code = """
import os, time
for _ in range(139):
    if os.fork() == 0:
        time.sleep(60)
print("up", flush=True)
time.sleep(60)
"""
    with program(code) as child:
        sampler = ProcessSampler(child.pid)
        until(lambda: sampler.sample().num_processes == 140, "140 processes")
        costs_s = []
        for _ in range(9):
            begin_s = time.thread_time()
            sampler.sample()
            costs_s.append(time.thread_time() - begin_s)
    assert median(costs_s) < 0.015


def test_telemetry_of_this_process() -> None:
    """The thread keeps rows on the meter's clock, `stop` takes a last one and ends it, and readings name sources."""
    telemetry = Telemetry(os.getpid(), 0.01)
    until(lambda: len(telemetry.rows) >= 4, "rows")
    telemetry.stop()
    telemetry.stop()
    assert not telemetry._thread.is_alive()
    times = [row["t"] or math.nan for row in telemetry.rows]
    assert times == sorted(times)
    assert times[-1] <= time.perf_counter()
    reading = telemetry.cpu_percent(times[1], times[-1])
    assert reading.value is not None
    assert reading.source.startswith("psutil")
    assert (telemetry.memory_bytes().value or 0) > MIB
    assert telemetry.cpu_percent(times[-1] + 1, times[-1] + 2).value is None
    assert telemetry.problem is None


def test_stop_does_not_wait_for_the_period(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopping ends a wait of an hour at once, with a first and a last row."""
    monkeypatch.setattr("rlbench.harness.machine.telemetry.SHORTEST_PERIOD_S", 3600)
    telemetry = Telemetry(os.getpid(), 3600)
    until(lambda: len(telemetry.rows) == 1, "the first row")
    telemetry.stop()  # else the test would take an hour
    assert len(telemetry.rows) == 2


def test_period_must_be_positive() -> None:
    """A period of nothing would sample without pause."""
    with pytest.raises(ValueError, match="period_s=0: must be above 0"):
        Telemetry(os.getpid(), 0)


def test_gpm_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU with GPM counters busy SMs are read from two samples, the older first, time after time."""
    with installed(monkeypatch, FakeGpu(), FakeGpu(sm_percent=75)), GpuSampler([0, 1]) as sampler:
        for _ in range(3):
            first, second = sampler.sample()
            assert first == {
                "busy": 0.5,
                "sm_busy": 0.25,
                "sm_occupancy": None,
                "memory_bytes": 1 << 30,
                "power_w": 300,
            }
            assert second["sm_busy"] == 0.75


def test_gpm_readings_are_of_the_time_since_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reading is of the time since the one before, not since the start: what came earlier does not weigh."""
    gpu = FakeGpu(sm_percent=10)
    with installed(monkeypatch, gpu), GpuSampler([0]) as sampler:
        for percent in (10, 90, 90, 30):
            gpu.sm_percent = percent
            assert sampler.sample()[0]["sm_busy"] == pytest.approx(percent / 100)


@pytest.mark.parametrize("gpu", [FakeGpu(gpm=False), FakeGpu(fails={"gpm-sample": pynvml.NVML_ERROR_NOT_SUPPORTED})])
def test_without_gpm(monkeypatch: pytest.MonkeyPatch, gpu: FakeGpu) -> None:
    """Where the GPU has no GPM counters, or refuses them (MIG), NVML's own utilisation is left, and nothing leaks."""
    with installed(monkeypatch, gpu), GpuSampler([0]) as sampler:
        (readings,) = sampler.sample()
        assert (readings["busy"], readings["sm_busy"]) == (0.5, None)


def test_a_reading_that_fails_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that is lost in the middle of a run gives None from then on, and None is not 0."""
    gpu = FakeGpu()
    with installed(monkeypatch, gpu), GpuSampler([0]) as sampler:
        sampler.sample()
        names = ("utilisation", "memory", "power", "gpm-sample")
        gpu.fails = dict.fromkeys(names, pynvml.NVML_ERROR_GPU_IS_LOST)
        assert set(sampler.sample()[0].values()) == {None}
        gpu.fails = {"gpm-metrics": pynvml.NVML_ERROR_UNKNOWN}
        assert sampler.sample()[0]["sm_busy"] is None
        gpu.fails = {}
        assert sampler.sample()[0]["sm_busy"] == 0.25


def test_no_such_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking for a GPU that is not there says which, and gives back what was opened before."""
    with installed(monkeypatch, FakeGpu()), pytest.raises(NvmlMissingError, match="GPU 1: Invalid Argument"):
        GpuSampler([0, 1])


def test_without_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the driver's library telemetry goes on with processes, and GPU readings are n/a for that reason."""
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", _no_library)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    telemetry = Telemetry(os.getpid(), 0.01, gpu_indices=[0])
    until(lambda: len(telemetry.rows) >= 2, "rows")
    telemetry.stop()
    reading = telemetry.utilisation(0, math.inf)
    assert (reading.value, reading.source) == (None, "no NVML: NVML Shared Library Not Found")
    assert telemetry.memory_bytes().value


def _no_library(name: str) -> None:
    raise OSError(f"{name}: cannot open shared object file")


def test_utilisation_names_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean over GPUs is of busy SMs only if every GPU tells; else of NVML's utilisation for all; never mixed."""
    for gpus, value, source in (
        ((FakeGpu(sm_percent=20), FakeGpu(sm_percent=40)), 0.3, "NVML GPM counters"),
        ((FakeGpu(sm_percent=20), FakeGpu(gpm=False, busy_percent=100)), 0.75, "NVML, share of time in which a kernel"),
    ):
        with installed(monkeypatch, *gpus):
            telemetry = Telemetry(os.getpid(), 3600, gpu_indices=[0, 1])
            telemetry.stop()
        reading = telemetry.utilisation(0, math.inf)
        assert reading.value == pytest.approx(value)
        assert reading.source.startswith(source)
        assert telemetry.gpu_power_w(0, math.inf).value == pytest.approx(600)
        assert telemetry.gpu_memory_bytes().value == 1 << 30


def test_failing_telemetry_fails_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error nobody thought of ends the sampling, is kept for the report, and gives NVML back."""
    with installed(monkeypatch, FakeGpu()):
        monkeypatch.setattr(psutil, "pids", lambda: 1 / 0)
        telemetry = Telemetry(os.getpid(), 0.01, gpu_indices=[0])
        telemetry.stop()
    assert telemetry.problem == "telemetry stopped: ZeroDivisionError: division by zero"
    assert telemetry.cpu_percent(0, math.inf).source == telemetry.problem


@pytest.mark.parametrize(
    ("listed", "indices"),
    [(None, [0, 1, 2]), ("2,0", [2, 0]), ("GPU-bbb, 0", [1, 0]), ("", []), ("1,-1,2", [1])],
)
def test_visible_gpus(monkeypatch: pytest.MonkeyPatch, listed: str | None, indices: list[int]) -> None:
    """CUDA's GPU k is found among NVML's by CUDA_VISIBLE_DEVICES: none, indices, UUIDs, an empty list, a -1."""
    gpus = [FakeGpu(uuid=f"GPU-{letter * 4}") for letter in "abc"]
    with installed(monkeypatch, *gpus):
        open_nvml()
        try:
            assert visible_indices(3, {} if listed is None else {"CUDA_VISIBLE_DEVICES": listed}) == indices
            with pytest.raises(ValueError, match="CUDA_VISIBLE_DEVICES=7: 7 is no GPU of this machine's 3"):
                visible_indices(3, {"CUDA_VISIBLE_DEVICES": "7"})
        finally:
            close_nvml()


def test_double_is_strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """The double of the driver refuses calls before nvmlInit, as the real one does: these tests can fail."""
    with installed(monkeypatch, FakeGpu()), pytest.raises(pynvml.NVMLError, match="Uninitialized"):
        pynvml.nvmlDeviceGetCount()


def test_sampler_in_a_forked_child() -> None:
    """A sampler made after a fork sees the child's own tree."""
    context = multiprocessing.get_context("fork")
    reader, writer = context.Pipe(duplex=False)
    child = context.Process(target=lambda: writer.send(ProcessSampler(os.getpid()).sample().num_processes))
    child.start()
    try:
        assert reader.poll(PATIENCE_S)
        assert reader.recv() == 1
    finally:
        child.join()
