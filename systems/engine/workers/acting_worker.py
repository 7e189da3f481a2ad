"""A policy in an environment worker: IMPALA's actors (Espeholt et al. 2018, section 3; Sample Factory section 2).

Runs in the worker's process, on one thread of the CPU. For each command the worker takes the newest weights, then
steps one environment T times by itself, and writes to the table what the rank's actor would write. Nothing blocks but
the environment. It ends a trajectory early when the rank has set `stop`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from rlbench.harness.devices.emulated_gpu import EmulatedCore, EmulatedGpu
from rlbench.harness.devices.kinds import CpuDevice
from rlbench.systems.engine.workers.acting_weights import read_newest
from rlbench.systems.engine.workers.inference import Actor
from rlbench.systems.policies.policy import policy_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt

    from rlbench.harness.contract.device import Device, Seat
    from rlbench.harness.contract.scenario import Scenario
    from rlbench.systems.engine.workers.tables import SharedTable


@dataclass(frozen=True, kw_only=True, slots=True)
class Acting:
    """What a worker needs to act."""

    scenario: Scenario
    weights: SharedTable
    seeds: dict[int, int]
    """By environment: the seed of the random stream of its actions."""

    def open(self, table: SharedTable, seats: Mapping[int, Seat], step: Callable[[int, int, int], None]) -> Player:
        """Makes the policy, in the worker's process; `seats` by environment."""
        return Player(self, table, seats, step)


def device_of_actor(seat: Seat) -> Device:
    """What an actor infers on: the CPU, or a core of an emulated GPU's machine."""
    if not isinstance(seat.device, EmulatedGpu):
        return CpuDevice(1)
    return EmulatedCore(seat.device.of_rank(seat.place.local_rank), seat.num_envs)


class Player:
    """Plays trajectories in one worker."""

    def __init__(
        self, acting: Acting, table: SharedTable, seats: Mapping[int, Seat], step: Callable[[int, int, int], None]
    ) -> None:
        torch.set_num_threads(1)  # the workers are the parallelism
        self._policy = policy_of(acting.scenario, seed=0)
        self._actors = {
            env: Actor(self._policy, table, device_of_actor(seat), torch.Generator().manual_seed(acting.seeds[env]))
            for env, seat in seats.items()
        }
        self._weights, self._stop = acting.weights, acting.weights["stop"]
        self._truncated = table["truncated"]
        self._step = step
        self._turn, self._version = -1, -1

    def play(self, env: int, slots: npt.NDArray[np.int32]) -> int:
        """Steps an environment through `slots` [T + 1]; returns how many steps it took, T unless it was stopped."""
        self._take_newest_weights()
        actor = self._actors[env]
        actor.version = self._version
        places = slots.astype(np.int64)
        for played in range(len(places) - 1):
            if self._stop[0]:
                return played
            here, there = places[played : played + 1], places[played + 1 : played + 2]
            actor.act(here, there)
            self._step(env, int(here[0]), int(there[0]))
            if self._truncated[here[0]]:
                actor.value_final(np.array([env]), here, there)
        return len(places) - 1

    def _take_newest_weights(self) -> None:
        turn = int(self._weights["weights_turn"][0])  # what is read may be newer: then it is read once more than needed
        if turn != self._turn:
            self._turn, self._version = turn, read_newest(self._weights, self._load)

    @torch.no_grad()
    def _load(self, flat: npt.NDArray[np.float32]) -> None:
        start = 0
        for parameter in self._policy.parameters():
            piece = flat[start : start + parameter.numel()]
            parameter.copy_(torch.from_numpy(piece).view_as(parameter))
            start += parameter.numel()
