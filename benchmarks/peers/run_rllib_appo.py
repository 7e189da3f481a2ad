"""RLlib 2.60.0 (APPO) on the shared workload: `python -m benchmarks.peers.run_rllib_appo NUM_ENVS`.

Two processes of environments, T 32, batches of 2,048, and the network of Sample Factory's paper with an LSTM of 512;
everything else is RLlib's default.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import gymnasium
import numpy as np
import ray
from numpy.typing import NDArray
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.tune.registry import register_env

from benchmarks.peers.doom import HEIGHT, WIDTH, DoomBasic

NAME = "rlbench_doom_basic"
NUM_RUNNERS = 2


class ChannelsLast(gymnasium.ObservationWrapper[NDArray[np.float32], int, NDArray[np.uint8]]):
    """Shows float32 [72, 128, 3] in 0..1, as RLlib's convolutions want it."""

    def __init__(self, env: DoomBasic) -> None:
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Box(0, 1, (HEIGHT, WIDTH, 3), np.float32)

    def observation(self, observation: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Converts one image."""
        return np.multiply(observation.transpose(1, 2, 0), np.float32(1 / 255), dtype=np.float32)


def make_env(_: Any) -> ChannelsLast:
    """Makes an environment, in the process that steps it."""
    return ChannelsLast(DoomBasic())


def main() -> None:
    """Trains until it is killed."""
    variables = {"PYTHONPATH": os.environ["PYTHONPATH"]}
    ray.init(num_cpus=4, include_dashboard=False, runtime_env={"env_vars": variables})
    register_env(NAME, make_env)
    model = DefaultModelConfig(
        conv_filters=[[32, 8, 4], [64, 4, 2], [128, 3, 2]], use_lstm=True, lstm_cell_size=512, max_seq_len=32
    )
    config = (
        APPOConfig()
        .environment(NAME)
        .env_runners(
            num_env_runners=NUM_RUNNERS,
            num_envs_per_env_runner=int(sys.argv[1]) // NUM_RUNNERS,
            rollout_fragment_length=32,
        )
        .learners(num_learners=0)
        .training(train_batch_size_per_learner=2048)
        .rl_module(model_config=model)
    )
    algorithm = config.build_algo()
    while True:
        algorithm.train()


if __name__ == "__main__":
    main()
