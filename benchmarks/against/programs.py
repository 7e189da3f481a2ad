"""The two sides of a comparison as programs that `benchmarks.against.measure` can run: a peer, and a system of ours."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from benchmarks.against.measure import Program, Timing
from benchmarks.peers.counter import FOLDER_VARIABLE, total_env_steps
from benchmarks.peers.venv import peer_python
from rlbench.harness.metering.meter_file import MeterFile
from rlbench.results.records import store

ROOT = Path(__file__).resolve().parents[2]
EXTRA_S = 5.0
"""Seconds that our side trains beyond warm-up and window: its clock starts a little before the first env step."""


def peer_program(peer: str, module: str, num_envs: int, folder: Path) -> Program:
    """A peer on the shared workload.

    Args:
        peer: the peer, whose virtual environment is used.
        module: the module of `benchmarks.peers` that runs it.
        num_envs: environments, over all its processes.
        folder: an empty folder.
    """
    command = (str(peer_python(peer)), "-m", f"benchmarks.peers.{module}", str(num_envs))
    return _counting_program(module.removeprefix("run_"), command, folder)


def simulation_program(scenario: str, num_envs: int, folder: Path) -> Program:
    """A scenario of ours with random actions."""
    command = (sys.executable, "-m", "benchmarks.against.simulate", scenario, str(num_envs))
    return _counting_program(f"{scenario} with random actions", command, folder)


def _counting_program(name: str, command: tuple[str, ...], folder: Path) -> Program:
    """A program whose processes count their env steps in files of their own."""
    counters = folder / "counters"
    counters.mkdir(parents=True)
    return Program(
        name=name,
        command=command,
        folder=folder,
        count=lambda: total_env_steps(counters),
        variables={"PYTHONPATH": str(ROOT), FOLDER_VARIABLE: str(counters), "WANDB_MODE": "disabled"},
    )


def our_program(system: str, scenario: str, timing: Timing, folder: Path) -> Program:
    """One CPU rank of a system of ours, through the command line; `runs` in its folder holds the run afterwards."""
    folder.mkdir(parents=True)
    seconds = timing.warmup_s + timing.window_s + EXTRA_S
    options = ("--gpus", "1", "--device", "cpu", "--seconds", f"{seconds:g}", "--out", "runs")
    return Program(
        name=system.partition(":")[0],
        command=(*rlbench(), "run", "--systems", system, "--scenario", scenario, *options),
        folder=folder,
        count=lambda: metered_env_steps(folder / "runs"),
        variables={},
        ends_by_itself=True,
    )


def rlbench() -> tuple[str, ...]:
    """The `rlbench` command beside the interpreter that runs this."""
    return (str(Path(sys.executable).with_name("rlbench")),)


def metered_env_steps(runs: Path) -> int:
    """The env steps of the run that is going on, as the harness's environment wrapper counts them."""
    meters = runs.glob(f"*/{store.PARTIAL_PREFIX}*/meter-rank*.bin")
    return sum(MeterFile(path, writable=False).total("env_steps") for path in meters)


def learned_steps_per_s(runs: Path) -> float:
    """The figure in the record of the one run in a folder: env steps learned per second of its own window."""
    (run,) = store.read_runs(runs)
    figure = run.record.figures.steps_per_s
    if run.record.status != "finished" or figure is None:
        raise RuntimeError(f"{run.record.id}: {run.record.status}: {run.record.reason}")
    return figure


def processor() -> str:
    """What computes the figures, in a few words."""
    from rlbench.harness.machine.machine import describe

    return f"{describe()['cpu_model'] or 'unknown CPU'}; cores used: {len(os.sched_getaffinity(0))}"


def machine() -> str:
    """The machine that the figures belong to, in one line."""
    return f"{processor()}; load before: {os.getloadavg()[0]:.2f}"
