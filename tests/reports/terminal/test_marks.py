from __future__ import annotations

import io
from collections.abc import Sequence

import pytest
from rich.console import Console

from rlbench.reports.terminal.table import print_table
from rlbench.results.summary.document import Comparison
from tests.reports.summaries import make_summary
from tests.results.summaries import make_cell, make_comparison


def printed(comparisons: Sequence[Comparison], *, colours: bool = False) -> str:
    """The table of three systems on 8 GPUs."""
    cells = [make_cell("ver", 8, 900.0), make_cell("sync", 8, 600.0), make_cell("ddppo", 8, 700.0)]
    file = io.StringIO()
    console = Console(
        file=file, width=100, highlight=False, force_terminal=colours, color_system="standard" if colours else None
    )
    print_table(make_summary(*cells, comparisons=list(comparisons)), console)
    return file.getvalue()


def marks(text: str) -> list[str]:
    """What stands behind the rate in each row."""
    return [line.split("|")[1].strip().partition(" ")[2] for line in text.splitlines()[5:] if "|" in line]


SLOWER = make_comparison("ver", "sync", 1.5, (1.4, 1.6))
UNLIKE = make_comparison("ver", "sync", 1.5, (1.4, 1.6), comparable=False)


@pytest.mark.parametrize(
    ("comparisons", "expected", "legend"),
    [
        ((SLOWER, make_comparison("ver", "ddppo", 1.3, (1.2, 1.4))), ["*", "", ""], "* fastest (95 %)"),
        (
            (SLOWER, make_comparison("ver", "ddppo", 1.3, (0.9, 1.7))),
            ["~", "~", ""],
            "~ no significant difference from the fastest",
        ),
        ((SLOWER, make_comparison("ver", "ddppo", 1.3)), ["?", "", ""], "? highest, not tested"),
        (
            (UNLIKE, make_comparison("ver", "ddppo", 1.3, (1.2, 1.4))),
            ["*", "", "!"],
            "* fastest (95 %); ! not comparable",
        ),
    ],
)
def test_the_best_is_marked_as_far_as_intervals_tell(
    comparisons: Sequence[Comparison], expected: list[str], legend: str
) -> None:
    """A star only where all others are slower at 95 %; each mark is explained below the table."""
    text = printed(comparisons)
    assert marks(text) == expected
    assert legend in text.splitlines()


def test_a_system_alone_is_not_marked() -> None:
    """Without comparisons nothing is the best."""
    assert marks(printed(())) == ["", "", ""]
    assert "fastest" not in printed(())


def test_the_best_is_bold_in_a_terminal() -> None:
    """The star says it to those who see no colours."""
    faster = (SLOWER, make_comparison("ver", "ddppo", 1.3, (1.2, 1.4)))
    bold = [line for line in printed(faster, colours=True).splitlines() if "\x1b[1m" in line and "|" in line]
    assert [("ver" in line, "*" in line) for line in bold[1:]] == [(True, True)]  # the first is the title
    assert "\x1b" not in printed(faster)
