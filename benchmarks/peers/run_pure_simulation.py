"""The shared workload without any learning: `python -m benchmarks.peers.run_pure_simulation NUM_ENVS`.

A process for each core steps its share of the environments, one after the other, with random actions.
"""

from __future__ import annotations

import multiprocessing
import os
import sys

import numpy as np

from benchmarks.peers.doom import BUTTONS_OF_ACTION, DoomBasic


def simulate(worker: int, num_envs: int) -> None:
    """Steps until it is killed."""
    actions = np.random.default_rng(worker).integers(len(BUTTONS_OF_ACTION), size=10_000).tolist()
    envs = [DoomBasic() for _ in range(num_envs)]
    for i, env in enumerate(envs):
        env.reset(seed=worker * num_envs + i)
    while True:
        for action in actions:
            for env in envs:
                _, _, ended, _, _ = env.step(action)
                if ended:
                    env.reset()


def main() -> None:
    """Starts the processes and waits until it is killed."""
    num_cores = len(os.sched_getaffinity(0))
    share = max(1, int(sys.argv[1]) // num_cores)
    workers = [multiprocessing.Process(target=simulate, args=(worker, share)) for worker in range(num_cores)]
    for process in workers:
        process.start()
    for process in workers:
        process.join()


if __name__ == "__main__":
    main()
