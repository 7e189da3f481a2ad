"""Trains with Stable-Baselines3's PPO, in its own virtual environment: `python train.py SETTINGS` (as JSON).

PPO learns all that it has collected before it collects more, so no sample is older than the policy that learns.
"""

import functools
import json
import sys
from typing import Any

import rlbench_client

FOR_EVER = 10**12


KINDS = {"numbers": "MlpPolicy", "one image": "CnnPolicy"}
"""Its policy for what a trainer sees; `MultiInputPolicy` for all else."""
NUM_UNITS = 512


def make_env(image_order: str) -> Any:
    """An environment of the run, in the process that steps it."""
    from rlbench_client.plain import plain

    return plain(rlbench_client.make_env(), image_order=image_order)


def scaled(envs: Any, told: dict[str, Any]) -> Any:
    """The environments, with observations and rewards divided by their deviation so far where the run asks for it."""
    from gymnasium.spaces import Dict
    from stable_baselines3.common.vec_env import VecNormalize

    from rlbench_client.plain import VECTOR

    observations, rewards = told["normalize_observations"], told["learn"]["normalize_rewards"]
    if not observations and not rewards:
        return envs
    keys = [VECTOR] if observations and isinstance(envs.observation_space, Dict) else None
    gamma = told["learn"]["discount"]
    return VecNormalize(envs, norm_obs=observations, norm_reward=rewards, gamma=gamma, norm_obs_keys=keys)


def policy_of(told: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Its policy and that policy's settings."""
    options: dict[str, Any] = {"optimizer_kwargs": {"eps": told["learn"]["adam_eps"]}}
    kind = KINDS.get(told["sees"], "MultiInputPolicy")
    if kind == "MultiInputPolicy":  # as CnnPolicy by itself, with an encoder for each image
        options |= {"net_arch": [], "features_extractor_kwargs": {"cnn_output_dim": NUM_UNITS}}
    return kind, options


def count_learning(model: Any, batch: int, learn: dict[str, Any]) -> None:
    """Makes the model report each learning phase when it is over."""
    train = model.train

    def counted() -> None:
        with rlbench_client.span("learn"):
            train()
        rlbench_client.learned(batch, lag=0)
        rlbench_client.reused((learn["epochs"] - 1) * batch)
        rlbench_client.discarded(0)
        rlbench_client.iteration()

    model.train = counted


def main() -> None:
    """Trains until it is ended."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.utils import set_random_seed
    from stable_baselines3.common.vec_env import SubprocVecEnv

    told = json.loads(sys.argv[1])
    set_random_seed(told["seed"])  # not by PPO, which would also seed the environments
    learn, batch = told["learn"], told["batch"]
    kind, options = policy_of(told)
    make = functools.partial(make_env, told["image_order"])
    model = PPO(
        kind,
        scaled(SubprocVecEnv([make] * told["num_envs"]), told),
        device=told["device"],
        n_steps=told["num_steps"],
        batch_size=batch // learn["num_minibatches"],
        n_epochs=learn["epochs"],
        learning_rate=learn["learning_rate"],
        gamma=learn["discount"],
        gae_lambda=learn["gae_lambda"],
        clip_range=learn["clip"],
        ent_coef=learn["entropy_coef"],
        vf_coef=0.5 * learn["value_coef"],  # its loss is the squared error, not half of it
        max_grad_norm=learn["max_grad_norm"],
        normalize_advantage=learn["normalize_advantages"] != "none",
        policy_kwargs=options,
    )
    count_learning(model, batch, learn)
    model.learn(FOR_EVER)


if __name__ == "__main__":
    main()
