"""Trains with Stable-Baselines3's PPO, in its own virtual environment: `python train.py SETTINGS` (as JSON).

PPO learns all that it has collected before it collects more, so no sample is older than the policy that learns.
"""

import json
import sys
from typing import Any

import rlbench_client

FOR_EVER = 10**12


def make_env() -> Any:
    """An environment of the run, in the process that steps it."""
    return rlbench_client.make_env(box=True)


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
    model = PPO(
        "CnnPolicy",
        SubprocVecEnv([make_env] * told["num_envs"]),
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
        policy_kwargs={"optimizer_kwargs": {"eps": learn["adam_eps"]}},
    )
    count_learning(model, batch, learn)
    model.learn(FOR_EVER)


if __name__ == "__main__":
    main()
