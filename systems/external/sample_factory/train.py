"""Trains with Sample Factory, in its own virtual environment: `python train.py SETTINGS` (as JSON).

The learner's process counts what it has learned and tells the main process, which reports it. It does not tell how old
each sample was, or what was thrown away.
"""

import json
import os
import sys
import tempfile
from typing import Any

import rlbench_client

LEARNER_STEPS = "learner_env_steps"
"""A message of the learner: env steps that it has learned since the start."""
NETWORKS = {
    "conv": ["--encoder_conv_architecture=convnet_simple", "--use_rnn=True", "--rnn_type=lstm", "--rnn_size=512"],
    "nature": ["--encoder_conv_architecture=convnet_atari", "--use_rnn=False"],
    "small": ["--encoder_mlp_layers", "64", "64", "--use_rnn=False"],
}
NONLINEARITIES = {"small": "tanh"}
UNCLIPPED = 1e9
TOLD = "RLBENCH_SAMPLE_FACTORY"
"""Environment variable of its processes: the settings of this program, as JSON."""


def make_env(name: str, cfg: Any = None, env_config: Any = None, render_mode: Any = None) -> Any:
    """Makes an environment of the run, in one of Sample Factory's workers."""
    from rlbench_client.plain import plain

    del name, cfg, env_config, render_mode
    told = json.loads(os.environ[TOLD])
    return plain(rlbench_client.make_env(), image_order=told["image_order"], actions="parts")


def options(told: dict[str, Any]) -> list[str]:
    """Sample Factory's command line."""
    learn = told["learn"]
    return [
        "--env=rlbench",
        "--algo=APPO",
        "--experiment=run",
        f"--train_dir={tempfile.gettempdir()}/sample-factory",
        "--restart_behavior=overwrite",
        f"--device={'cpu' if told['device'] == 'cpu' else 'gpu'}",
        f"--seed={told['seed']}",
        "--train_for_env_steps=1000000000000",
        "--save_every_sec=1000000",
        "--save_best_every_sec=1000000",
        # How it collects.
        f"--num_workers={told['num_workers']}",
        f"--num_envs_per_worker={told['num_envs'] // told['num_workers']}",
        "--worker_num_splits=2",
        "--decorrelate_experience_max_seconds=0",
        "--decorrelate_envs_on_one_worker=False",
        f"--rollout={told['num_steps']}",
        # What it learns.
        f"--recurrence={told['num_steps']}",
        *NETWORKS[told["policy"]],
        f"--nonlinearity={NONLINEARITIES.get(told['policy'], 'relu')}",
        f"--normalize_input={told['normalize_observations']}",
        f"--obs_scale={1.0 if told['sees'] == 'numbers' else 255.0}",
        f"--adaptive_stddev={told['action_std'] == 'learned'}",
        "--normalize_returns=False",
        "--reward_clip=1000000000",
        "--value_bootstrap=True",
        # How it learns.
        f"--batch_size={told['batch'] // learn['num_minibatches']}",
        f"--num_batches_per_epoch={learn['num_minibatches']}",
        f"--num_epochs={learn['epochs']}",
        f"--learning_rate={learn['learning_rate']}",
        f"--adam_eps={learn['adam_eps']}",
        f"--gamma={learn['discount']}",
        f"--gae_lambda={learn['gae_lambda']}",
        f"--ppo_clip_ratio={learn['clip']}",
        f"--ppo_clip_value={UNCLIPPED}",
        f"--value_loss_coeff={0.5 * learn['value_coef']}",  # its loss is the squared error, not half of it
        f"--exploration_loss_coeff={learn['entropy_coef']}",
        f"--max_grad_norm={learn['max_grad_norm']}",
        f"--with_vtrace={learn['correct'] == 'vtrace'}",
        f"--vtrace_rho={learn['rho']}",
        f"--vtrace_c={learn['c']}",
        "--summaries_use_frameskip=False",  # so that it counts env steps, not frames
    ]


def report(epochs: int) -> Any:
    """Makes a handler that reports what the learner's messages say."""
    last = 0

    def handle(runner: Any, message: dict[str, Any], policy: int) -> None:
        nonlocal last
        del runner, policy
        learned, last = message[LEARNER_STEPS] - last, message[LEARNER_STEPS]
        if learned:
            rlbench_client.learned(learned)
            rlbench_client.reused((epochs - 1) * learned)
            rlbench_client.iteration()

    return handle


def main() -> None:
    """Trains until it is ended."""
    from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
    from sample_factory.envs.env_utils import register_env
    from sample_factory.train import make_runner

    told = json.loads(sys.argv[1])
    os.environ[TOLD] = sys.argv[1]
    register_env("rlbench", make_env)
    parser, _ = parse_sf_args(options(told))
    _, runner = make_runner(parse_full_cfg(parser, options(told)))
    runner.policy_msg_handlers[LEARNER_STEPS].append(report(told["learn"]["epochs"]))
    status = runner.init()
    if not status:  # ExperimentStatus.SUCCESS is 0
        status = runner.run()
    sys.exit(int(status))


if __name__ == "__main__":
    os.environ.setdefault("WANDB_MODE", "disabled")
    main()
