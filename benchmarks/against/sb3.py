"""`sync` against Stable-Baselines3's PPO: its network and settings, the same workload and cores, in turn.

`nox -s bench -- sb3` runs it: ViZDoom `basic` with 16 environments, the network of the DQN paper without recurrence
(`policy=nature`), T 128, 4 mini-batches of 512, 2 epochs, and all other settings as Stable-Baselines3 2.9.2 has them by
default. It measures as `benchmarks.against.sample_factory` does, but with a longer window: both sides collect 2,048 env
steps and then learn for seconds, so where a window begins and ends can make a rollout more or less.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.against.measure import Timing, prepare
from benchmarks.against.programs import machine
from benchmarks.against.sample_factory import ours, theirs
from benchmarks.in_turn import compare

PEER = "sb3_ppo"
NUM_STEPS, BATCH_SIZE = 128, 512
LEARN = {
    "epochs": "2",
    "learning_rate": "3e-4",
    "adam_eps": "1e-5",
    "discount": "0.99",
    "gae_lambda": "0.95",
    "clip": "0.2",
    "value_coef": "1.0",  # ours is of half the squared error, theirs 0.5 of the whole
    "entropy_coef": "0.0",
    "max_grad_norm": "0.5",
    "normalize_advantages": "rank",
}
"""Defaults of its PPO, but for the epochs."""
SCENARIO = "vizdoom/basic:num_envs={num_envs}:policy=nature"


def system(num_envs: int) -> str:
    """`sync` with the peer's settings."""
    num_minibatches, left = divmod(NUM_STEPS * num_envs, BATCH_SIZE)
    if left or not num_minibatches:
        raise ValueError(f"--num-envs {num_envs}: {NUM_STEPS} steps of each must be a multiple of {BATCH_SIZE} samples")
    learn = "".join(f":learn.{name}={value}" for name, value in LEARN.items())
    return f"sync:rollout.num_steps={NUM_STEPS}:learn.num_minibatches={num_minibatches}{learn}"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--system", help="of ours, with settings. [default: sync with the peer's]")
    parser.add_argument("--scenario", default=SCENARIO)
    parser.add_argument("--rounds", type=int, default=2, help="of ours, theirs, theirs, ours")
    parser.add_argument("--seconds", type=float, default=120, help="window of each measurement")
    parser.add_argument("--warmup", type=float, default=30, help="seconds before it")
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--cores", type=int, default=2)
    return parser.parse_args()


def main() -> None:
    """Measures both sides and prints all figures."""
    asked = arguments()
    asked.system = asked.system or system(asked.num_envs)
    prepare(asked.cores)
    print(machine(), flush=True)
    timing = Timing(warmup_s=asked.warmup, window_s=asked.seconds)
    with tempfile.TemporaryDirectory(prefix="rlbench-bench-") as made:
        folder = Path(made)
        our_side = ours(folder, asked, asked.scenario.format(num_envs=asked.num_envs), timing)
        their_side = theirs(folder, "run_sb3_ppo", asked.num_envs, timing, PEER)
        compared = compare(our_side, their_side, asked.rounds)
    print(*compared.lines(asked.system.partition(":")[0], PEER), sep="\n")


if __name__ == "__main__":
    main()
