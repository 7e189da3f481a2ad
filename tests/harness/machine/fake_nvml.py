"""A double of the NVML driver library, below pynvml: pynvml's own code runs and calls these functions by ctypes.

It enforces what the real one does: nothing works before nvmlInit or after nvmlShutdown, samples are allocated before
use and freed once, GPM counters come from two samples of the same GPU, the older first.
"""

# ruff: noqa: N802, N815  the functions have the C library's names

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pynvml
import pytest

SUCCESS = int(pynvml.NVML_SUCCESS)
SAMPLE_BASE = 0x5000


@dataclass
class FakeGpu:
    """The state of one GPU, as the library tells it."""

    name: str = "NVIDIA H100"
    uuid: str = "GPU-0000"
    busy_percent: int = 50
    memory_bytes: int = 80 << 30
    used_bytes: int = 1 << 30
    power_mw: int = 300_000
    gpm: bool = True
    sm_percent: float = 25.0
    reasons: int = 0
    pids: tuple[int, ...] = ()
    fails: dict[str, int] = field(default_factory=dict)
    """Return codes of functions that fail on this GPU."""


class FakeNvml:
    """What pynvml takes for the loaded libnvidia-ml.so.1: functions as attributes."""

    def __init__(self, gpus: list[FakeGpu]) -> None:
        self.gpus = gpus
        self.num_users = 0
        self.clocks = [0] * len(gpus)
        self.busy = [0.0] * len(gpus)
        self.samples: dict[int, tuple[int, int, float] | None] = {}
        """By address: the GPU's number, when it was taken, and the SM percentages summed up to then."""
        self.num_allocated = 0

    def __getattr__(self, name: str) -> Callable[..., int]:
        if not hasattr(type(self), f"do_{name}"):
            raise AttributeError(name)

        def function(*arguments: Any) -> int:
            if self.num_users == 0 and name not in {"nvmlInitWithFlags", "nvmlErrorString"}:
                return int(pynvml.NVML_ERROR_UNINITIALIZED)
            return int(getattr(self, f"do_{name}")(*arguments))

        return function

    def gpu(self, handle: Any, function: str) -> tuple[FakeGpu, int]:
        """The GPU of a handle, and the code that a function gives on it."""
        gpu = self.gpus[_address(handle) - 1]
        return gpu, gpu.fails.get(function, SUCCESS)

    def do_nvmlInitWithFlags(self, _flags: Any) -> int:
        self.num_users += 1
        return SUCCESS

    def do_nvmlShutdown(self) -> int:
        self.num_users -= 1
        return SUCCESS

    def do_nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = len(self.gpus)
        return SUCCESS

    def do_nvmlSystemGetDriverVersion(self, text: Any, _size: Any) -> int:
        text.value = b"550.54"
        return SUCCESS

    def do_nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:
        if index.value >= len(self.gpus):
            return int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        _point(handle, index.value + 1)
        return SUCCESS

    def do_nvmlDeviceGetName(self, handle: Any, text: Any, _size: Any) -> int:
        gpu, code = self.gpu(handle, "name")
        text.value = gpu.name.encode()
        return code

    def do_nvmlDeviceGetUUID(self, handle: Any, text: Any, _size: Any) -> int:
        gpu, code = self.gpu(handle, "uuid")
        text.value = gpu.uuid.encode()
        return code

    def do_nvmlDeviceGetUtilizationRates(self, handle: Any, rates: Any) -> int:
        gpu, code = self.gpu(handle, "utilisation")
        rates._obj.gpu = gpu.busy_percent
        return code

    def do_nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> int:
        gpu, code = self.gpu(handle, "memory")
        memory._obj.total, memory._obj.used = gpu.memory_bytes, gpu.used_bytes
        return code

    def do_nvmlDeviceGetPowerUsage(self, handle: Any, power: Any) -> int:
        gpu, code = self.gpu(handle, "power")
        power._obj.value = gpu.power_mw
        return code

    def do_nvmlDeviceGetEnforcedPowerLimit(self, _handle: Any, limit: Any) -> int:
        limit._obj.value = 700_000
        return SUCCESS

    def do_nvmlDeviceGetTemperature(self, _handle: Any, _sensor: Any, _celsius: Any) -> int:
        return int(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def do_nvmlDeviceGetCurrentClocksEventReasons(self, handle: Any, reasons: Any) -> int:
        gpu, code = self.gpu(handle, "reasons")
        reasons._obj.value = gpu.reasons
        return code

    do_nvmlDeviceGetCurrentClocksThrottleReasons = do_nvmlDeviceGetCurrentClocksEventReasons

    def do_nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any, count: Any, processes: Any) -> int:
        gpu, code = self.gpu(handle, "processes")
        count._obj.value = len(gpu.pids)
        if processes is None:
            return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE) if gpu.pids else code
        for process, pid in zip(processes, gpu.pids, strict=False):
            process.pid = pid
        return code

    def do_nvmlGpmQueryDeviceSupport(self, handle: Any, support: Any) -> int:
        gpu, code = self.gpu(handle, "gpm-support")
        assert support._obj.version == pynvml.NVML_GPM_SUPPORT_VERSION
        support._obj.isSupportedDevice = gpu.gpm
        return code

    def do_nvmlGpmSampleAlloc(self, sample: Any) -> int:
        self.num_allocated += 1
        self.samples[SAMPLE_BASE + self.num_allocated] = None
        _point(sample, SAMPLE_BASE + self.num_allocated)
        return SUCCESS

    def do_nvmlGpmSampleFree(self, sample: Any) -> int:
        del self.samples[_address(sample)]  # a second time is a KeyError, where the real one would crash
        return SUCCESS

    def do_nvmlGpmSampleGet(self, handle: Any, sample: Any) -> int:
        gpu, code = self.gpu(handle, "gpm-sample")
        assert gpu.gpm, "sampled on a GPU that has no GPM counters"
        assert _address(sample) in self.samples
        if code == SUCCESS:
            number = _address(handle) - 1
            self.clocks[number] += 1
            self.busy[number] += gpu.sm_percent
            self.samples[_address(sample)] = (number, self.clocks[number], self.busy[number])
        return code

    def do_nvmlGpmMetricsGet(self, request: Any) -> int:
        got = request._obj
        assert got.version == pynvml.NVML_GPM_METRICS_GET_VERSION
        older, newer = self.samples[_address(got.sample1)], self.samples[_address(got.sample2)]
        assert older
        assert newer
        assert older[0] == newer[0], "samples of two GPUs"
        assert older[1] < newer[1], "the older sample comes first"
        sm_percent = (newer[2] - older[2]) / (newer[1] - older[1])
        for metric in got.metrics[: got.numMetrics]:
            known = metric.metricId == pynvml.NVML_GPM_METRIC_SM_UTIL
            metric.nvmlReturn = SUCCESS if known else pynvml.NVML_ERROR_NOT_SUPPORTED
            metric.value = sm_percent if known else 99.0
        return self.gpus[older[0]].fails.get("gpm-metrics", SUCCESS)


def _address(pointer: Any) -> int:
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0


def _point(reference: Any, address: int) -> None:
    """Sets the pointer that a `byref(pointer)` argument refers to."""
    ctypes.cast(reference, ctypes.POINTER(ctypes.c_void_p))[0] = address


@contextmanager
def installed(monkeypatch: pytest.MonkeyPatch, *gpus: FakeGpu) -> Iterator[FakeNvml]:
    """Puts the double under pynvml; afterwards every user must be gone and every sample freed."""
    nvml = FakeNvml(list(gpus))
    with monkeypatch.context() as patch:
        patch.setattr(pynvml, "nvmlLib", nvml)
        patch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        yield nvml
    assert nvml.num_users == 0
    assert nvml.samples == {}
