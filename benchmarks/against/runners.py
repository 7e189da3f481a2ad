"""The systems of other people's libraries against the same libraries run by themselves, on the same work, in turn.

`nox -s bench -- runners` runs it: ViZDoom `basic` with 16 environments. A short program, `benchmarks/peers/run_….py`,
runs a library by itself; the system has the same sizes. So the difference is what rlbench adds: its environments, the
client that counts, and the process that watches. It measures as `benchmarks.against.sample_factory` does.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.against.measure import Timing, prepare
from benchmarks.against.programs import machine
from benchmarks.against.sample_factory import ours, theirs
from benchmarks.in_turn import compare

SYSTEMS = {
    "sample_factory": ("sample-factory", "vizdoom/basic:num_envs={num_envs}"),
    "sb3_ppo": (
        "sb3-ppo:rollout.num_steps=128:learn.num_minibatches=4:learn.epochs=2",
        "vizdoom/basic:num_envs={num_envs}:policy=nature",
    ),
    "rllib_appo": ("rllib-appo", "vizdoom/basic:num_envs={num_envs}"),
}
"""By peer: the system with the same sizes, and its scenario."""


def main() -> None:
    """Measures both sides of each and prints all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default=",".join(SYSTEMS), help=f"of {', '.join(SYSTEMS)}")
    parser.add_argument("--rounds", type=int, default=1, help="of ours, theirs, theirs, ours")
    parser.add_argument("--seconds", type=float, default=60, help="window of each measurement")
    parser.add_argument("--warmup", type=float, default=20, help="seconds before it")
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--cores", type=int, default=2)
    asked = parser.parse_args()
    prepare(asked.cores)
    print(machine(), flush=True)
    timing = Timing(warmup_s=asked.warmup, window_s=asked.seconds)
    for peer in asked.peers.split(","):
        asked.system, scenario = SYSTEMS[peer]
        with tempfile.TemporaryDirectory(prefix="rlbench-bench-") as made:
            our_side = ours(Path(made), asked, scenario.format(num_envs=asked.num_envs), timing)
            their_side = theirs(Path(made), f"run_{peer}", asked.num_envs, timing, peer)
            compared = compare(our_side, their_side, asked.rounds)
        print(*compared.lines(asked.system.partition(":")[0], f"{peer} by itself"), sep="\n", flush=True)


if __name__ == "__main__":
    main()
