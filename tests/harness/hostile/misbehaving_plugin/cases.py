"""All ways to go wrong, made by rules: hundreds, no two alike, with what the reason of the run must hold."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .raises import ODD, ODD_NAMES, TEXTS, built_in
from .values import ANSWERS, INFOS, OBSERVATIONS, RESETS, REWARDS

CALLS = ("make-env", "first-reset", "reset", "step", "close")
IN_RANK = ("action-space", "observation-space")
"""Properties of the scenario that raise in rank 0, and not where cells are planned."""
ENDS = {
    "exit": "environment worker rank0-env1 exited with 7",
    "segfault": "environment worker rank0-env1 was killed by SIGSEGV",
    "abort": "environment worker rank0-env1 was killed by SIGABRT",
    "hang": "environment worker rank0-env1 had not ended after 5 s and was killed",
}
"""In `close`; with workers of two environments the label is of the first."""


@dataclass(frozen=True, slots=True)
class Case:
    """A way to go wrong."""

    call: str
    case: str
    told: tuple[str, ...]
    """What the reason, or the warning, must hold."""

    @property
    def scenario(self) -> str:
        """As the command line takes it."""
        return f"misbehaving/{self.call}:case={self.case}"


def _cases() -> Iterator[Case]:
    texts = list(TEXTS)
    raised = [kind.__name__ for kind in built_in()]
    for number, (kind, turn) in enumerate(itertools.product(raised, range(2))):
        call = CALLS[(number + number // len(CALLS) + 2 * turn) % len(CALLS)]
        text = texts[(3 * number + number // len(texts)) % len(texts)]
        yield Case(call, f"{kind}-{text}", (kind, "environment 1"))
    for number, kind in enumerate(ODD):
        for call in (CALLS[number % 2], *CALLS[2:]):
            yield Case(call, f"{kind}-odd", (ODD_NAMES[kind], "environment 1"))
    for call in IN_RANK:
        yield from (Case(call, f"{kind}-plain", (f"rank 0: {kind}",)) for kind in ("SystemExit", "BrokenPipeError"))
        yield Case(call, "StrRaises-odd", ("rank 0: StrRaises",))
    wrong: tuple[tuple[str, dict[str, tuple[Any, str]]], ...] = (
        ("reward", REWARDS),
        ("info", INFOS),
        ("observation", OBSERVATIONS),
        ("answer", ANSWERS),
        ("reset-answer", RESETS),
    )
    for call, values in wrong:
        yield from (Case(call, name, (rule, "environment 1")) for name, (_, rule) in values.items())
    yield from (Case("close", f"end-{end}", (told.partition("env1")[2],)) for end, told in ENDS.items())


CASES = tuple(_cases())
LEARNING = Case(
    "learning", "huge", ("NotFinite: iteration ", "most likely for environment 1, which gave the reward 3e+38")
)
"""A reward that float32 holds, and no loss does: for every system."""
