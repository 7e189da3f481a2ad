"""Measures two revisions in turn, A B B A ..., until the answer is clear or the budget is spent.

Repetition k has the same seed on both sides, and the order alternates, so that a machine that slows down, or a
neighbour that comes and goes, affects both alike; the judgement compares them in pairs. One `rlbench` runs at a time;
this process waits for it and starts nothing else. Ctrl-C also reaches the run, which ends its processes. If only this
process was asked to end, it asks the run to end, and kills it if it does not. Then this process ends too.

Early looks: after every repetition the gate is judged at `LOOK_LEVEL`, and ends when nothing is inconclusive. The
intervals of these looks are so wide that they hardly add to the error of the last one, which has the usual level
(Haybittle 1971; Peto et al., British Journal of Cancer 34, 1976).
"""

from __future__ import annotations

import functools
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rlbench.harness.commands.gate.revisions import BuiltRevision
from rlbench.harness.machine.virtualenvs import variables
from rlbench.results.records import store
from rlbench.results.records.work import ReadWork, read_work
from rlbench.results.statistics.intervals import LEVEL
from rlbench.results.verdicts.compare import Runs
from rlbench.results.verdicts.gate import LEAST_REPETITIONS, Gate, judge, pooled

LOOK_LEVEL = 0.999
OK, RUN_FAILED = 0, 1
STILL = ("--protocol", "still")
"""What is measured unless options say otherwise; a revision from before it refuses it as `UNKNOWN` says."""
UNKNOWN = "--protocol still: unknown"
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


def measure(
    baseline: BuiltRevision, candidate: BuiltRevision, measuring: Measuring, say: Callable[[str], None]
) -> Gate:
    """Measures both and judges. Raises ValueError when a side refuses the options, NoStillWork because of `STILL`."""
    sides = {"baseline": baseline, "candidate": candidate}
    names = {side: f"{side} {revision.label}" for side, revision in sides.items()}
    read = functools.cache(read_work)  # a run that has ended does not change, and each look judges all of them
    began, repetition = time.monotonic(), 0
    while True:
        order = list(sides) if repetition % 2 == 0 else list(sides)[::-1]
        for side in order:
            seed = measuring.first_seed + repetition
            left_s = max(0.0, measuring.budget_s - (time.monotonic() - began))
            say(f"repetition {repetition + 1}: {names[side]}, seed {seed}; {left_s:,.0f} s left at most")
            _run(sides[side], names[side], measuring, measuring.out / side, seed)
        repetition += 1
        each_s = (time.monotonic() - began) / repetition
        spent = time.monotonic() - began + each_s > measuring.budget_s
        level = LEVEL if spent else LOOK_LEVEL
        gate = _judged(baseline, candidate, measuring, level, read)
        clear = gate.outcome in {"passed", "regression"} and repetition >= LEAST_REPETITIONS
        if spent or clear or gate.outcome == "not comparable":
            return gate
        say(f"after {repetition} of each, {100 * level:g} % intervals: {gate.sentence}")


def _judged(
    baseline: BuiltRevision, candidate: BuiltRevision, measuring: Measuring, level: float, read: ReadWork
) -> Gate:
    sides = []
    for side, revision in (("baseline", baseline), ("candidate", candidate)):
        folder = measuring.out / side
        runs = store.read_runs(folder) if folder.is_dir() else []
        sides.append(Runs(name=revision.label, runs=pooled(runs, side), unreadable=store.half_written(folder)))
    return judge(*sides, tolerance=measuring.tolerance, level=level, read=read)


def _run(revision: BuiltRevision, name: str, measuring: Measuring, out: Path, seed: int) -> None:
    """One sweep of a revision. Failed runs stay in the folder, where the judgement finds them."""
    out.mkdir(parents=True, exist_ok=True)
    log = out / f"seed-{seed}.log"
    command = [str(revision.rlbench), "run", *measuring.options, "--seeds", str(seed), "--out", str(out.absolute())]
    with log.open("xb") as file:
        running = subprocess.Popen(command, cwd=revision.tree, env=variables(), stdout=file, stderr=file)  # noqa: S603  its own
        try:
            code = running.wait()
        except KeyboardInterrupt:
            _end(running)
            raise
    if code not in {OK, RUN_FAILED}:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or [f"exit code {code}"]
        raise (NoStillWork if UNKNOWN in lines[-1] else ValueError)(f"{name}: {lines[-1]}")


def _end(running: subprocess.Popen[bytes]) -> None:
    """Waits for an interrupted run, then asks it to end, then kills it; stops as soon as it has ended."""
    for ask in (None, running.terminate, running.kill):
        if ask is not None:
            ask()
        with suppress(subprocess.TimeoutExpired):
            running.wait(END_S)
            return
