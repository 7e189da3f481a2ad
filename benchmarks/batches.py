"""What environments in batches cost and give: `nox -s bench -- batches`, on two cores.

- `contract`: Atari Breakout with random actions through the harness's counting (`CountedBatch`) on ale-py's vector
  environment, against that by itself, in turn. The aim: 0.95 of its env steps/s.
- `cartpole`: CartPole-v1 in one native batch of 1,024, through worker, rank and policy: the env steps per second of
  collecting, which is all of a run's time but that of learning, by its record. The aim: 100,000.
- `envpool`: the same on EnvPool's asynchronous mode (`CountedPool`), in the virtual environment of the next part, since
  EnvPool is none of our packages (`benchmarks/peers/run_envpool_counted.py`). The aim: 0.95.
- `cleanrl`: `sync` on Breakout against CleanRL's PPO on EnvPool (`benchmarks/peers/run_cleanrl_envpool.py`) with the
  same network, environments, batch and epochs, in turn; measured as `benchmarks.against.sample_factory` does.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from benchmarks.against.measure import Timing, prepare
from benchmarks.against.programs import ROOT, learned_steps_per_s, machine, our_program
from benchmarks.against.sample_factory import ours, theirs
from benchmarks.in_turn import Side, compare
from benchmarks.peers.venv import peer_python
from rlbench.harness.contract.device import Place, Seat
from rlbench.harness.contract.envs import env_seeds, make_counted_batch
from rlbench.harness.devices.kinds import CpuDevice
from rlbench.harness.metering.meter_file import MeterFile, meter_path
from rlbench.results.records import store
from rlbench.scenarios.atari import FAMILY, AtariScenario

Step = Callable[[Any], object]
Count = Callable[[], int]
LEAST_OF_CONTRACT, LEAST_CARTPOLE = 0.95, 100_000
BREAKOUT_ENVS, CARTPOLE_ENVS, PPO_ENVS = 32, 1024, 8
CARTPOLE = f"gym/CartPole-v1:vector=native:num_envs={CARTPOLE_ENVS}:batch={CARTPOLE_ENVS}"
CARTPOLE_SYSTEM = "sync:learn.epochs=1"
PPO_SCENARIO = (
    f"atari/breakout:vector=native:batch={PPO_ENVS}:num_envs={PPO_ENVS}:policy=nature:terminal_on_life_loss=true"
)
PPO_LEARN = {
    "epochs": "4",
    "num_minibatches": "4",
    "learning_rate": "2.5e-4",
    "adam_eps": "1e-5",
    "discount": "0.99",
    "gae_lambda": "0.95",
    "clip": "0.1",
    "value_coef": "0.5",
    "entropy_coef": "0.01",
    "max_grad_norm": "0.5",
    "normalize_advantages": "rank",
}
"""CleanRL's of `ppo_atari_envpool.py`; its clipped value loss and its schedule take no time to speak of."""
PPO_SYSTEM = "sync:rollout.num_steps=128" + "".join(f":learn.{name}={value}" for name, value in PPO_LEARN.items())


def contract(asked: argparse.Namespace, folder: Path) -> None:
    """Prints what counting leaves of ale-py's speed; both sides are made once, and step by turns of seconds."""
    num = BREAKOUT_ENVS
    scenario = replace(FAMILY.make("breakout", "homogeneous"), vector="native", num_envs=num, batch=num)
    with ExitStack() as opened:
        counted = _rates(*_counted(scenario, folder, opened), asked.slice)
        bare = _rates(*_bare(scenario, opened), asked.slice)
        for warm in (counted, bare):
            warm()
        compared = compare(counted, bare, asked.slices // 2)
    print(*compared.lines("counted", "ale-py by itself"), f"aim: {LEAST_OF_CONTRACT}", sep="\n", flush=True)


def _counted(scenario: AtariScenario, folder: Path, opened: ExitStack) -> tuple[Step, Count]:
    """Steps through `CountedBatch`; env steps are those of its meter."""
    place, num, device = Place(rank=0, num_ranks=1, local_rank=0), scenario.num_envs, CpuDevice(1)
    path = meter_path(folder, 0)
    file = MeterFile.create(path, num_envs=num)
    seats = [
        Seat(place=place, index=index, num_envs=num, seed=seed, device=device)
        for index, seed in enumerate(env_seeds(0, 0, num))
    ]
    batch = make_counted_batch(scenario, seats, folder, path)
    opened.callback(batch.close)
    batch.reset()
    return batch.step, lambda: file.total("env_steps")


def _bare(scenario: AtariScenario, opened: ExitStack) -> tuple[Step, Count]:
    """Steps ale-py's environment, with the same settings; the call that ends an episode also begins the next one."""
    from ale_py.vector_env import AtariVectorEnv

    num, taken = scenario.num_envs, np.zeros(1, int)
    envs = AtariVectorEnv(
        scenario.games[0],
        num,
        num_threads=len(os.sched_getaffinity(0)),
        use_fire_reset=False,
        autoreset_mode=AutoresetMode.SAME_STEP,
    )
    opened.callback(envs.close)
    envs.reset(seed=np.arange(num, dtype=np.int32))

    def step(actions: Any) -> None:
        envs.step(actions)
        taken[0] += num

    return step, lambda: int(taken[0])


def _rates(step: Step, count: Count, seconds: float) -> Side:
    actions = itertools.cycle(np.random.default_rng(0).integers(0, 4, (1000, BREAKOUT_ENVS)))

    def measure() -> float:
        before, began = count(), time.perf_counter()
        while (took := time.perf_counter() - began) < seconds:
            step(next(actions))
        return (count() - before) / took

    return measure


def envpool(asked: argparse.Namespace, folder: Path) -> None:  # noqa: ARG001  it makes one itself
    """Prints what counting leaves of EnvPool's speed."""
    module, numbers = (
        "benchmarks.peers.run_envpool_counted",
        ("--slice", f"{asked.slice}", "--slices", f"{asked.slices}"),
    )
    subprocess.run([peer_python("cleanrl_envpool"), "-m", module, *numbers], cwd=ROOT, check=True)
    print(f"aim: {LEAST_OF_CONTRACT}", flush=True)


def cartpole(asked: argparse.Namespace, folder: Path) -> None:
    """Prints how fast a rank collects from the large batch."""
    figures = []
    for number in range(2 * asked.rounds):
        program = our_program(
            CARTPOLE_SYSTEM, CARTPOLE, Timing(warmup_s=0, window_s=asked.seconds), folder / f"{number}"
        )
        subprocess.run(program.command, cwd=program.folder, check=True, capture_output=True)
        figures.append(collected_per_s(program.folder / "runs"))
    shown = ", ".join(f"{figure:,.0f}" for figure in figures)
    print(f"cartpole: median {median(figures):,.0f} env steps/s while collecting ({shown}); aim: {LEAST_CARTPOLE:,}")


def collected_per_s(runs: Path) -> float:
    """Env steps learned per second of the time in which the rank did not learn, of the one run in a folder."""
    rate = learned_steps_per_s(runs)
    (run,) = store.read_runs(runs)
    shares = run.record.figures.time_shares
    assert shares is not None
    parts = ", ".join(f"{name} {share:.0%}" for name, share in shares.items() if share >= 0.01)
    print(f"  {CARTPOLE}: {rate:,.0f} learned/s; {parts}", flush=True)
    return rate / (1 - shares["learn"])


def cleanrl(asked: argparse.Namespace, folder: Path) -> None:
    """Prints `sync` against CleanRL's PPO on EnvPool."""
    timing = Timing(warmup_s=asked.warmup, window_s=3 * asked.seconds)  # many rollouts: where one ends matters less
    asked.system = PPO_SYSTEM
    their_side = theirs(folder, "run_cleanrl_envpool", PPO_ENVS, timing, "cleanrl_envpool")
    compared = compare(ours(folder, asked, PPO_SCENARIO, timing), their_side, asked.rounds)
    print(*compared.lines("sync", "cleanrl_envpool"), sep="\n", flush=True)


PARTS = {"contract": contract, "envpool": envpool, "cartpole": cartpole, "cleanrl": cleanrl}


def main() -> None:
    """Measures what was asked for and prints all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--rounds", type=int, default=2, help="of ours, theirs, theirs, ours")
    parser.add_argument("--slice", type=float, default=1.0, help="seconds of each turn of `contract`")
    parser.add_argument("--slices", type=int, default=40, help="turns of each side of `contract`")
    parser.add_argument(
        "--seconds", type=float, default=40, help="window of each other measurement; thrice that of `cleanrl`"
    )
    parser.add_argument("--warmup", type=float, default=10, help="seconds before it")
    parser.add_argument("--cores", type=int, default=2)
    asked = parser.parse_args()
    prepare(asked.cores)
    print(machine(), flush=True)
    for part in asked.parts.split(","):
        with tempfile.TemporaryDirectory(prefix="rlbench-bench-") as made:
            PARTS[part](asked, Path(made))


if __name__ == "__main__":
    main()
