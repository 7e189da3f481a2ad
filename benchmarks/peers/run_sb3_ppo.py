"""Stable-Baselines3's PPO on the shared workload: `python -m benchmarks.peers.run_sb3_ppo NUM_ENVS`.

Its `CnnPolicy` (no recurrence) with its own defaults except for what is set here; each environment has a process.
"""

from __future__ import annotations

import sys

from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import SubprocVecEnv

from benchmarks.peers.doom import DoomBasic


def main() -> None:
    """Trains until it is killed."""
    envs = SubprocVecEnv([DoomBasic] * int(sys.argv[1]))
    PPO("CnnPolicy", envs, n_steps=128, batch_size=512, n_epochs=2, device="cpu").learn(10**9)


if __name__ == "__main__":
    main()
