"""EnvPool's Breakout with random actions, counted and by itself: `python -m benchmarks.peers.run_envpool_counted`.

Runs in the peer's virtual environment, which has EnvPool and its games, and needs no torch. Both pools are made once
and take turns of seconds, in EnvPool's asynchronous mode: whoever has answered is sent another action. Counted, they
are received and sent by `CountedPool`; by itself, every answer counts as an env step, also one that began an episode.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.in_turn import Side, compare
from rlbench.harness.contract.device import Place, Seat
from rlbench.harness.contract.envs import env_seeds, make_counted_pool
from rlbench.harness.devices.kinds import CpuDevice
from rlbench.harness.metering.meter_file import MeterFile, meter_path
from rlbench.scenarios.gym.families import GymFamily
from rlbench.scenarios.gym.pools import make_pool

TASK = "Breakout-v5"
NUM_ACTIONS = 4
ENVS, OF_RECV = 32, 8
ARGUMENTS = {"num_threads": 2}


def counted(folder: Path, seconds: float) -> Side:
    """The pool as a worker of rlbench has it."""
    scenario = replace(
        GymFamily().make(TASK, "homogeneous"),
        vector="envpool",
        num_envs=ENVS,
        batch=ENVS,
        recv=OF_RECV,
        kwargs={name: str(value) for name, value in ARGUMENTS.items()},
    )
    place, device = Place(rank=0, num_ranks=1, local_rank=0), CpuDevice(1)
    path = meter_path(folder, 0)
    file = MeterFile.create(path, num_envs=ENVS)
    seats = [
        Seat(place=place, index=index, num_envs=ENVS, seed=seed, device=device)
        for index, seed in enumerate(env_seeds(0, 0, ENVS))
    ]
    pool = make_counted_pool(scenario, seats, folder, path, OF_RECV)
    pool.reset()

    def turn(actions: Any) -> None:
        ids, _ = pool.recv()
        pool.send(actions, ids)

    return _rates(turn, lambda: file.total("env_steps"), seconds)


def bare(seconds: float) -> Side:
    """The pool by itself."""
    pool: Any = make_pool(TASK, ARGUMENTS, env_seeds(0, 0, ENVS), OF_RECV)
    pool.async_reset()
    received = np.zeros(1, int)

    def turn(actions: Any) -> None:
        info = pool.recv()[4]
        pool.send(actions, info["env_id"])
        received[0] += OF_RECV

    return _rates(turn, lambda: int(received[0]), seconds)


def _rates(turn: Callable[[Any], None], count: Callable[[], int], seconds: float) -> Side:
    actions = np.random.default_rng(0).integers(0, NUM_ACTIONS, (1000, OF_RECV)).astype(np.int32)
    number = 0

    def measure() -> float:
        nonlocal number
        before, began = count(), time.perf_counter()
        while (took := time.perf_counter() - began) < seconds:
            turn(actions[number % len(actions)])
            number += 1
        return (count() - before) / took

    return measure


def main() -> None:
    """Prints both, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slice", type=float, default=1.0, help="seconds of each turn")
    parser.add_argument("--slices", type=int, default=40, help="turns of each side")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rlbench-bench-") as made:
        sides = counted(Path(made), asked.slice), bare(asked.slice)
        for warm in sides:
            warm()
        print(*compare(*sides, asked.slices // 2).lines("counted", "EnvPool by itself"), sep="\n")


if __name__ == "__main__":
    main()
