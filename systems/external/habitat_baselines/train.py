"""Trains with VER or DD-PPO of habitat-baselines, in its own environment: `python train.py SETTINGS` (as JSON).

Each environment has a process that steps it. With DD-PPO this process chooses the actions of all of them at once; with
VER it is one of the inference workers, which choose actions for whichever environments have answered. When the rollout
is full, or VER's preemption has ended it early, this process learns; then all that choose actions have the new weights.
The worker processes import this file too, so that the classes below are registered there.

Letters: C channels, H x W pixels.
"""

import json
import math
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import gym
import habitat
import numpy as np
import torch
from habitat.config.default_structured_configs import DatasetConfig, HabitatConfig, TaskConfig
from habitat_baselines.common.baseline_registry import baseline_registry
from habitat_baselines.config.default_structured_configs import HabitatBaselinesRLConfig
from habitat_baselines.rl.ddppo import ddp_utils
from habitat_baselines.rl.ppo import ppo_trainer  # noqa: F401  registers DD-PPO's trainer
from habitat_baselines.rl.ppo.ppo import PPO
from habitat_baselines.rl.ver import ver_trainer  # noqa: F401  registers VER's
from habitat_baselines.rl.ver.ver_rollout_storage import VERRolloutStorage
from omegaconf import DictConfig, OmegaConf

import rlbench_client

OURS = "rlbench"
AGENT = "main_agent"
FOR_EVER = 10**12
LOOK_S = 0.5
MAX_DEPTH_M = 10.0
"""Larger depths are cut to this one, which is scaled to 1, as for rlbench's own networks."""

torch.backends.cuda.matmul.allow_tf32 = False  # VER's module allows it; rlbench's own systems do not


@habitat.registry.register_env(name=OURS)
class Env(gym.Env):  # type: ignore[misc]  # ships no types, nor does habitat
    """An environment of the run in habitat-baselines' form: images are [H, W, C], `goal` is called `pointgoal`.

    Under that name its network passes it through a fully connected layer, as rlbench's does.
    """

    def __init__(self, config: Any, dataset: Any) -> None:  # noqa: ARG002  habitat's arguments
        self._env = rlbench_client.make_env()
        self.observation_space = gym.spaces.Dict(
            {_THEIRS.get(name, name): _space_of(name, box) for name, box in self._env.observation_space.spaces.items()}
        )
        self.action_space = gym.spaces.Discrete(int(self._env.action_space.n))

    def seed(self, seed: Any = None) -> None:
        """Does nothing: the run's environments have seeds of their own."""

    def reset(self) -> dict[str, np.ndarray]:
        """Begins an episode."""
        observation, _ = self._env.reset()
        return _shown(observation)

    def step(self, action: int) -> tuple[dict[str, np.ndarray], float, bool, dict[str, Any]]:
        """Applies one action; `info` is empty, since its contents are counted already."""
        observation, reward, terminated, truncated, _ = self._env.step(action)
        return _shown(observation), float(reward), bool(terminated or truncated), {}

    def close(self) -> None:
        """Closes the run's environment inside."""
        self._env.close()


_THEIRS = {"goal": "pointgoal"}


def _space_of(name: str, box: Any) -> gym.spaces.Box:
    if name == "pixels":
        return gym.spaces.Box(0, 255, (*box.shape[1:], box.shape[0]), np.uint8)
    if name == "depth":
        return gym.spaces.Box(0.0, 1.0, (*box.shape[1:], box.shape[0]), np.float32)
    return gym.spaces.Box(-math.inf, math.inf, box.shape, np.float32)


def _shown(observation: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    shown = {}
    for name, value in observation.items():
        if name == "pixels":
            shown[name] = np.ascontiguousarray(np.moveaxis(value, 0, -1))
        elif name == "depth":
            scaled = np.clip(value, 0, MAX_DEPTH_M) / np.float32(MAX_DEPTH_M)
            shown[name] = np.ascontiguousarray(np.moveaxis(scaled, 0, -1))
        else:
            shown[_THEIRS.get(name, name)] = value
    return shown


@habitat.registry.register_dataset(name=OURS)
class NoScenes(habitat.Dataset):  # type: ignore[misc]
    """An empty dataset: the run's environments have scenes of their own."""

    def __init__(self, config: Any = None) -> None:
        self.episodes: list[Any] = []
        self.config = config


@baseline_registry.register_updater
class CountedPPO(PPO):  # type: ignore[misc]
    """PPO that reports each learning phase when it is over."""

    _learned: frozenset["Sample"] = frozenset()
    """Samples of VER's buffer that were learned."""
    _pending: frozenset["Sample"] = frozenset()
    """The other samples in it: the last of each environment, whose return was not known yet."""

    def update(self, rollouts: Any) -> Any:
        """Learns from the rollouts and reports it."""
        if isinstance(rollouts, VERRolloutStorage):
            num_samples, lags, num_discarded = self._look_into(rollouts)
        else:
            num_samples, num_discarded = rollouts.num_steps * rollouts.buffers["returns"].shape[1], 0
            lags = np.zeros(num_samples)
        with rlbench_client.span("learn"):
            losses = super().update(rollouts)
        rlbench_client.learned(len(lags), lag=lags)
        rlbench_client.reused(self.ppo_epoch * num_samples - len(lags))
        rlbench_client.discarded(num_discarded)
        rlbench_client.iteration()
        return losses

    def _look_into(self, rollouts: VERRolloutStorage) -> tuple[int, np.ndarray, int]:
        """The number of samples to learn from, the lag of each new one, and the number that never will be learned.

        The buffer also holds samples of older rollouts if the last one ended early. A step that was under way when a
        rollout ended is learned with the next rollout, unless it was over when that one began: then it is discarded.
        """
        buffers = rollouts.buffers
        names = ("environment_ids", "episode_ids", "step_ids")
        samples = list(zip(*(buffers[name].view(-1).tolist() for name in names), strict=True))
        has_return = torch.isfinite(buffers["returns"]).view(-1).tolist()
        versions = (rollouts.current_policy_version - buffers["policy_version"]).view(-1).tolist()
        of_sample = dict(zip(samples, zip(has_return, versions, strict=True), strict=True))
        learned = frozenset(sample for sample, (has_one, _) in of_sample.items() if has_one)
        lags = np.array([of_sample[sample][1] for sample in learned - self._learned], dtype=np.int64)
        num_discarded = len(self._pending - of_sample.keys())
        self._learned, self._pending = learned, frozenset(of_sample.keys() - learned)
        return len(learned), lags * self.ppo_epoch * self.num_mini_batch, num_discarded


Sample = tuple[int, int, int]
"""An env step: the number of its environment, of the episode there, and of the step in the episode."""


def configuration(told: dict[str, Any], folder: Path) -> DictConfig:
    """The configuration of habitat-baselines; settings not named here keep their defaults."""
    config = OmegaConf.create(
        {
            "habitat": OmegaConf.structured(HabitatConfig),
            "habitat_baselines": OmegaConf.structured(HabitatBaselinesRLConfig),
        }
    )
    lab, baselines, learn = config.habitat, config.habitat_baselines, told["learn"]
    lab.seed, lab.env_task = told["seed"], OURS
    lab.task, lab.simulator.agents, lab.simulator.agents_order = TaskConfig(measurements={}, actions={}), {}, [AGENT]
    lab.dataset = DatasetConfig(type=OURS, content_scenes=[OURS])

    device, _, number = told["device"].partition(":")
    baselines.trainer_name, baselines.updater_name = told["trainer"], CountedPPO.__name__
    baselines.torch_gpu_id = int(number or 0)
    baselines.force_torch_single_threaded = device != "cpu"  # as in all configurations that come with it
    baselines.num_environments = told["num_envs"]
    baselines.num_updates, baselines.total_num_steps = -1, float(FOR_EVER)
    baselines.num_checkpoints, baselines.checkpoint_interval = -1, FOR_EVER
    baselines.rl.preemption.save_resume_state_interval = FOR_EVER
    baselines.checkpoint_folder = str(folder / "checkpoints")
    baselines.tensorboard_dir, baselines.log_file, baselines.log_interval = "", os.devnull, FOR_EVER
    baselines.verbose = False

    ddppo, ppo, ver = baselines.rl.ddppo, baselines.rl.ppo, baselines.rl.ver
    ddppo.backbone, ddppo.rnn_type, ddppo.num_recurrent_layers, ppo.hidden_size = "resnet50", "LSTM", 2, 512
    ppo.num_steps, ppo.ppo_epoch, ppo.num_mini_batch = told["num_steps"], learn["epochs"], learn["num_minibatches"]
    ppo.lr, ppo.eps, ppo.max_grad_norm = learn["learning_rate"], learn["adam_eps"], learn["max_grad_norm"]
    ppo.gamma, ppo.tau = learn["discount"], learn["gae_lambda"]
    ppo.clip_param, ppo.use_clipped_value_loss = learn["clip"], False
    ppo.value_loss_coef, ppo.entropy_coef = learn["value_coef"], learn["entropy_coef"]
    ppo.use_normalized_advantage = learn["normalize_advantages"] != "none"
    ver.num_inference_workers = told.get("num_inference_workers", 1)
    return config


def watch_workers() -> None:
    """Makes the main thread raise when a worker process has ended; VER would go on without it."""
    seen: set[Any] = set()
    while True:
        alive = set(multiprocessing.active_children())
        if seen - alive:
            os.kill(os.getpid(), signal.SIGUSR1)
            return
        seen |= alive
        time.sleep(LOOK_S)


def raise_of_worker(*_: Any) -> None:
    """Handles the signal that `watch_workers` sends."""
    raise RuntimeError("a worker process has ended") from None


def main() -> None:
    """Trains until it is ended."""
    from habitat_baselines.run import execute_exp

    told = json.loads(sys.argv[1])
    if told["device"] == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # else it takes a GPU if there is one
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        del os.environ[name]  # the run's processes are not the tasks of a Slurm job
    ddp_utils.SLURM_JOBID = None
    signal.signal(signal.SIGUSR1, raise_of_worker)
    threading.Thread(target=watch_workers, daemon=True).start()
    try:
        execute_exp(configuration(told, Path(tempfile.gettempdir())), "train")
    finally:
        for worker in multiprocessing.active_children():
            worker.kill()  # they ignore other signals, and this process would wait for them


if __name__ == "__main__":
    main()
