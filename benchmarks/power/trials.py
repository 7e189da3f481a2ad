"""The gates that are measured, and what is kept of each.

A trial runs `rlbench gate` once, in a clone with planted commits, and gives a row. Rows are appended to a file, and
trials whose key has one are not run again.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.against.programs import processor, rlbench
from benchmarks.power.neighbour import busy_neighbour
from benchmarks.power.planted import Clone, Slow
from rlbench.results.verdicts.gate import EXIT_CODES

Row = dict[str, Any]
EMULATED = "--scenario emulated/open-fridge --gpus 4 --device emulated --time-scale 2"
"""Four ranks have one core: at its usual pace they would often wait for it, and emulated figures would be too low."""
SCENARIOS = {
    "pointnav": "--scenario pointnav --gpus 1 --device cpu",
    "atari": "--scenario atari --gpus 1 --device cpu",
    "vizdoom": "--scenario vizdoom --gpus 1 --device cpu",
    "emulated x4": EMULATED,
}
CELLS = {
    f"{system} {name}": f"--systems {system} {options}"
    for name, options in SCENARIOS.items()
    for system in ("ver", "appo")
}
IN_TURN = ("ver pointnav", "ver emulated x4")
"""Of which it is also measured what gates see whose sides run one after the other: cores compute, or mostly sleep."""
SLEEPING = "--scenario emulated/open-fridge --gpus 1 --device emulated"
OPTIONS = CELLS | {f"{system} emulated x1": f"--systems {system} {SLEEPING}" for system in ("ver", "appo")}
"""Of `CELLS`, and of the cells in which cores have time to sleep."""
PLANTED = (
    ("sleep", "ver emulated x1"),
    ("sleep", "appo emulated x1"),
    ("copy", "ver pointnav"),
    ("copy", "appo atari"),
    ("copy", "ver vizdoom"),
    ("copy", "appo emulated x4"),
    ("lock", "appo pointnav"),
    ("lock", "ver atari"),
    ("lock", "appo vizdoom"),
    ("lock", "ver emulated x4"),
)
"""What is slower, and where. A sleep costs nothing on a CPU that other processes keep busy meanwhile."""
LOSS = 0.03
SAME_BUDGET_S, BUDGET_S, SEARCH_BUDGET_S = 120, 300, 1800
"""For commits that change nothing; for floors and losses, and to find the amount; to search."""
STRICT = ("--tolerance", "0.01")
"""A loss of `LOSS` is beyond it by what is to be seen, two hundredths."""
NUM_SAME, NUM_EACH, NUM_COMMITS, NUM_TURNS = 100, 4, 40, 2
SEARCHED = ((3, 2), (11, 0), (20, 4), (28, 6), (37, 9))
"""Which commit is slow, and which of `PLANTED` it is."""
FIRST_AMOUNTS = {"sleep": 1e-3, "copy": 4e6, "lock": 1e-3}
CLOSE = 1.35
"""The amount is found once one is known that costs `LOSS` give or take this factor."""
MOST_TRIES = 6
SEEN = re.compile(r"95 of 100 such gates see a change of ([\d.]+) %")
FOUND = re.compile(r"first slow commit: (\w+) with a probability of (\d+)%")


def read_rows(path: Path) -> dict[str, Row]:
    """All rows of a file, by key; none where it is missing."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {row["key"]: row for row in map(json.loads, lines)}


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Where trials run, and what is known of earlier ones."""

    clone: Clone
    rows: Path
    say: Callable[[str], None]

    def once(self, key: str, measure: Callable[[], Row]) -> Row:
        """The row of a trial, which is measured unless it was before."""
        known = read_rows(self.rows).get(key)
        if known is None:
            began = time.monotonic()
            known = {"key": key, **measure(), "seconds": round(time.monotonic() - began, 1), "machine": processor()}
            with self.rows.open("a", encoding="utf-8") as file:
                file.write(json.dumps(known) + "\n")
            self.say(json.dumps(known))
        return known

    def gate(self, cell: str, *words: str, beside: bool = False) -> tuple[str, Mapping[str, Any]]:
        """Runs a gate of a cell; gives what it printed, and what it wrote as JSON, which is nothing for a search."""
        with tempfile.TemporaryDirectory(prefix="rlbench-power-") as out, busy_neighbour() if beside else nullcontext():
            written = Path(out, "gate.json")
            files = ("--out", out) if "--bisect" in words else ("--out", out, "--json", str(written))
            command = [*rlbench(), "gate", *OPTIONS[cell].split(), *words, *files]
            with subprocess.Popen(
                command,
                cwd=self.clone.folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,  # it gets no Ctrl-C: a second signal would break off its cleaning up
            ) as gate:
                try:
                    printed, _ = gate.communicate()
                except KeyboardInterrupt:
                    gate.terminate()
                    gate.communicate()
                    raise
            document = json.loads(written.read_text(encoding="utf-8")) if written.exists() else {}
        if gate.returncode not in EXIT_CODES.values():
            raise ValueError(f"{' '.join(command)}: {printed}")
        return printed, document

    def judged(self, cell: str, change: Slow | None, *words: str) -> Row:
        """A gate of a commit with a change against the one before it."""
        (candidate,) = self.clone.commits([change])
        _, document = self.gate(cell, "--baseline", self.clone.commit, "--candidate", candidate, *STRICT, *words)
        (check,) = [check for check in document["checks"] if check["metric"] == "steps_per_s"]
        ratio = check["ratio"]
        if ratio is None:
            raise ValueError(f"{cell}: {check['outcome']}: {check['reason']}")
        return {
            "cell": cell,
            "outcome": check["outcome"],
            **{name: ratio[name] for name in ("value", "low", "high")},
            "runs": min(check["num_runs"]),
        }


def floors(bench: Bench) -> Iterator[Row]:
    """What change gates of five minutes see, on an idle machine and beside a busy neighbour."""
    for beside in (False, True):
        for cell in CELLS:

            def measure(cell: str = cell, *, beside: bool = beside) -> Row:
                return {**_floor(bench, cell, beside=beside), "busy": beside}

            yield bench.once(f"floors/{'busy' if beside else 'idle'}/{cell}", measure)


def turns(bench: Bench) -> Iterator[Row]:
    """What change gates of five minutes see whose sides run one after the other, on an idle machine."""
    for number in range(NUM_TURNS):
        for cell in IN_TURN:

            def measure(cell: str = cell) -> Row:
                return _floor(bench, cell, "--in-turn")

            yield bench.once(f"turns/{cell}/{number}", measure)


def _floor(bench: Bench, cell: str, *words: str, beside: bool = False) -> Row:
    printed, _ = bench.gate(cell, "--aa", *words, "--budget", f"{BUDGET_S}", beside=beside)
    seen = SEEN.search(printed)
    return {"cell": cell, "seen": float(seen[1]) if seen else None, "tail": _unless(seen, printed)}


def amount(bench: Bench, kind: str, cell: str) -> float:
    """How much of a kind makes a cell slower by `LOSS`, between amounts of which it is known how slow they make it.

    A cell may have time to spare, so a little can cost nothing.
    """
    wanted = -math.log(1 - LOSS)
    losses, tried = {0.0: 0.0}, FIRST_AMOUNTS[kind]
    for number in range(MOST_TRIES):

        def measure(tried: float = tried) -> Row:
            slow = Slow(kind=kind, amount=tried)
            return {**bench.judged(cell, slow, "--budget", f"{BUDGET_S}", "--seed", "1000"), "amount": tried}

        row = bench.once(f"amount/{kind}/{cell}/{number}", measure)
        tried = row["amount"]
        losses[tried] = -math.log(row["value"])
        more = min((each for each, loss in losses.items() if loss > wanted), default=None)
        less = max(each for each in losses if more is None or each < more)
        if more is None and losses[less] > wanted / CLOSE:
            return less * wanted / losses[less]
        if more is None:
            tried *= 5
            continue
        share = (wanted - losses[less]) / (losses[more] - losses[less])
        tried = less + share * (more - less)
        if losses[more] < CLOSE * wanted or losses[less] > wanted / CLOSE:
            return tried
    raise ValueError(f"no amount of {kind} makes {cell} slower by {LOSS:.0%}")


def losses(bench: Bench) -> Iterator[Row]:
    """Commits that lose `LOSS`, by gates of five minutes at most."""
    for number in range(NUM_EACH):
        for kind, cell in PLANTED:
            slow = Slow(kind=kind, amount=amount(bench, kind, cell))

            def measure(slow: Slow = slow, cell: str = cell, number: int = number) -> Row:
                row = bench.judged(cell, slow, "--budget", f"{BUDGET_S}", "--seed", f"{100 * number}")
                return {**row, "kind": slow.kind, "amount": slow.amount}

            yield bench.once(f"losses/{kind}/{cell}/{number}", measure)


def same(bench: Bench) -> Iterator[Row]:
    """Commits that change nothing, by gates of two minutes at most."""
    cells: Sequence[str] = list(CELLS)
    for number in range(NUM_SAME):

        def measure(cell: str = cells[number % len(cells)], number: int = number) -> Row:
            return bench.judged(cell, None, "--budget", f"{SAME_BUDGET_S}", "--seed", f"{100 * number}")

        yield bench.once(f"same/{number}", measure)


def searches(bench: Bench) -> Iterator[Row]:
    """One slow commit among forty, by searches of half an hour at most."""
    for at, which in SEARCHED:
        kind, cell = PLANTED[which]
        slow = Slow(kind=kind, amount=amount(bench, kind, cell))

        def measure(at: int = at, slow: Slow = slow, cell: str = cell) -> Row:
            commits = _one_slow(bench.clone, at, slow)
            ends = ("--baseline", bench.clone.commit, "--candidate", commits[-1])
            printed, _ = bench.gate(cell, "--bisect", *ends, *STRICT, "--budget", f"{SEARCH_BUDGET_S}")
            found = FOUND.search(printed)
            named = next((commit for commit in commits if found and commit.startswith(found[1])), None)
            return {
                "cell": cell,
                "kind": slow.kind,
                "planted": at,
                "named": None if named is None else commits.index(named) + 1,
                "probability": int(found[2]) if found else None,
                "tail": _unless(found, printed),
            }

        yield bench.once(f"searches/{at}/{kind}/{cell}", measure)


def _unless(found: re.Match[str] | None, printed: str) -> str:
    """The end of what a gate printed, if what its row is about was not found there."""
    return "" if found else printed[-2000:]


def _one_slow(clone: Clone, at: int, slow: Slow) -> list[str]:
    """Forty commits, of which the one with number `at`, counted from 1, is the slow one."""
    return clone.commits([slow if number == at else None for number in range(1, NUM_COMMITS + 1)])


PARTS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "floors": floors,
    "turns": turns,
    "losses": losses,
    "searches": searches,
    "same": same,
}
"""In the order in which they are measured."""
