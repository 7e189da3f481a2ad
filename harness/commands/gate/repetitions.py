"""Measures two revisions in repetitions, until the answer is clear or the budget is spent.

Repetition k has the same seed on both sides. Where the machine has two cores, both run at once, each on half of them
(`harness/commands/gate/halves.py`), so that what slows the machine down slows both; the judgement compares them over
the same time. Otherwise they run in turn, A B B A ..., and are compared in pairs.

This process waits for the runs that it started, and starts nothing else. Ctrl-C also reaches them, and they end their
processes. If only this process was asked to end, it asks them to end, and kills those that do not. Then this process
ends too. If it is killed, each run ends at the end of its repetition; of two, neither changes its cores any more.

Early looks: after every repetition the gate is judged at `LOOK_LEVEL`, and ends when nothing is inconclusive. The
intervals of these looks are so wide that they hardly add to the error of the last one, which has the usual level
(Haybittle 1971; Peto et al., British Journal of Cancer 34, 1976).
"""

from __future__ import annotations

import functools
import math
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rlbench.harness.commands.gate.halves import QUEUED_SWAP_S, Halves, on_cores, swap_until_one_ends
from rlbench.harness.commands.gate.revisions import BuiltRevision
from rlbench.harness.machine.virtualenvs import variables
from rlbench.harness.metering.window import LEAST_PARTS
from rlbench.harness.processes.priority import before_others
from rlbench.results.records import store
from rlbench.results.records.work import ReadWork, read_work
from rlbench.results.statistics.intervals import LEVEL
from rlbench.results.verdicts.compare import Runs
from rlbench.results.verdicts.gate import LEAST_REPETITIONS, Gate, judge, pooled
from rlbench.results.verdicts.learning import Goal, judge_learning

LOOK_LEVEL = 0.999
OK, RUN_FAILED = 0, 1
STILL = ("--protocol", "still")
"""What is measured unless options say otherwise; a revision from before it refuses it as `UNKNOWN` says."""
UNKNOWN = "--protocol still: unknown"
AT_ONCE_S, ENOUGH = 20.0, LEAST_PARTS
"""Seconds of a run of still work beside another, unless options say otherwise, and iterations that it should have: else
those after it are longer, and if it has its warm-up alone, it does not count. More runs tell more than longer ones, but
runs of few iterations are noisy."""
MOST_LONGER = 3.0
"""By what factor at most: the only iteration of a run is its warm-up, and takes longer than the others."""
SELDOM = (
    f"the sides exchange their cores every {QUEUED_SWAP_S:g} s only, which leaves more noise: a real-time priority is "
    "not permitted; `sudo prlimit --rtprio=1 --pid $$` permits it to this shell"
)
END_S = 15.0
"""Seconds that an interrupted run has to end its processes."""


class NoStillWork(ValueError):  # noqa: N818  says what is the matter
    """A revision does not know still work."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measuring:
    """What is measured, and for how long."""

    options: Sequence[str]
    """Options of `rlbench run`, without `--seeds` and `--out`."""
    out: Path
    """Where both sides leave their runs."""
    first_seed: int
    budget_s: float
    tolerance: float
    goal: Goal | None
    """What both sides are to learn; None to judge steps/s."""
    seconds: float | None
    """Of a run, where the options do not say how long it is, and the gate does."""
    halves: Halves | None
    """Cores for each side; None to measure one side after the other, on all cores."""
    to_its_end: bool
    """Whether the whole budget is spent, however clear the answer is: to learn how much noise it leaves."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """A revision to measure."""

    revision: BuiltRevision
    name: str
    out: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Running:
    """A sweep of a side that was started."""

    side: Side
    process: subprocess.Popen[bytes]
    log: Path


def measure(
    baseline: BuiltRevision, candidate: BuiltRevision, measuring: Measuring, say: Callable[[str], None]
) -> Gate:
    """Measures both and judges. Raises ValueError when a side refuses the options, NoStillWork because of `STILL`."""
    sides = {
        role: Side(revision=revision, name=f"{role} {revision.label}", out=measuring.out / role)
        for role, revision in (("baseline", baseline), ("candidate", candidate))
    }
    read = functools.cache(read_work)  # a run that has ended does not change, and each look judges all of them
    if measuring.halves:
        with before_others() as permitted:
            if not permitted:
                say(SELDOM)
    began = time.monotonic()
    longest_s, counted, uncounted = 0.0, 0, set[int]()
    while True:
        number = counted + len(uncounted)
        order, seed = list(sides.values())[:: 1 if number % 2 == 0 else -1], measuring.first_seed + number
        repetition_began = time.monotonic()
        left_s = max(0.0, measuring.budget_s - (repetition_began - began))
        names = (" beside " if measuring.halves else ", then ").join(side.name for side in order)
        say(f"repetition {counted + 1}: {names}, seed {seed}; {left_s:,.0f} s left at most")
        repeat(order, measuring, seed)
        now = time.monotonic()
        longer, counts = lengthened(order, measuring, seed, say)
        more_s = (longer.seconds or 0.0) - (measuring.seconds or 0.0)
        measuring, longest_s = longer, max(longest_s, now - repetition_began) + more_s
        spent = now - began + longest_s > measuring.budget_s
        if not counts and not spent:
            uncounted.add(seed)
            continue
        counted += 1
        level = LEVEL if spent else LOOK_LEVEL
        gate = _judged(sides, measuring, uncounted, level, read)
        clear = gate.outcome in {"passed", "regression"} and counted >= LEAST_REPETITIONS
        if spent or (clear and not measuring.to_its_end) or gate.outcome == "not comparable":
            return gate
        say(f"after {counted} of each, {100 * level:g} % intervals: {gate.sentence}")


def _judged(
    sides: Mapping[str, Side], measuring: Measuring, uncounted: Collection[int], level: float, read: ReadWork
) -> Gate:
    found = [
        Runs(
            name=side.revision.label,
            runs=pooled([run for run in store.read_runs(side.out) if _seed(run) not in uncounted], role),
            unreadable=store.half_written(side.out),
        )
        for role, side in sides.items()
    ]
    if measuring.goal:
        return judge_learning(*found, goal=measuring.goal, tolerance=measuring.tolerance, level=level)
    return judge(*found, tolerance=measuring.tolerance, level=level, read=read)


def lengthened(
    sides: Sequence[Side], measuring: Measuring, seed: int, say: Callable[[str], None]
) -> tuple[Measuring, bool]:
    """With longer runs, if those of a seed have too few iterations; and whether those count.

    Runs get no longer than the budget has room for. Those that cannot be longer count.
    """
    if measuring.seconds is None:
        return measuring, True
    runs = [run for side in sides for run in store.read_runs(side.out) if _seed(run) == seed]
    windows = [window for run in runs if (window := run.record.figures.window) is not None]
    fewest = min((window.last_iteration + 1 for window in windows), default=ENOUGH)
    wanted_s = measuring.seconds * min(MOST_LONGER, ENOUGH / fewest)
    room_s = measuring.budget_s / (LEAST_REPETITIONS + 1) / (len(runs) / len(sides))  # a side has a run of each cell
    longer_s = math.ceil(min(wanted_s, room_s))
    if fewest >= ENOUGH or longer_s <= measuring.seconds:
        return measuring, True
    counts = fewest > 1
    few = f"a run of {measuring.seconds:g} s has {fewest} of {ENOUGH} iterations"
    say(f"{few}: {'' if counts else 'it does not count, and '}the others take {longer_s} s")
    return replace(measuring, seconds=longer_s), counts


def _seed(run: store.StoredRun) -> int:
    return run.record.cell.seed


def repeat(order: Sequence[Side], measuring: Measuring, seed: int) -> None:
    """A sweep of each of two sides with a seed: at once, or in this order. Raises as `measure` does."""
    for beside in [order] if measuring.halves else [[side] for side in order]:
        _run(beside, measuring, seed)


def _run(beside: Sequence[Side], measuring: Measuring, seed: int) -> None:
    """A sweep of one side, or of both at once. Failed runs stay in the folder, where the judgement finds them."""
    started: list[Running] = []
    try:
        for side, cores in zip(beside, measuring.halves or [None], strict=True):
            started.append(_start(side, measuring, seed, cores))
        if measuring.halves:
            swap_until_one_ends([running.process for running in started], measuring.halves)
            for running in started:  # if a side refuses its options, nobody needs the other
                if running.process.poll() not in {None, OK, RUN_FAILED}:
                    _check(running)
        for running in started:
            running.process.wait()
    except BaseException as problem:
        for running in started:
            _end(running.process, was_asked=isinstance(problem, KeyboardInterrupt))
        raise
    for running in started:
        _check(running)


def _start(side: Side, measuring: Measuring, seed: int, cores: Sequence[int] | None) -> Running:
    side.out.mkdir(parents=True, exist_ok=True)
    tree, out, log = side.revision.tree, side.out.absolute(), side.out / f"seed-{seed}.log"
    length = [] if measuring.seconds is None else ["--seconds", f"{measuring.seconds:g}"]
    command = [*side.revision.rlbench, "run", *measuring.options, *length, "--seeds", str(seed), "--out", str(out)]
    with log.open("xb") as file, on_cores(cores):
        process = subprocess.Popen(command, cwd=tree, env=variables(), stdout=file, stderr=file)  # noqa: S603  its own
    return Running(side=side, process=process, log=log)


def _check(running: Running) -> None:
    """Raises ValueError where a run that has ended had refused its options."""
    code = running.process.returncode
    if code not in {OK, RUN_FAILED}:
        lines = running.log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or [f"exit code {code}"]
        raise (NoStillWork if UNKNOWN in lines[-1] else ValueError)(f"{running.side.name}: {lines[-1]}")


def _end(process: subprocess.Popen[bytes], *, was_asked: bool) -> None:
    """Waits for a run that was asked to end, then asks it, then kills it; stops as soon as it has ended."""
    for ask in (None, process.terminate, process.kill)[0 if was_asked else 1 :]:
        if ask is not None:
            ask()
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
            return
