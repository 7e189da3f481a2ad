"""What is said of a name that is not known: which known one it is near to, and the known ones.

Whatever refuses a name says it by this.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MOST = 18
"""Maximum number of known names in one line."""
NEAR = 0.65
"""Similarity beyond which a name may be the one that was meant, as of difflib."""


def known_names(name: str, names: Iterable[str], *, also: str = "", whole: str = "") -> str:
    """`did you mean 'preempt'? known: collect, …`; a long list is cut, and the nearest comes first in it.

    Args:
        name: what was typed.
        names: those that are known, in the order in which they are listed.
        also: what may stand there beside names: `the path of a .toml file`.
        whole: the command that prints all of a list that is cut.
    """
    listed = list(dict.fromkeys(names))
    near = nearest(name, listed)
    shown = listed
    if len(listed) > MOST:
        shown = [*filter(None, [near]), *(each for each in listed if each != near)][: MOST - 2]
    more = len(listed) - len(shown)
    ends = [f"and {more} more" + (f" (`{whole}` prints all)" if whole else "")] if more else []
    said = ", ".join([*shown, *ends, *([f"or {also}"] if also else [])])
    return f"{f'did you mean {near!r}? ' if near else ''}known: {said or 'none'}"


def known_variants(name: str, variants: Iterable[str], *, also: str = "") -> str:
    """The same of the variants of a scenario."""
    return known_names(name, variants, also=also, whole="rlbench list scenarios")


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The known name that was probably meant, whatever its capitals; also `learn.epochs` where `epochs` was typed."""
    before, dot, typed = _folded(name).rpartition(".")
    best: tuple[float, str | None] = (NEAR, None)
    for each in names:
        inside, _, last = _folded(each).rpartition(".")
        if inside == before:  # what both have in common makes nothing alike
            score = _likeness(typed, last)
        elif dot and inside:
            score = _likeness(f"{before}.{typed}", f"{inside}.{last}")
        else:
            score = float(typed == last)
        best = max(best, (score, each), key=lambda scored: scored[0])
    return best[1]


def _folded(name: str) -> str:
    return name.casefold().replace("_", "-")


def _likeness(a: str, b: str) -> float:
    return difflib.SequenceMatcher(None, a, b).ratio()
