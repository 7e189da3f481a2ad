from __future__ import annotations

import gc

import pytest

from benchmarks.gate import beside


class Clock:
    """Time that passes only where somebody lets it."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_the_shortest_look_of_each_side_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that takes three times as long as the reference, on a machine that is now and then ten times as slow."""
    clock = Clock()
    monkeypatch.setattr(beside, "thread_time", clock)
    calls = {"call": 0, "reference": 0}
    collecting = {}

    def take(name: str, seconds: float) -> None:
        calls[name] += 1
        collecting[name] = gc.isenabled()
        clock.now_s += seconds * (10 if calls[name] % 97 == 0 else 1)

    ratio = beside.time_beside(lambda: take("call", 3e-4), lambda: take("reference", 1e-4))
    assert ratio.value == pytest.approx(3)
    assert ratio.low == pytest.approx(3)
    assert ratio.high == pytest.approx(3)
    assert (collecting, gc.isenabled()) == ({"call": False, "reference": False}, True)
