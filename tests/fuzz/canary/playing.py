"""Plays one round after the other, says each fault once, with the changes that it needs, and counts."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np

from tests.fuzz.canary.forks import Forks
from tests.fuzz.canary.library import Library, make_library
from tests.fuzz.canary.rounds import MOST_CHANGES, Fault, Plan, Round, play
from tests.fuzz.canary.tree import Bystander, Place
from tests.fuzz.canary.words import QUICK, QUICK_S, RESUMING, SLOW
from tests.vanishing import vanishing_folder

DEPTH = ("a",) * 4
"""A relative path that is followed from the wrong folder ends above the place, and still in our own folder."""
PER_ROUND = 8
AGAIN_S = 5.0
"""What has hung is known to hang."""


class Player:
    """Use it as a context."""

    quick = (*QUICK, *RESUMING)
    """Commands that each get their turn in some rounds, and in this order in none."""

    def __init__(self, kept: Path, *, seed: int, slow_share: float, library: Library | None = None) -> None:
        """`kept` has the places of rounds with a fault; `slow_share`: of the time, for commands that run cells."""
        self._kept, self._seed, self._slow_share, self._given = kept, seed, slow_share, library
        self._stack = ExitStack()
        self.faults: dict[str, list[Fault]] = defaultdict(list)
        """By kind."""
        self.codes: dict[str, Counter[int]] = defaultdict(Counter)
        self.seconds: dict[str, float] = defaultdict(float)
        self.num_rounds = self.num_changes = 0
        self._slow_seconds = 0.0

    def __enter__(self) -> Self:
        self._folder = self._stack.enter_context(vanishing_folder("cnry-"))
        self._bystander = self._stack.enter_context(Bystander(self._folder.name))
        self._forks = self._stack.enter_context(Forks(self._folder))
        if self._given is None:
            (self._folder / "library").mkdir()
            self._given = make_library(self._folder / "library")
        return self

    def __exit__(self, *details: object) -> None:
        self._stack.close()

    def plan(self, number: int) -> Plan:
        """Of a round: all commands get their turn, in an order that is drawn anew when all had theirs."""
        names, slow = [*self.quick, *RESUMING, *RESUMING], list(SLOW)
        if number < 0:
            turn = -number - 1
            order = np.random.default_rng([self._seed, 3, turn // len(slow)]).permutation(len(slow))
            return Plan(seed=self._seed, number=-number + 10**9, commands=(slow[order[turn % len(slow)]], "results"))
        commands = []
        for turn in range(number * PER_ROUND, (number + 1) * PER_ROUND):
            order = np.random.default_rng([self._seed, 4, turn // len(names)]).permutation(len(names))
            commands.append(names[order[turn % len(names)]])
        return Plan(seed=self._seed, number=number, commands=tuple(commands))

    def play(self, seconds: float, *, first: int = 0, most: int | None = None) -> None:
        """Plays rounds from the first on, as many as there is time for; numbers below 0 are of slow commands."""
        began, number, slow = time.monotonic(), first, min(first, -1)
        while time.monotonic() < began + seconds and (most is None or self.num_rounds < most):
            spent = time.monotonic() - began
            if first < 0 or self._slow_seconds < self._slow_share * spent:
                at = time.monotonic()
                self._round(self.plan(slow))
                slow, self._slow_seconds = slow - 1, self._slow_seconds + time.monotonic() - at
            else:
                self._round(self.plan(number))
                number += 1

    def _round(self, plan: Plan) -> None:
        played, place = self._played(plan)
        self.num_rounds += 1
        self.num_changes += played.num_changes
        for name, ended in played.ended:
            self.codes[name][ended.code] += 1
            self.seconds[name] += ended.seconds
        new = [fault for fault in played.faults if fault.kind not in self.faults]
        for fault in played.faults:
            self.faults[fault.kind].append(fault)
        if new:
            kept = self._kept / f"round-{plan.seed}-{plan.number}"
            self._kept.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(kept, ignore_errors=True)
            # Onto another device, shutil.move would write out endless files that have nothing in them, and omit pipes.
            subprocess.run(["mv", place.root, kept], check=True)
        for fault in new:
            self._say(fault if plan.is_slow else self._smallest(fault))
        shutil.rmtree(place.root, ignore_errors=True)

    def _played(self, plan: Plan, limit_s: float = QUICK_S) -> tuple[Round, Place]:
        """The same place for each round: paths do not depend on what was played before."""
        place = Place(self._folder.joinpath(*DEPTH, "place"), self._bystander.mark)
        shutil.rmtree(place.root, ignore_errors=True)
        assert self._given is not None
        return play(plan, place, self._given, self._bystander, self._forks, limit_s), place

    def _smallest(self, fault: Fault) -> Fault:
        """The fault with no more commands and changes than it needs."""
        before = frozenset(range(len(fault.plan.commands))) - {fault.at}
        after = frozenset(range(fault.at + 1, len(fault.plan.commands)))
        for plan in (replace(fault.plan, unsaid=before), replace(fault.plan, unsaid=after)):
            if found := self._again(plan, fault):
                fault = found
                break
        for number in range(MOST_CHANGES):
            plan = replace(fault.plan, without=fault.plan.without | {number})
            fault = self._again(plan, fault) or fault
        return fault

    def _again(self, plan: Plan, fault: Fault) -> Fault | None:
        """The same fault in a round with less in it, if it is there."""
        return next((each for each in self._played(plan, AGAIN_S)[0].faults if each.kind == fault.kind), None)

    def _say(self, fault: Fault) -> None:
        lines = [
            f"FAULT {fault.kind}",
            f"  seed {fault.plan.seed}, round {fault.plan.number}: rlbench {shlex.join(fault.words)}".encode(
                "unicode_escape"
            ).decode(),
            *(f"  {line}" for line in fault.done),
            *(f"    | {line}" for line in fault.what.splitlines()),
        ]
        sys.stdout.write("\n".join(lines).encode("utf-8", "backslashreplace").decode() + "\n\n")
        sys.stdout.flush()

    def table(self) -> str:
        """How often each command ran, how it ended, and how long it took; what was wrong."""
        lines = [f"{'command':28} {'times':>7} {'seconds':>9}  exit codes"]
        for name in {**QUICK, **RESUMING, **SLOW}:
            codes = self.codes[name]
            each = ", ".join(f"{code}: {number:,}" for code, number in sorted(codes.items()))
            mean = self.seconds[name] / max(1, codes.total())
            lines.append(f"{name:28} {codes.total():>7,} {mean:>9.2f}  {each}")
        total = sum(codes.total() for codes in self.codes.values())
        lines.append(f"{total:,} commands in {self.num_rounds:,} rounds, with {self.num_changes:,} hostile changes")
        lines += [f"{len(faults):,} times: {kind}" for kind, faults in sorted(self.faults.items())]
        lines.append(f"{sum(map(len, self.faults.values())):,} faults of {len(self.faults)} kinds")
        return "\n".join(lines).encode("utf-8", "backslashreplace").decode() + "\n"
