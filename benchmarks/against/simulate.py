"""A scenario of ours without any learning: `python -m benchmarks.against.simulate SCENARIO NUM_ENVS`.

The counterpart of `benchmarks.peers.run_pure_simulation`: a process for each core steps its share of the environments,
one after the other, with random actions, and counts env steps in the same kind of file.
"""

from __future__ import annotations

import multiprocessing
import os
import sys

from benchmarks.peers.counter import StepCounter
from rlbench.harness.contract.device import Place, Seat
from rlbench.harness.devices.kinds import CpuDevice
from rlbench.harness.plan.overrides import split_scenario
from rlbench.harness.plan.registry import load_scenario


def simulate(choice: str, worker: int, num_envs: int) -> None:
    """Steps until it is killed."""
    name, settings = split_scenario(choice, "scenario")
    scenario = load_scenario(name, "homogeneous", settings)
    place, device, counter = Place(rank=worker, num_ranks=1, local_rank=worker), CpuDevice(1), StepCounter()
    seats = [
        Seat(place=place, index=i, num_envs=num_envs, seed=worker * num_envs + i, device=device)
        for i in range(num_envs)
    ]
    envs = [scenario.make_env(seat) for seat in seats]
    for env in envs:
        env.reset()
    space = scenario.action_space
    space.seed(worker)
    actions = [space.sample() for _ in range(10_000)]
    while True:
        for action in actions:
            for env in envs:
                _, _, terminated, truncated, _ = env.step(action)
                counter.add()
                if terminated or truncated:
                    env.reset()


def main() -> None:
    """Starts the processes and waits until it is killed."""
    num_cores = len(os.sched_getaffinity(0))
    share = max(1, int(sys.argv[2]) // num_cores)
    workers = [multiprocessing.Process(target=simulate, args=(sys.argv[1], i, share)) for i in range(num_cores)]
    for process in workers:
        process.start()
    for process in workers:
        process.join()


if __name__ == "__main__":
    main()
