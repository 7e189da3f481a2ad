"""`rlbench gate --bisect`: finds the commit that made a system slower, between a good revision and a bad one.

First the bad revision is measured beside the good one, until it is clear that it is slower. Then each repetition is of
the commit that promises most for its time, beside the good one, until one commit is likely enough or the budget is
spent (`results/verdicts/bisection.py`). Who runs and who waits is as in `harness/commands/gate/repetitions.py`. A
commit that cannot be built, or whose runs fail or do other work, is left out, as by `git bisect skip`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rlbench.harness.commands.gate.repetitions import LOOK_LEVEL, Measuring, NoStillWork, Side, lengthened, repeat
from rlbench.harness.commands.gate.revisions import BuiltRevision, Commit, checked_out
from rlbench.results.records import store
from rlbench.results.verdicts.at_once import paired_rates
from rlbench.results.verdicts.bisection import SURE, Bisection
from rlbench.results.verdicts.compare import Runs
from rlbench.results.verdicts.gate import judge, pooled

FOUND, NO_LOSS, NOT_SURE = 1, 0, 3
"""Exit codes: those of a gate that finds a regression, passes, or is inconclusive."""
ONE_CELL = "--bisect: is of one cell; name one system, number of GPUs, scenario and workload"
SHARE_OF_ENDS = 1 / 3
"""Share of the budget after which the ends must be apart."""


@dataclass(kw_only=True, slots=True)
class Search:
    """A search that is under way."""

    good: str
    commits: list[Commit]
    """After the good one, the oldest first."""
    repository: Path
    folder: Path
    """For work trees."""
    measuring: Measuring
    say: Callable[[str], None]
    built: set[str] = field(default_factory=set)
    build_s: float = 0.0
    """What the last building of an environment took."""
    repetition_s: float = 0.0
    repetition: int = 0

    def run(self) -> int:
        """Searches; returns the exit code. Raises ValueError if the ends cannot be measured, and `NoStillWork`."""
        began = time.monotonic()
        bisection = Bisection(num_commits=len(self.commits))
        last = len(self.commits) - 1
        slower = False
        while True:
            spent_s = time.monotonic() - began
            left_s = self.measuring.budget_s - spent_s
            if not slower:
                ratio = bisection.ratio(last, LOOK_LEVEL)
                slower = ratio is not None and ratio[2] < 1
                if ratio is not None and not slower and spent_s > SHARE_OF_ENDS * self.measuring.budget_s:
                    return self._no_loss(bisection)
            probabilities = bisection.probabilities()
            if slower and (probabilities.max() >= SURE or left_s < self._cost(last)):
                return self._tell(bisection)
            chosen = bisection.next(self._cost) if slower else last
            if chosen is None:
                return self._tell(bisection)
            commit = self.commits[chosen]
            self.say(
                f"{commit.short} ({chosen + 1} of {len(self.commits)}) beside {self.good[:12]}; "
                f"{max(0.0, left_s):,.0f} s left at most"
            )
            problem = self._measure(bisection, chosen)
            if problem:
                if chosen == last:
                    raise ValueError(f"{commit.short}: {problem}")
                bisection.unusable.add(chosen)
                self.say(f"{commit.short} is left out: {problem}")
            elif slower:
                self.say(f"so far: {self._likely(bisection)}")

    def _cost(self, commit: int) -> float:
        """Seconds that a repetition of a commit will take."""
        return max(1e-3, self.repetition_s) + (0.0 if self.commits[commit].name in self.built else self.build_s)

    def _measure(self, bisection: Bisection, chosen: int) -> str:
        """A repetition of a commit beside the good one; why it says nothing, or nothing."""
        name, out = self.commits[chosen].name, self.measuring.out
        try:
            with self._both(name) as (good, candidate):
                sides = (
                    Side(revision=good, name=f"baseline {good.label}", out=out / "baseline"),
                    Side(revision=candidate, name=f"commit {candidate.label}", out=out / name[:12]),
                )
                seed, began = self.measuring.first_seed + self.repetition, time.monotonic()
                repeat(sides if self.repetition % 2 == 0 else sides[::-1], self.measuring, seed)
                self.repetition_s = time.monotonic() - began
                self.measuring, counts = lengthened(sides, self.measuring, seed, self.say)
                if not counts:
                    return ""
        except ValueError as problem:
            if isinstance(problem, NoStillWork) and chosen == len(self.commits) - 1:
                raise
            return str(problem)
        finally:
            self.repetition += 1
        runs = [[run for run in store.read_runs(side.out) if run.record.cell.seed == seed] for side in sides]
        if max(map(len, runs)) > 1:
            raise ValueError(ONE_CELL)
        found = (
            Runs(name=side.name, runs=pooled(each, side.name), unreadable=[])
            for side, each in zip(sides, runs, strict=True)
        )
        gate = judge(*found)
        if gate.outcome == "not comparable":
            return next((check.reason for check in gate.checks), "no run finished")
        good_rates, rates = paired_rates(*runs)
        bisection.add(chosen, rates, good_rates)
        return ""

    @contextmanager
    def _both(self, name: str) -> Iterator[tuple[BuiltRevision, BuiltRevision]]:
        """The good revision and another, built."""
        with ExitStack() as stack:
            made = []
            for commit in (self.good, name):
                began = time.monotonic()
                made.append(stack.enter_context(checked_out(commit, commit, self.repository, self.folder)))
                if commit not in self.built:
                    self.build_s = time.monotonic() - began
                self.built.add(commit)
            yield made[0], made[1]

    def _likely(self, bisection: Bisection) -> str:
        probabilities = bisection.probabilities()
        suspects = bisection.suspects()
        best = int(probabilities.argmax())
        others = f", one of {len(suspects)} that together are {SURE:.0%}" if len(suspects) > 1 else ""
        return f"{self.commits[best].short} with a probability of {probabilities[best]:.0%}{others}"

    def _tell(self, bisection: Bisection) -> int:
        probabilities = bisection.probabilities()
        best = int(probabilities.argmax())
        sure = probabilities[best] >= SURE
        found = bisection.ratio(best)
        assert found is not None  # the last commit was measured
        self.say(f"{'first slow commit' if sure else 'not sure: most likely'}: {self._likely(bisection)}")
        self.say(f"  {self.commits[best].line}")
        self.say(f"from it on, steps/s by those of {self.good[:12]}: {found[0]:.3f} ({found[1]:.3f} to {found[2]:.3f})")
        if not sure:
            for suspect in bisection.suspects():
                self.say(f"  {probabilities[suspect]:4.0%} {self.commits[suspect].line}")
        for commit in sorted(bisection.unusable):
            self.say(f"  left out: {self.commits[commit].line}")
        return FOUND if sure else NOT_SURE

    def _no_loss(self, bisection: Bisection) -> int:
        found = bisection.ratio(len(self.commits) - 1)
        assert found is not None
        clear = found[1] >= 1 - self.measuring.tolerance
        said = "no loss beyond the tolerance" if clear else "inconclusive: whether it is slower was not shown"
        self.say(f"{said}: {self.commits[-1].line}")
        self.say(f"steps/s by those of {self.good[:12]}: {found[0]:.3f} ({found[1]:.3f} to {found[2]:.3f})")
        return NO_LOSS if clear else NOT_SURE
