from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.text import Text

from rlbench.harness.live.footer import Footer, can_rewrite, rows_added

UP = "\x1b[1A"


@pytest.mark.parametrize(
    ("widths", "width", "rows"), [([79, 40], 80, 0), ([79, 40], 79, 0), ([79, 40], 50, 1), ([79, 0, 40], 30, 3)]
)
def test_rows_that_a_narrower_terminal_adds(widths: list[int], width: int, rows: int) -> None:
    """A line that is wider than the terminal takes a row for each width of it."""
    assert rows_added(widths, width) == rows


def test_a_narrower_terminal_is_cleared_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two lines that were broken into four rows are erased upwards from the last one, and written anew."""
    monkeypatch.setenv("TERM", "xterm")
    out = io.StringIO()
    console = Console(file=out, width=80, height=24, force_terminal=True)
    footer = Footer(console)
    footer.open()
    footer.show(Text("x" * 70 + "\n" + "y" * 70))
    out.truncate(0)
    console.width = 40
    footer.show(Text("short\nones"))
    assert out.getvalue().count(UP) == 3
    out.truncate(0)
    footer.show(Text("short\nones"))
    assert out.getvalue().count(UP) == 1
    footer.close()


def test_what_is_no_terminal_is_never_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file and a dumb terminal only take more lines."""
    monkeypatch.setenv("TERM", "xterm")
    assert can_rewrite(Console(file=io.StringIO(), force_terminal=True))
    assert not can_rewrite(Console(file=io.StringIO()))
    monkeypatch.setenv("TERM", "dumb")
    assert not can_rewrite(Console(file=io.StringIO(), force_terminal=True))
