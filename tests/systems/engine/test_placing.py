"""On which cores ranks of emulated GPUs stay."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from harness.contract import Device, Place
from harness.devices import CpuDevice
from harness.emulated_gpu import EmulatedGpu, gpu_path
from harness.settings import GpuCosts
from systems.engine.placing import stay_on_a_core

CORES = sorted(os.sched_getaffinity(0))
MANY = 2 * len(CORES)


def cores_of(place: Place, device: Device, *, is_concurrent: bool) -> set[int]:
    """The cores that a process has once it is placed; asked in a process of its own."""
    context = multiprocessing.get_context("fork")
    said = context.SimpleQueue()

    def ask() -> None:
        stay_on_a_core(place, device, is_concurrent=is_concurrent)
        said.put(os.sched_getaffinity(0))

    process = context.Process(target=ask)
    process.start()
    process.join(30)
    assert process.exitcode == 0
    found: set[int] = said.get()
    return found


@pytest.fixture
def gpu(tmp_path: Path) -> EmulatedGpu:
    """An emulated GPU."""
    return EmulatedGpu(gpu_path(tmp_path, 0), GpuCosts(render_s=0.001), 1)


def test_many_ranks_stay_on_a_core_each(gpu: EmulatedGpu) -> None:
    """In turn, so that each core has as many."""
    for rank in range(MANY):
        place = Place(rank=rank, num_ranks=MANY, local_rank=rank)
        assert cores_of(place, gpu, is_concurrent=False) == {CORES[rank % len(CORES)]}


def test_others_are_left_alone(gpu: EmulatedGpu) -> None:
    """Fewer ranks, ranks that learn while they collect, and real devices may use all cores."""
    many, few = (Place(rank=1, num_ranks=num, local_rank=1) for num in (MANY, MANY - 1))
    assert cores_of(few, gpu, is_concurrent=False) == set(CORES)
    assert cores_of(many, gpu, is_concurrent=True) == set(CORES)
    assert cores_of(many, CpuDevice(1), is_concurrent=False) == set(CORES)
