from __future__ import annotations

import pytest

from rlbench.results.reading.names import MOST, known_names, known_variants, nearest

FIELDS = ("collect", "preempt", "preempt.p", "learn.epochs", "learn.step_at", "num_envs")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("preemt", "preempt"),
        ("Num-Envs", "num_envs"),
        ("lern.epochs", "learn.epochs"),
        ("learn.epoch", "learn.epochs"),
        ("epochs", "learn.epochs"),
        ("steps", None),
        ("learn.nope", None),
        ("preempt.q", None),
        ("", None),
    ],
)
def test_the_nearest_name(typed: str, meant: str | None) -> None:
    """Slips of the fingers are seen through, also inside a field; a prefix in common makes nothing alike."""
    assert nearest(typed, FIELDS) == meant


def test_names_in_a_line() -> None:
    """The one that was probably meant comes first, then all, then what else may stand there."""
    assert known_names("jsn", ("csv", "json")) == "did you mean 'json'? known: csv, json"
    assert known_names("x", ("csv", "json"), also="a file") == "known: csv, json, or a file"
    assert known_names("x", ()) == "known: none"


def test_a_long_list_is_cut() -> None:
    """It keeps the one that was meant, counts what it leaves out, and says what prints all."""
    names = [f"game{number}" for number in range(100)]
    said = known_variants("gam99", names)
    assert said.startswith("did you mean 'game99'? known: game99, game0, ")
    assert said.endswith(f"and {100 - MOST + 2} more (`rlbench list scenarios` prints all)")
    assert known_names("x", names[:MOST]).count(",") == MOST - 1
