"""On which cores ranks of emulated GPUs stay, and which ranks share a machine."""

from __future__ import annotations

import multiprocessing
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from rlbench.harness.contract.device import Device, Place
from rlbench.harness.contract.settings import GpuCosts
from rlbench.harness.devices.emulated_gpu import EmulatedGpu, gpu_path
from rlbench.harness.devices.kinds import CpuDevice
from rlbench.systems.engine.rank.placing import machines_of, stay_on_a_core, worker_cores

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


@dataclass(frozen=True, slots=True)
class Ranks:
    """A group whose ranks have these local ranks."""

    local_ranks: list[int]

    def gather(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Of all of them, [R, 1]."""
        assert values.tolist() == [self.local_ranks[0]]
        return np.array(self.local_ranks, np.float64)[:, None]


@pytest.mark.parametrize(
    ("local_ranks", "machines"),
    [
        ([0], [range(1)]),
        ([0, 1, 2], [range(3)]),
        ([0, 1, 0, 1], [range(2), range(2, 4)]),
        ([0, 1, 2, 0], [range(3), range(3, 4)]),
        ([0, 0, 0], [range(1), range(1, 2), range(2, 3)]),
    ],
)
def test_which_ranks_share_a_machine(local_ranks: list[int], machines: list[range]) -> None:
    """As their local ranks say."""
    place = Place(rank=0, num_ranks=len(local_ranks), local_rank=0)
    assert machines_of(Ranks(local_ranks), place) == tuple(machines)  # type: ignore[arg-type]  # a part of a group


@pytest.mark.parametrize("local_ranks", [[0, 0, 1, 1], [0, 2, 1], [0, 1, 1]])
def test_ranks_that_are_dealt_to_machines_in_turn(local_ranks: list[int]) -> None:
    """Who is where could only be guessed: it is an error."""
    place = Place(rank=0, num_ranks=len(local_ranks), local_rank=0)
    with pytest.raises(ValueError, match="must count up on each machine"):
        machines_of(Ranks(local_ranks), place)  # type: ignore[arg-type]  # a part of a group


@pytest.mark.parametrize(("num_envs", "share"), [(8, 1.0), (4, 0.5)])
def test_workers_have_the_cores_of_their_ranks(num_envs: int, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """One rank's environments have its part of the machine, those of both ranks all of it."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    place = Place(rank=0, num_ranks=2, local_rank=0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)))
    costs = GpuCosts()
    assert worker_cores(place, CpuDevice(2), costs, num_envs, 4) == 6 * share
