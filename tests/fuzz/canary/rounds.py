"""One round: a hostile place, commands in it, and what each of them must not have done."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from rlbench.results.reading.untrusted import visible
from tests.fuzz.canary import hostile, killed, planted
from tests.fuzz.canary.forks import Ended, Forks
from tests.fuzz.canary.hostile import Scene
from tests.fuzz.canary.library import QUICK_KINDS, SLOW_KINDS, Library, copy
from tests.fuzz.canary.tree import Bystander, Place, changes
from tests.fuzz.canary.words import CODES, NOT_COMPARABLE, QUICK, QUICK_S, RESUMING, SLOW, SLOW_S, Chooser

MOST_OF_ALL, MOST_KILLED, MOST_WORKING = 6, 5, 4
"""Changes of a round at most: of sweeps, of what killed runs have left, of the working folder."""
MOST_CHANGES = MOST_OF_ALL + MOST_KILLED + MOST_WORKING
PYTHONS_WORDS = re.compile(
    r"\[Errno|codec can't|object has no attribute|embedded null|unsupported operand|not subscriptable|list index|"
    r"unhashable|Traceback \(most|Warning: |invalid literal|required positional|unexpected keyword|NoneType"
)
"""What an error says that nobody has thought of."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Of a round: what is drawn from the seed, less what is left out to find what is needed for a fault."""

    seed: int
    number: int
    commands: tuple[str, ...]
    without: frozenset[int] = frozenset()
    """Changes that are left out, by their numbers."""
    unsaid: frozenset[int] = frozenset()
    """Commands that are left out, by their places."""

    @property
    def is_slow(self) -> bool:
        """Whether it runs cells."""
        return any(name in SLOW for name in self.commands)


@dataclass(kw_only=True, slots=True)
class Fault:
    """Something that a command has done."""

    plan: Plan
    at: int
    """The place of the command."""
    words: list[str]
    what: str
    kind: str
    """Faults of the same cause have the same, as far as can be told."""
    done: list[str]
    """How the place was made hostile."""


@dataclass(kw_only=True, slots=True)
class Round:
    """What became of a round."""

    faults: list[Fault] = field(default_factory=list)
    ended: list[tuple[str, Ended]] = field(default_factory=list)
    num_changes: int = 0


def play(
    plan: Plan, place: Place, library: Library, bystander: Bystander, forks: Forks, limit_s: float = QUICK_S
) -> Round:
    """Makes the place and runs the commands in it, quick ones for at most `limit_s`; the place is left."""
    done = make_hostile(plan, place, library, bystander)
    played, seen = Round(num_changes=len(done)), place.look()
    for at, name in enumerate(plan.commands):
        if at in plan.unsaid:
            continue
        draws = np.random.default_rng([plan.seed, plan.number, 1, at, _number(name)])
        words = (QUICK | RESUMING | SLOW)[name](Chooser(place, draws))
        longest_s = limit_s if name in QUICK else SLOW_S  # a cell whose record was spoilt is run again
        ended = forks.run(words, place.here, place.variables(), longest_s)
        played.ended.append((name, ended))
        now = place.look()
        found = [*printed(name, ended), *_changed(changes(seen, now), place)]
        if not bystander.lives:
            found.append(("ends a process of the user's", f"process {bystander.pid}"))
            bystander.again()
        for kind, what in found:
            played.faults.append(Fault(plan=plan, at=at, words=words, what=what, kind=f"{name}: {kind}", done=done))
        seen = now
    return played


def make_hostile(plan: Plan, place: Place, library: Library, bystander: Bystander) -> list[str]:
    """Makes a place; returns a line for each change."""
    draws = np.random.default_rng([plan.seed, plan.number, 0])
    place.make()
    planted.make_here(place.here, library.folder / "repository", place.out)
    kinds = SLOW_KINDS if plan.is_slow else QUICK_KINDS
    done = []
    for day in range(1, 1 + int(draws.integers(1, 3))):
        kind = kinds[int(draws.integers(len(kinds)))]
        name = f"202601{day:02d}-000000-{int(draws.integers(16**4)):04x}"
        copy(library, kind, place.out, name, place)
        done.append(f"{name}: {kind}")
    groups = ((hostile.CHANGES, MOST_OF_ALL), (killed.CHANGES, MOST_KILLED), (planted.CHANGES, MOST_WORKING))
    changed: list[Callable[[Scene], str]] = []
    for group, most in groups:
        some = draws.integers(0, most // (1 + plan.is_slow) + 1)  # of many changes, one has nothing run
        changed += [group[int(draws.integers(len(group)))] for _ in range(int(some))]
    for at, change in enumerate(changed):
        if at not in plan.without:
            own = np.random.default_rng([plan.seed, plan.number, 2, at])
            try:
                said = change(Scene(place, own, bystander.pid))
            except OSError as problem:  # an earlier one has made it impossible
                said = f"nothing ({problem.strerror})"
            if not said.startswith("nothing"):
                done.append(f"[{at}] {change.__name__}: {said}")
    return done


def _number(name: str) -> int:
    return sum(ord(letter) << (at % 24) for at, letter in enumerate(name))


def printed(name: str, ended: Ended) -> Iterable[tuple[str, str]]:
    """What is wrong with how a command ended, and with what it printed."""
    if ended.hung:
        where = re.findall(r'File "(?!.*/python3).*?/(\w+/\w+\.py)", line (\d+) in (\w+)', ended.err)
        yield f"hangs in {where[0] if where else '?'}", f"hangs\n{ended.err[-3000:]}"
        return
    if ended.left:
        yield "processes are left", "\n".join(ended.left)
    allowed = CODES | ({NOT_COMPARABLE} if name.startswith("gate") else set())
    text = ended.out + ended.err
    if "Traceback (most recent call last)" in ended.err:
        last = [line for line in ended.err.splitlines() if line.strip()][-1]
        places = re.findall(r'File ".*?/(\w+/\w+\.py)", line (\d+)', ended.err)
        yield f"traceback at {places[-1] if places else '?'}: {last.partition(':')[0]}", ended.err[-4000:]
    elif ended.code not in allowed:
        yield f"exit code {ended.code}", f"exit code {ended.code}\n{text[-2000:]}"
    elif ended.code == 2 and (ended.err.count("\n") != 1 or not ended.err.startswith("rlbench: ")):
        yield "not one line", f"not one line:\n{ended.err[-2000:]}"
    elif found := PYTHONS_WORDS.search(ended.err):
        yield f"says {found[0]!r}", ended.err[-2000:]
    if "\x1b" in text or text != visible(text):
        yield "an escape sequence", ascii(text[-3000:])


def _changed(lines: list[str], place: Place) -> Iterable[tuple[str, str]]:
    if lines:
        root = str(place.root)
        what = {line.replace(root, "").partition("/")[2].partition("/")[0] + line.rpartition(":")[2] for line in lines}
        yield f"{'; '.join(sorted(what))}", "\n".join(lines[:40])
