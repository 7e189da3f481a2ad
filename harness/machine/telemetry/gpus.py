"""The GPUs of this machine, and the parts of their state that could spoil a figure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import pynvml

from rlbench.harness.machine.telemetry.nvml import NvmlMissingError, close_nvml, open_nvml

T = TypeVar("T")
SLOWDOWNS = {
    pynvml.nvmlClocksEventReasonSwPowerCap: "power cap",
    pynvml.nvmlClocksEventReasonHwSlowdown: "hardware slowdown",
    pynvml.nvmlClocksEventReasonSwThermalSlowdown: "heat (driver)",
    pynvml.nvmlClocksEventReasonHwThermalSlowdown: "heat (hardware)",
    pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown: "power brake",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One GPU as NVML describes it; None for values that it does not give."""

    index: int
    """NVML's index."""
    name: str
    memory_bytes: int | None
    memory_used_bytes: int | None
    power_limit_w: float | None
    temperature_c: int | None
    process_ids: tuple[int, ...]
    """Processes that compute on it, by the host's pids; inside a container there may be none."""
    slowdowns: tuple[str, ...]
    """Why its clocks are held back at this moment."""


def read_gpus() -> tuple[tuple[Gpu, ...], str]:
    """The GPUs, and the driver's version or the reason why no GPU can be read."""
    try:
        open_nvml()
    except NvmlMissingError as problem:
        return (), str(problem)
    try:
        gpus = tuple(_read_gpu(index) for index in range(pynvml.nvmlDeviceGetCount()))
        return gpus, f"driver {pynvml.nvmlSystemGetDriverVersion()}"
    except pynvml.NVMLError as problem:
        return (), f"NVML fails: {problem}"
    finally:
        close_nvml()


def _read_gpu(index: int) -> Gpu:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    memory = _or(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle), None)
    reasons = _or(lambda: int(pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)), None)
    if reasons is None:  # drivers before 535 know it by its old name
        reasons = _or(lambda: int(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)), 0)
    return Gpu(
        index=index,
        name=_or(lambda: str(pynvml.nvmlDeviceGetName(handle)), "unknown GPU"),
        memory_bytes=memory and int(memory.total),
        memory_used_bytes=memory and int(memory.used),
        power_limit_w=_or(lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000, None),
        temperature_c=_or(lambda: int(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)), None),
        process_ids=_or(lambda: tuple(p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)), ()),
        slowdowns=tuple(reason for bit, reason in SLOWDOWNS.items() if reasons & bit),
    )


def _or(read: Callable[[], T], otherwise: T) -> T:
    try:
        return read()
    except (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError):
        return otherwise
