"""Data-parallel: each rank plays and averages with the others, and leaves its own count; `forever` as a last word."""

import os
import sys
import time
from pathlib import Path

import gymnasium
import torch
from torch import distributed

import rlbench_client

distributed.init_process_group("gloo")
rank, forever = distributed.get_rank(), sys.argv[-1] == "forever"
env = rlbench_client.count(gymnasium.make("CartPole-v1"))
env.reset(seed=rank)
num_steps = iterations = 0
while forever or iterations < 30:
    for _ in range(20 + rank):
        *_, terminated, truncated, _ = env.step(env.action_space.sample())
        num_steps += 1
        if terminated or truncated:
            env.reset()
    with rlbench_client.span("communicate"):
        distributed.all_reduce(torch.zeros(1000))
    time.sleep(0.05)  # learning
    rlbench_client.learned(20 + rank, lag=0)
    rlbench_client.discarded(0)
    rlbench_client.iteration()
    iterations += 1
rlbench_client.in_flight(0)
Path(f"own-count-{rank}").write_text(f"{num_steps} {os.environ['WORLD_SIZE']}")
distributed.destroy_process_group()
