"""What was raised, as text, whatever the exception does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlbench.harness.processes import process, raised
from tests.harness.hostile.misbehaving_plugin.raises import ODD, ODD_NAMES, TEXTS, NotesRaise, built_in, make_error

KINDS = [kind.__name__ for kind in built_in()]


@pytest.mark.parametrize("text", TEXTS)
def test_every_built_in_exception_fits_a_line(text: str) -> None:
    """With its class in front, nothing that a terminal obeys, and an encodable traceback of bounded length."""
    for kind in KINDS:
        error = make_error(kind, text)
        line, whole = raised.in_a_line(error), raised.whole(error)
        assert line.startswith(kind)
        assert line.isprintable()
        assert len(line) <= raised.MOST_CHARACTERS + raised.SLACK + 50
        assert len(whole.encode()) <= 2 * raised.MOST_TRACEBACK
        assert "\x1b" not in whole


@pytest.mark.parametrize("kind", ODD)
def test_exceptions_that_misbehave_themselves(kind: str, tmp_path: Path) -> None:
    """Their class is told and what their text does; leaving them raises nothing."""
    error = make_error(kind, "plain")
    assert raised.in_a_line(error).startswith(ODD_NAMES[kind])
    process.leave_error(tmp_path / "error-rank0.json", error)
    left = json.loads((tmp_path / "error-rank0.json").read_text())
    assert left["error"].startswith(ODD_NAMES[kind])
    assert len(left["traceback"].encode()) <= 2 * raised.MOST_TRACEBACK


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", "LookupError"),
        (" \n\t\n", "LookupError"),
        ("\n \n the third\nthe fourth", "LookupError: the third"),
        ("half \udcff", r"LookupError: half \udcff"),
        ("\x1b[2Jgone", r"LookupError: \x1b[2Jgone"),
        ("x" * 2_400, f"LookupError: {'x' * 2_400}"),
        ("x" * 12_000, f"LookupError: {'x' * 2_000}… (10,000 characters more)"),
    ],
)
def test_the_first_line_that_is_not_blank_is_told(text: str, shown: str) -> None:
    """Escaped, and cut where it is long; the cut is named."""
    assert raised.in_a_line(LookupError(text)) == shown


def test_what_was_cut_is_not_cut_again() -> None:
    """A line that got a few words before it is left as it is."""
    line = raised.in_a_line(LookupError("x" * 12_000))
    assert raised.in_a_line(RuntimeError(f"environment worker rank0-env1 raised {line}")).endswith(line)


def test_a_long_traceback_keeps_head_and_tail() -> None:
    """Where it was raised, and what."""
    with pytest.raises(LookupError) as told:
        raise LookupError("x" * 10_000_000 + "the end")
    whole = raised.whole(told.value)
    assert whole.startswith("Traceback (most recent call last):\n")
    assert whole.endswith("the end\n")
    assert "characters left out" in whole


def test_where_an_exception_was_raised_that_cannot_be_formatted() -> None:
    """The frames are told, if nothing else."""
    with pytest.raises(NotesRaise) as told:
        raise make_error("NotesRaise", "plain")
    whole = raised.whole(told.value)
    assert "test_where_an_exception_was_raised" in whole
    assert whole.endswith("NotesRaise: notes\n")


@pytest.mark.parametrize("kind", ["SystemExit", "GeneratorExit", "RuntimeError", "BrokenPipeError", "StrExits"])
def test_what_a_plug_in_raises_is_a_line_for_the_user(kind: str) -> None:
    """A ValueError about the plug-in, whose first cause is kept."""
    with (
        pytest.raises(ValueError, match=rf"^scenario odd raised {kind}") as told,
        raised.told_in_a_line("scenario odd"),
    ):
        raise make_error(kind, "plain")
    assert type(told.value.__cause__).__name__ == kind


@pytest.mark.parametrize("error", [ValueError("num_envs=0: must be at least 1"), KeyboardInterrupt()])
def test_what_a_plug_in_says_to_the_user_stays(error: BaseException) -> None:
    """As it was said."""
    with pytest.raises(type(error)) as told, raised.told_in_a_line("scenario odd"):
        raise error
    assert told.value is error


def test_a_value_error_whose_text_misbehaves() -> None:
    """Is told like any other."""

    class OddError(ValueError):
        def __str__(self) -> str:
            raise SystemExit

    with (
        pytest.raises(ValueError, match=r"^scenario odd: <its text raises SystemExit>$"),
        raised.told_in_a_line("scenario odd"),
    ):
        raise OddError
