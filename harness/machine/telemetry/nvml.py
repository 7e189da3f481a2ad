"""Readings of GPUs through NVML: utilisation, memory and power, with the GPM counters where a GPU has them.

NVML's own utilisation is the share of time in which at least one kernel ran, so one small kernel counts as much as a
full GPU. The GPM counters (Hopper and later) give the share of SMs that were busy between two of our samples. Both are
kept, each under its own name, and every figure states its source.

NVML may be missing, or lack a reading on some GPU (MIG, vGPU, missing rights); that reading is then None. Each `open`
needs a `close`, since the library counts them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import pynvml

BUSY_SOURCE = "NVML, share of time in which a kernel ran"
SM_SOURCE = "NVML GPM counters, share of SMs that were busy"
MEMORY_SOURCE = "NVML, memory in use on the GPU, by whomever"
POWER_SOURCE = "NVML, power of the board"
GPM_METRICS = {"sm_busy": pynvml.NVML_GPM_METRIC_SM_UTIL, "sm_occupancy": pynvml.NVML_GPM_METRIC_SM_OCCUPANCY}


class NvmlMissingError(Exception):
    """NVML cannot be used here; the text says why."""


def open_nvml() -> None:
    """Starts using NVML; pair it with `close_nvml`. Raises NvmlMissingError."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as problem:
        raise NvmlMissingError(f"no NVML: {problem}") from None


def close_nvml() -> None:
    """Stops using NVML."""
    pynvml.nvmlShutdown()


def count_gpus() -> int:
    """Number of GPUs that NVML knows (NVML must be open)."""
    return int(pynvml.nvmlDeviceGetCount())


def visible_indices(num_gpus: int, environment: Mapping[str, str]) -> list[int]:
    """NVML's indices of the GPUs that CUDA calls 0, 1, ... (NVML must be open).

    CUDA numbers only the GPUs that CUDA_VISIBLE_DEVICES names, by index or by UUID (or its beginning). CUDA's indices
    are NVML's only with CUDA_DEVICE_ORDER=PCI_BUS_ID; set it for every process that uses CUDA.

    Raises ValueError for a name that is no GPU.
    """
    listed = environment.get("CUDA_VISIBLE_DEVICES")
    names = [str(index) for index in range(num_gpus)] if listed is None else [n.strip() for n in listed.split(",")]
    uuids = [str(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(index))) for index in range(num_gpus)]
    indices = []
    for name in filter(None, names):
        found = [i for i, uuid in enumerate(uuids) if name == str(i) or (not name.isdigit() and uuid.startswith(name))]
        if name == "-1":  # CUDA ignores -1 and everything after it
            break
        if len(found) != 1:
            raise ValueError(
                f"CUDA_VISIBLE_DEVICES={listed}: {name} is no GPU of this machine's {num_gpus}; correct it"
            )
        indices += found
    return indices


class GpuSampler:
    """Samples GPUs; make, use and close it in one thread.

    Raises NvmlMissingError when there is no NVML, or no such GPU.
    """

    def __init__(self, indices: Sequence[int]) -> None:
        open_nvml()
        self._gpus: list[_Gpu] = []
        try:
            for index in indices:
                self._gpus.append(_Gpu(index))
        except pynvml.NVMLError as problem:
            self.close()
            raise NvmlMissingError(f"GPU {index}: {problem}") from None

    def sample(self) -> list[dict[str, float | None]]:
        """The readings of each GPU by name: fractions from 0 to 1, bytes, watts; None for what it does not give."""
        return [gpu.sample() for gpu in self._gpus]

    def close(self) -> None:
        """Frees the samples and closes NVML."""
        for gpu in self._gpus:
            gpu.close()
        self._gpus = []
        close_nvml()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Gpu:
    def __init__(self, index: int) -> None:
        self._handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        self._gpm = _GpmCounters.of(self._handle)

    def sample(self) -> dict[str, float | None]:
        handle = self._handle
        gpm = self._gpm.sample() if self._gpm else {}
        return {
            "busy": _read(lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100),
            "sm_busy": gpm.get("sm_busy"),
            "sm_occupancy": gpm.get("sm_occupancy"),
            "memory_bytes": _read(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).used),
            "power_w": _read(lambda: pynvml.nvmlDeviceGetPowerUsage(handle) / 1000),
        }

    def close(self) -> None:
        if self._gpm:
            self._gpm.close()


def _read(call: Callable[[], float]) -> float | None:
    try:
        return call()
    except pynvml.NVMLError:
        return None


class _GpmCounters:
    """Two GPM samples of one GPU that take turns: the counters cover the time between the older and the newer one."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._samples: list[Any] = []
        try:
            for _ in range(2):
                self._samples.append(pynvml.nvmlGpmSampleAlloc())
            pynvml.nvmlGpmSampleGet(handle, self._samples[0])
        except pynvml.NVMLError:
            self.close()
            raise

    @classmethod
    def of(cls, handle: Any) -> _GpmCounters | None:
        """The counters of a GPU; None if the GPU, its driver or our rights do not allow them."""
        try:
            return cls(handle) if pynvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice else None
        except pynvml.NVMLError:
            return None

    def sample(self) -> dict[str, float]:
        """The counters since the previous sample, as fractions; leaves out those that cannot be read."""
        older, newer = self._samples
        request = pynvml.c_nvmlGpmMetricsGet_t()
        request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(GPM_METRICS)
        request.sample1, request.sample2 = older, newer
        for metric, number in zip(request.metrics, GPM_METRICS.values(), strict=False):
            metric.metricId = number
        try:
            pynvml.nvmlGpmSampleGet(self._handle, newer)
            self._samples = [newer, older]
            pynvml.nvmlGpmMetricsGet(request)
        except pynvml.NVMLError:
            return {}
        return {
            name: metric.value / 100
            for name, metric in zip(GPM_METRICS, request.metrics, strict=False)
            if metric.nvmlReturn == pynvml.NVML_SUCCESS and math.isfinite(metric.value)
        }

    def close(self) -> None:
        for sample in self._samples:
            pynvml.nvmlGpmSampleFree(sample)
        self._samples = []
