"""Devices: the values that `--device` and `--gpus` may have on this machine, and the device of each rank."""

from __future__ import annotations

import os
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Literal

from rlbench.harness.devices.emulated_gpu import EmulatedGpu, gpu_path
from rlbench.results.reading.names import known_names

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from rlbench.harness.contract.device import Device, Place
    from rlbench.harness.contract.scenario import Scenario
    from rlbench.harness.contract.settings import Message, Work

DeviceKind = Literal["cuda", "cpu", "emulated", "predicted"]
DEVICE_KINDS: tuple[DeviceKind, ...] = ("cuda", "cpu", "emulated")
"""The kinds for real runs; `predicted` is for predictions."""


def visible_gpus() -> list[int]:
    """NVML's indices of the NVIDIA GPUs that CUDA calls 0, 1, ...; none without a driver."""
    from rlbench.harness.machine.telemetry import nvml

    try:
        nvml.open_nvml()
    except nvml.NvmlMissingError:
        return []
    try:
        return nvml.visible_indices(nvml.count_gpus(), os.environ)
    finally:
        nvml.close_nvml()


def gpu_indices(kind: DeviceKind, num_ranks: int) -> list[int]:
    """NVML's indices of the GPUs that a run's ranks use; empty for all kinds but `cuda`."""
    visible = visible_gpus() if kind == "cuda" else []
    return sorted({visible[rank % len(visible)] for rank in range(num_ranks)}) if visible else []


def choose_device(asked: str | None) -> DeviceKind:
    """The kind of device to use: `asked`, else CUDA if there is a GPU, else emulated. Raises ValueError if unknown."""
    for kind in DEVICE_KINDS:
        if asked == kind:
            return kind
    if asked is not None:
        raise ValueError(f"--device {asked}: unknown; {known_names(asked, DEVICE_KINDS)}")
    return "cuda" if visible_gpus() else "emulated"


def check_gpus(kind: DeviceKind, gpus: int, *, oversubscribe: bool) -> None:
    """Raises ValueError if `kind` is `cuda` and there is no GPU, or without `oversubscribe` fewer than `gpus`."""
    if kind != "cuda":
        return
    present = len(visible_gpus())
    if present == 0:
        raise ValueError("--device cuda: this machine has no NVIDIA GPU; use --device emulated, or --device cpu")
    if gpus > present and not oversubscribe:
        plural = "GPU" if present == 1 else "GPUs"
        raise ValueError(
            f"--gpus {gpus}: this machine has {present} {plural}; use --device emulated, or --oversubscribe"
        )


class CpuDevice:
    """The rank's share of the CPU; work is done when the call returns."""

    torch_name = "cpu"

    def __init__(self, num_ranks: int) -> None:
        """`num_ranks`: number of ranks that share this machine."""
        self.num_threads = max(1, len(os.sched_getaffinity(0)) // num_ranks)

    def busy(self, work: Work, num_items: int) -> AbstractContextManager[None]:  # noqa: ARG002  the CPU needs neither
        """Does nothing: the real work takes its own time."""
        return nullcontext()

    def communicate(self, message: Message, peer: int = 0) -> None:
        """Does nothing: the real message is the time."""


class CudaDevice:
    """One GPU; a span of work ends when the GPU has finished it."""

    num_threads = 1

    def __init__(self, index: int) -> None:
        self.index = index
        self.torch_name = f"cuda:{index}"

    @contextmanager
    def busy(self, work: Work, num_items: int) -> Iterator[None]:  # noqa: ARG002  real work takes its own time
        """Waits until the GPU's current stream has finished the work inside."""
        import torch

        yield
        done = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        done.record(torch.cuda.current_stream(self.index))
        done.synchronize()

    def communicate(self, message: Message, peer: int = 0) -> None:
        """Does nothing: the real message is the time."""


def make_device(kind: DeviceKind, place: Place, scenario: Scenario, folder: Path) -> Device:
    """Makes the device of a rank. The emulated GPUs of a machine have their files in the run's folder."""
    if kind == "emulated":
        first = place.rank - place.local_rank
        here = range(first, first + num_ranks_here(place))
        return EmulatedGpu(gpu_path(folder, place.local_rank), scenario.gpu_costs, place.num_ranks, here)
    if kind == "cuda":
        return CudaDevice(place.local_rank % max(1, len(visible_gpus())))
    return CpuDevice(num_ranks_here(place))


def num_ranks_here(place: Place) -> int:
    """Number of the run's ranks on this machine, from torchrun's LOCAL_WORLD_SIZE; all of them if it is not set."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", place.num_ranks))


def sibling(device: Device, rank: int) -> Device:
    """The device of another rank on this machine, for instance the one on which environments render."""
    if isinstance(device, EmulatedGpu):
        return device.of_rank(rank)
    if isinstance(device, CudaDevice):
        return CudaDevice(rank % max(1, len(visible_gpus())))
    return device
