"""How soon each system learns: `nox -s learn`, or `nox -s learn -- --systems ver,appo`.

Every system trains with one CPU rank on each task until it reaches the threshold or `--seconds` have passed. On
`pointnav` (small policy, three seeds) 90 % of the last 100 episodes must succeed; on `vizdoom/basic` (one seed) their
mean return, in rewards times 0.01, must be 0.7. Of Gymnasium's environments (three seeds) CartPole-v1 must return 475,
at which it was called solved; HalfCheetah-v5 1,500 and Hopper-v5 1,000, within a million env steps, as far as PPO's
paper has its curves (Schulman et al. 2017, figure 3); Minigrid's DoorKey-8x8 0.9. On HalfCheetah and Hopper `sync` runs
for the whole million, as does `sb3-ppo` with the settings that its authors publish, and their areas under the curve are
compared. Ctrl-C stops it at any time; started again, it goes on where it was, because finished runs are kept in
`--out`. It prints its tables as Markdown.
"""

from __future__ import annotations

import argparse
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from benchmarks.against.programs import machine, rlbench
from benchmarks.learn_table import COMPARED, Task, Trained, compared, is_compared, table
from rlbench.harness.commands import INTERRUPTED
from rlbench.harness.contract.budget import parse_condition
from rlbench.harness.plan import registry
from rlbench.results.records import store
from rlbench.results.statistics.learning_curves import Curve, reach, read_curve

PEER = "sb3-ppo"
PUBLISHED = "num_envs=1:rollout_steps=2048:learn.num_minibatches=32"
"""Where the defaults of Stable-Baselines3, which are rl-baselines3-zoo's for MuJoCo (`scenarios/gym/published.py`),
differ from the scenario's settings: one environment, and mini-batches of 64."""
TASKS = {
    "pointnav": Task(scenario="pointnav", until="success>=0.9", seeds=(0, 1, 2)),
    "vizdoom": Task(scenario="vizdoom/basic", until="return>=0.7", seeds=(0,)),
    "cartpole": Task(scenario="gym/CartPole-v1", until="return>=475", seeds=(0, 1, 2)),
    "halfcheetah": Task(
        scenario="gym/HalfCheetah-v5",
        until="return>=1500",
        seeds=(0, 1, 2),
        env_steps=1_000_000,
        peer=PEER,
        peer_scenario=f"gym/HalfCheetah-v5:{PUBLISHED}",
    ),
    "hopper": Task(
        scenario="gym/Hopper-v5",
        until="return>=1000",
        seeds=(0, 1, 2),
        env_steps=1_000_000,
        peer=PEER,
        peer_scenario=f"gym/Hopper-v5:{PUBLISHED}",
    ),
    "doorkey": Task(scenario="minigrid/DoorKey-8x8", until="return>=0.9", seeds=(0, 1, 2)),
}
SMALL_BATCH = "rollout.batch=512"
"""The default batch is for more than 8 environments. Of each of 8 this one has two trajectories, not eight."""
SMALL_STEP = "learn.learning_rate=0.05:learn.max_grad_norm=0.5"
"""For SGD, whose default step is for `pointnav`; gradients are scaled down to 0.5, where other systems use 4."""
GENTLE_SGD = "learn.learning_rate=0.02"
"""For SGD on advantages that are normalised: the default step is for `pointnav`."""
GRID = (
    "rollout.batch=1024:rollout.num_steps=64:overlap.max_lag=48:learn.epochs=4:learn.num_minibatches=4:"
    "learn.clip=0.2:learn.clip_low=0:learn.entropy_coef=0.01:learn.max_grad_norm=0.5:learn.correct=none"
)
"""For `appo` on grids: the scenario's epochs, size of mini-batches, bonus and gradients, no V-trace; two batches may
wait."""
AS_PUBLISHED = "learn.num_minibatches=32"
"""For `sync` beside the library: mini-batches of 64, as published, where the scenario has 128 for systems that split a
rollout by environments."""
ADAM = "learn.optimizer=adam:learn.learning_rate={}"
"""For `gossip` where SGD does not get there: the optimiser, and the step, that other systems have."""
CONTROL = (
    "rollout.batch=1024:rollout.num_steps=64:overlap.max_lag=160:learn.epochs=10:learn.num_minibatches=8:"
    "learn.learning_rate=3e-4:learn.clip=0.2:learn.clip_low=0:learn.entropy_coef=0:learn.max_grad_norm=0.5:learn.correct=none"
)
"""For `appo`, whose own settings are for images: the scenario's epochs, mini-batches, step and gradients, no V-trace. A
lag is in optimiser steps, of which a batch has 80; with half of the scenario's batch two that wait are not too old."""
SETTINGS = {
    "pointnav": {"appo": SMALL_BATCH, "impala": f"{SMALL_BATCH}:learn.learning_rate=1e-3"},
    "vizdoom": {
        "appo": SMALL_BATCH,
        "downpour": f"{SMALL_STEP}:average.learning_rate=0.05",
        "easgd": SMALL_STEP,
        "gossip": SMALL_STEP,
        "impala": SMALL_BATCH,
    },
    "cartpole": {"gossip": GENTLE_SGD},
    "halfcheetah": {"appo": CONTROL, "gossip": ADAM.format("3e-4"), "sync": AS_PUBLISHED},
    "hopper": {"appo": CONTROL, "gossip": ADAM.format("3e-4"), "sync": AS_PUBLISHED},
    "doorkey": {"appo": GRID, "gossip": ADAM.format("2.5e-4")},
}
"""Settings of the systems that do not learn a task soon, or not as soon as the library, with their defaults."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trainings:
    """All seeds of one system on one task."""

    system: str
    task: Task
    limit_s: float
    out: Path

    @property
    def folder(self) -> Path:
        """The folder of its runs; each scenario, threshold, system and limit has its own."""
        parts = (self.task.scenario, self.task.until, self.system, f"{self.limit_s:g}s")
        return self.out.joinpath(*(re.sub(r"[^\w.:=-]+", "-", part) for part in parts))

    @property
    def command(self) -> list[str]:
        """The command that runs what has not finished."""
        task = self.task
        options = {
            "systems": self.system,
            "scenario": task.peer_scenario if self.system == task.peer else task.scenario,
            "gpus": "1",
            "device": "cpu",
            "seeds": ",".join(map(str, task.seeds)),
            "seconds": f"{self.limit_s:g}",
            "out": str(self.folder),
        }
        if not task.is_whole(self.system):
            options["until"] = task.until
        if task.env_steps is not None:
            options["env-steps"] = str(task.env_steps)
        resume = ["--resume"] if list(self.folder.glob("*/sweep.json")) else []
        return [*rlbench(), "run", *(part for name, value in options.items() for part in (f"--{name}", value)), *resume]

    def finished(self) -> list[store.StoredRun]:
        """The latest finished run of each seed, so far."""
        runs = store.read_runs(self.folder) if self.folder.exists() else []
        finished = {run.record.cell.seed: run for run in runs if run.record.status == "finished"}
        return [finished[seed] for seed in self.task.seeds if seed in finished]

    def results(self) -> list[Trained]:
        """What each of them is reduced to."""
        return [trained(self.system, run, self.task) for run in self.finished()]

    def curves(self) -> list[Curve]:
        """The learning curve of each of them."""
        metric, *_ = parse_condition(self.task.until)
        curves = [read_curve(run.path, run.record.cell.gpus, [metric]) for run in self.finished()]
        return [curve for curve in curves if curve is not None]

    @property
    def is_complete(self) -> bool:
        """Whether every seed has finished."""
        return len(self.finished()) == len(self.task.seeds)


def trained(system: str, run: store.StoredRun, task: Task) -> Trained:
    """Reduces a run to when it reached the threshold, or ended."""
    metric, _, threshold = parse_condition(task.until)
    if task.is_whole(system) and (curve := read_curve(run.path, run.record.cell.gpus, [metric])) is not None:
        steps, seconds = (reach(curve, threshold, cost) for cost in ("env_steps", "seconds"))
        return Trained(
            system=system,
            seed=run.record.cell.seed,
            reached=not steps.censored,
            env_steps=int(steps.cost),
            seconds=seconds.cost,
        )
    last = pd.read_parquet(run.path / "series.parquet").sort_values("end_s").iloc[-1]
    mean = last.get(metric)  # there is none before 100 episodes have ended
    return Trained(
        system=system,
        seed=run.record.cell.seed,
        reached=mean is not None and bool(mean >= threshold),
        env_steps=run.record.counters.env_steps,
        seconds=float(last["end_s"]),
    )


def run(command: list[str]) -> int:
    """Runs `rlbench`, passing Ctrl-C and SIGTERM on to it; returns its exit code when it has cleaned up."""
    with subprocess.Popen(command, start_new_session=True) as child:
        before = {
            number: signal.signal(number, lambda number, _: child.send_signal(number))
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            return child.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def print_tables(asked: argparse.Namespace) -> None:
    """Prints a table of the finished runs of each task."""
    for task in asked.tasks:
        systems = systems_for(task, asked)
        results = [result for system in systems for result in of(system, task, asked).results()]
        print(f"\n{TASKS[task].scenario}, until {TASKS[task].until}; at most {asked.seconds:g} s a run\n")
        print(table(results, systems, TASKS[task].seeds))
        if peer := TASKS[task].peer:
            own = next(filter(is_compared, systems), with_settings(COMPARED, task))
            ours, theirs = (of(system, task, asked).curves() for system in (own, peer))
            print(compared(ours, theirs, peer))


def of(system: str, task: str, asked: argparse.Namespace) -> Trainings:
    """The trainings of a system on a task."""
    return Trainings(system=system, task=TASKS[task], limit_s=asked.seconds, out=asked.out)


def systems_for(task: str, asked: argparse.Namespace) -> list[str]:
    """The systems that were asked for, with their settings; `all` has the settings that each needs for the task."""
    if asked.systems != "all":
        return str(asked.systems).split(",")
    own = [with_settings(name, task) for name in registry.names(registry.SYSTEMS)]
    return [*own, peer] if (peer := TASKS[task].peer) else own


def with_settings(name: str, task: str) -> str:
    """A system with the settings that it needs for a task."""
    settings = SETTINGS.get(task, {}).get(name)
    return f"{name}:{settings}" if settings else name


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--systems",
        default="all",
        help="with a comma between them, settings and all; all: with the settings that they need here",
    )
    parser.add_argument("--tasks", default=",".join(TASKS), help=f"of: {', '.join(TASKS)}")
    parser.add_argument("--seconds", type=float, default=900, help="of training, after which a run is censored")
    parser.add_argument("--out", type=Path, default=Path("rlbench-runs/learn"))
    parser.add_argument("--table", action="store_true", help="print the tables of what has finished, run nothing")
    asked = parser.parse_args()
    asked.tasks = asked.tasks.split(",")
    if unknown := set(asked.tasks) - set(TASKS):
        parser.error(f"--tasks {','.join(sorted(unknown))}: unknown; known: {', '.join(TASKS)}")
    return asked


def main() -> int:
    """Runs what is missing and prints the tables; returns the exit code."""
    asked = arguments()
    print(machine(), flush=True)
    codes: list[int] = []
    missing = [
        trainings
        for task in asked.tasks
        for system in systems_for(task, asked)
        if not (trainings := of(system, task, asked)).is_complete
    ]
    for trainings in [] if asked.table else missing:
        codes.append(run(trainings.command))
        if codes[-1] == INTERRUPTED:
            break
    print_tables(asked)
    return max(codes, default=0)


if __name__ == "__main__":
    sys.exit(main())
