"""Sample Factory 2.1.1 (APPO) on the shared workload: `python -m benchmarks.peers.run_sample_factory NUM_ENVS`.

It has its own defaults except for what is set here. V-trace stays off: with it this version's learner dies on its first
summary, and its other processes wait for ever.
"""

from __future__ import annotations

import sys
from typing import Any

from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import run_rl

from benchmarks.peers.doom import FRAMESKIP, DoomBasic

NAME = "rlbench_doom_basic"
NUM_WORKERS = 2
SETTINGS: dict[str, str | int | bool] = {
    "env": NAME,
    "experiment": "peer",
    "train_dir": "sample-factory",  # in the current folder, which is a temporary one
    "restart_behavior": "overwrite",
    "algo": "APPO",
    "device": "cpu",
    "num_workers": NUM_WORKERS,
    "rollout": 32,
    "recurrence": 32,
    "batch_size": 2048,
    "num_epochs": 1,
    "encoder_conv_architecture": "convnet_simple",  # figure A.1 of the paper
    "use_rnn": True,
    "rnn_type": "lstm",
    "rnn_size": 512,
    "normalize_input": False,
    "env_frameskip": FRAMESKIP,
    "decorrelate_experience_max_seconds": 0,
    "train_for_env_steps": 10**9,
}


def make_env(_name: str, _cfg: Any = None, _env_config: Any = None, render_mode: str | None = None) -> DoomBasic:
    """Makes an environment; Sample Factory passes all four arguments by position, or the last by name."""
    return DoomBasic(render_mode)


def main() -> None:
    """Trains until it is killed."""
    register_env(NAME, make_env)
    settings = {**SETTINGS, "num_envs_per_worker": int(sys.argv[1]) // NUM_WORKERS}
    arguments = [f"--{name}={value}" for name, value in settings.items()]
    parser, _ = parse_sf_args(arguments)
    run_rl(parse_full_cfg(parser, arguments))


if __name__ == "__main__":
    main()
