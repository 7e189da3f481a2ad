from __future__ import annotations

import io

import pytest
from rich.console import Console

from rlbench.harness.live import display
from rlbench.harness.live.counted import Counted
from tests.harness.runs import wait_until


def test_a_terminal_sees_what_is_done_and_then_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place: the step, and how many of all are done; it goes at the end."""
    monkeypatch.setenv("TERM", "xterm")
    out = io.StringIO()
    with Counted(Console(file=out, width=80, force_terminal=True), 3) as progress:
        progress.say("predicting [one]\nof 3")
        progress.advance()
        wait_until(lambda: "predicting [one] of 3" in out.getvalue(), "it is shown")
        wait_until(lambda: "1 of 3 done; for " in out.getvalue(), "so is how far it is")
    assert "\x1b[2K" in out.getvalue()


def test_a_pipe_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing of what is over before."""
    out = io.StringIO()
    with Counted(Console(file=out, width=80)) as progress:
        progress.say("fitting")
    assert out.getvalue() == ""
    monkeypatch.setattr(display, "PLAIN_PERIOD_S", 0.0)
    with Counted(Console(file=out, width=80)) as progress:
        progress.say("fitting")
        wait_until(lambda: out.getvalue().count("\n") > 1, "lines come")
    assert all(line.startswith("fitting; ") for line in out.getvalue().splitlines())
