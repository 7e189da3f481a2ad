"""Runs distributed reinforcement-learning systems on the same work and says which is fastest, and why.

    import rlbench

    results = rlbench.run("ver,ddppo", gpus=[1, 8], seconds=20)    # as `rlbench run`, in processes of its own
    results = rlbench.load("rlbench-runs")                         # what earlier runs have left
    results.cells[["system", "gpus", "steps_per_s", "steps_per_s_low", "steps_per_s_high"]]
    rlbench.report(results, "report.html")

`run` and `predict` start the command of the same name; `load` and `report` read run folders in this process, and start
nothing. Every process of a run imports this module, so pandas and all else is loaded on first use.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlbench.api.calling import RunFailed
    from rlbench.api.loaded import Results

    __version__: str

__all__ = ["Results", "RunFailed", "__version__", "load", "predict", "report", "run"]

Folder = str | os.PathLike[str]
Words = str | Iterable[str]
"""One text as the command takes it, `"ver,ddppo"`, or several: `["ver", "ddppo"]`."""
Numbers = int | str | Iterable[int]
"""One number, several (`[1, 8]`, `range(4)`), or a text as the command takes it: `"1..4"`."""


def load(*folders: Folder, reference: str | None = None, threshold: float | None = None) -> Results:
    """Reads runs that are there: measured, on emulated GPUs, or predicted.

    Args:
        folders: of runs, of sweeps, or of sweeps' folders; several are shown together. Without any, the newest sweep in
            `rlbench-runs`.
        reference: the system that the others are held against, with its settings; by default the first of the newest
            sweep.
        threshold: of success or return: when did runs reach it? By default what `until` said.

    Returns:
        The runs, cells and intervals as pandas frames. A run that is damaged or half written is named in `findings`.

    Raises:
        ValueError: a folder is missing or holds no runs, or no run is of the reference.
    """
    from rlbench.api import loaded

    return loaded.load(folders, reference, threshold)


def run(
    systems: Words | None = None,
    *,
    gpus: Numbers = "1",
    scenario: Words | None = None,
    workload: Words = "homogeneous",
    seeds: Numbers = "0",
    protocol: str = "steady",
    scaling: str = "weak",
    iterations: int | None = None,
    seconds: float | None = None,
    env_steps: int | None = None,
    until: str | None = None,
    device: str | None = None,
    time_scale: float | None = None,
    oversubscribe: bool = False,
    time_limit: float = 3600.0,
    stall: float = 60.0,
    memory_limit: float | None = None,
    launcher: str = "local",
    hosts: Words | None = None,
    gpus_per_node: int | None = None,
    interface: str | None = None,
    remote: str | None = None,
    partition: str | None = None,
    slurm: Words | None = None,
    at_once: int | None = None,
    one_allocation: bool = False,
    out: Folder = "rlbench-runs",
    resume: bool = False,
) -> Results:
    """Measures every combination of systems, GPU counts, scenarios, workloads and seeds, as `rlbench run` does.

    It runs in a process of its own and returns when all is over; what that prints appears meanwhile. An interrupt
    (Ctrl-C, the notebook's stop button) ends it in order: finished runs are kept, and `resume=True` goes on. When this
    process ends, so does it.

    Args:
        systems: with settings: `"sync"`, `["ver", "ver:preempt=never"]`, `"mine=./trainer.toml"`, or `"all"`.
        gpus: GPU counts; on the CPU, how many ranks share it.
        scenario: one or several, with settings: `"gym/CartPole-v1"`; by default `emulated/open-fridge` on emulated
            GPUs, else `pointnav`.
        workload: `"homogeneous"`, `"heterogeneous"`, or both.
        seeds: `0`, or `range(5)`.
        protocol: how long a run is, and which iterations count: `"steady"`, `"ddppo"` or `"sample-factory"`.
        scaling: with more GPUs, what stays the same: each rank's environments (`"weak"`), or all that ranks share
            (`"strong"`).
        iterations: ends a run after so many; limits replace the protocol's, and the first counts.
        seconds: ends a run after so many seconds of training, on the wall clock.
        env_steps: ends a run after so many env steps learned; with several agents, agent steps.
        until: ends a run when the mean of a metric over the last 100 episodes is reached: `"success>=0.9"`.
        device: `"cuda"`, `"cpu"` or `"emulated"`; by default `cuda` where there is a GPU, else `emulated`.
        time_scale: emulated scenarios: 0.5 runs them twice as fast as their profile.
        oversubscribe: lets several ranks share a GPU.
        time_limit: seconds after which a run is ended as timed-out.
        stall: seconds after which an environment that does not answer is hung.
        memory_limit: GiB that the processes of a run may have; by default 90 % of the machine's memory.
        launcher: `"local"`, `"torchrun"` (several machines) or `"slurm"`.
        hosts: machines, for torchrun; by default those of the Slurm allocation.
        gpus_per_node: GPUs (ranks) of each machine.
        interface: the network interface, alike on all machines.
        remote: the command that runs another on `{host}`; by default ssh, or srun in a Slurm allocation.
        partition: Slurm's.
        slurm: further options of sbatch: `["account=lab", "qos=high"]`.
        at_once: so many Slurm jobs run at the same time.
        one_allocation: one Slurm job for all cells, instead of one for each.
        out: folder for the runs; made if it is not there.
        resume: completes the newest sweep in `out`; needs no other option.

    Returns:
        The runs of this sweep alone. A cell that fails is no exception: `runs` has its status and reason, `findings`
        names it, and the other cells are there.

    Raises:
        ValueError: the command refuses an option; with its own words.
        RunFailed: the command has ended without a sweep, or was killed.
        KeyboardInterrupt: it was interrupted, and has ended in order.
    """
    given = dict(locals())
    from rlbench.api import calling, loaded

    return loaded.load([calling.call("run", given)])


def predict(
    systems: Words | None = None,
    *,
    gpus: Numbers = "1",
    scenario: Words | None = None,
    workload: Words | None = None,
    seeds: Numbers = "0",
    protocol: str = "steady",
    scaling: str = "weak",
    iterations: int | None = None,
    seconds: float | None = None,
    env_steps: int | None = None,
    from_run: Folder | None = None,
    out: Folder = "rlbench-runs",
) -> Results:
    """Predicts, by a model, what systems would do on GPUs that are not there, as `rlbench predict` does.

    It is computed in a process of its own, in seconds; nothing is run. Every figure says `predicted` in `kind`.

    Args:
        systems: as `run` takes them; or `"all"`. With `from_run`, by default the run's own.
        gpus: GPU counts, of up to thousands.
        scenario: scenarios that state their times: `"emulated/open-fridge"`, or `"emulated/path/to/profile.toml"`.
        workload: `"homogeneous"` (the default), `"heterogeneous"`, or both.
        seeds: as `run` takes them.
        protocol: which iterations count, and how long a run is.
        scaling: `"weak"` or `"strong"`.
        iterations: ends a run after so many.
        seconds: ends a run after so many seconds of the profile.
        env_steps: ends a run after so many env steps learned.
        from_run: folder of a finished run: what would it be on other GPU counts?
        out: folder for the predictions, which are kept as runs are.

    Returns:
        The predictions of this call alone.

    Raises:
        ValueError: the command refuses an option; with its own words.
        RunFailed: the command has ended without a prediction.
        KeyboardInterrupt: it was interrupted.
    """
    given = dict(locals())
    from rlbench.api import calling, loaded

    return loaded.load([calling.call("predict", given)])


def report(
    results: Results | Folder | Iterable[Folder] | None = None,
    out: Folder | None = None,
    *,
    format: str = "html",  # noqa: A002  as the option is called
    title: str | None = None,
    reference: str | None = None,
    threshold: float | None = None,
    history: Folder | None = None,
) -> Path:
    """Writes what runs say as one file that needs no network, as `rlbench report` does.

    Args:
        results: of `load`, `run` or `predict`; or folders, as `load` takes them. By default the newest sweep in
            `rlbench-runs`.
        out: the file; by default `rlbench-report.html`, or `.pdf`.
        format: `html`, or `pdf`, which Chromium prints.
        title: of the page; by default what was compared.
        reference: as `load` takes it; by default that of the results.
        threshold: as `load` takes it; by default that of the results.
        history: a history to draw as well, as `rlbench history` keeps it.

    Returns:
        The file's path.

    Raises:
        ValueError: there are no runs, no run is of the reference, the history is damaged, the file cannot be written,
            or no browser is there to print a PDF.
    """
    from rlbench.api import loaded

    return loaded.report(
        results, out, format=format, title=title, reference=reference, threshold=threshold, history=history
    )


def __getattr__(name: str) -> Any:
    """What needs more than the standard library, when it is asked for."""
    if name == "Results":
        from rlbench.api.loaded import Results

        return Results
    if name == "RunFailed":
        from rlbench.api.calling import RunFailed

        return RunFailed
    if name == "__version__":
        from importlib.metadata import version

        return version("rlbench")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
