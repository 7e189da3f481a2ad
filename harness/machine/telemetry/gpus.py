"""Which GPUs this machine has, and what of their state could spoil a figure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import pynvml

from harness.machine.telemetry.nvml import NvmlMissingError, close_nvml, open_nvml

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
    """One GPU as NVML knows it; None for what it does not tell."""

    index: int
    """NVML's index."""
    name: str
    memory_bytes: int | None
    memory_used_bytes: int | None
    power_limit_w: float | None
    temperature_c: int | None
    process_ids: tuple[int, ...]
    """Processes that compute on it; as the host numbers them, so none may be seen from inside a container."""
    slowdowns: tuple[str, ...]
    """Why its clocks are held back at this moment."""


def read_gpus() -> tuple[tuple[Gpu, ...], str]:
    """The GPUs, and the driver's version or why there is none."""
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
