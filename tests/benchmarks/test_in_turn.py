from __future__ import annotations

import pytest

from benchmarks.in_turn import compare


def test_sides_take_turns() -> None:
    """Each round is ours, theirs, theirs, ours, and the ratio is that of the medians."""
    order: list[str] = []
    ours_figures, theirs_figures = iter([10.0, 20.0, 30.0, 40.0]), iter([5.0, 5.0, 10.0, 20.0])

    def ours() -> float:
        order.append("A")
        return next(ours_figures)

    def theirs() -> float:
        order.append("B")
        return next(theirs_figures)

    compared = compare(ours, theirs, 2)
    assert "".join(order) == "ABBAABBA"
    assert list(compared.ours) == [10, 20, 30, 40]
    assert compared.ratio == pytest.approx(25 / 7.5)
    assert list(compared.lines("us", "them"))[-1].endswith(": 3.33")
