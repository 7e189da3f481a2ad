from __future__ import annotations

import os
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import rlbench_client
from rlbench_client import counters as counters_of
from rlbench_client import reports
from tests.rlbench_client.reading import counters, read

__all__ = ["counters"]


@pytest.fixture(autouse=True)
def _anew() -> None:
    """As a process that has reported nothing yet."""
    reports._process.forget()


def test_reports_are_summed_and_known_to_be_made(counters: Path) -> None:
    """Each call adds, sets what is reported, and leaves the rest unreported."""
    rlbench_client.learned(10, lag=2)
    rlbench_client.learned(np.int64(3), lag=[1, 2, 6])
    rlbench_client.reused(5)
    rlbench_client.in_flight(7)
    rlbench_client.in_flight(4)
    rlbench_client.iteration()
    (change,) = read(counters)
    counts = change.counts
    assert (counts["learned"], counts["reused"], counts["in_flight"], counts["iterations"]) == (13, 5, 4, 1)
    assert (counts["lag_sum"], counts["lag_max"]) == (29, 6)
    seen = {name for bit, name in enumerate(counters_of.REPORTED) if counts["reported"] >> bit & 1}
    assert seen == {"learned", "reused", "in_flight", "iterations", "lag_sum"}


@pytest.mark.parametrize("amount", [-1, 1.5, "many", None])
def test_what_is_no_count_is_refused(counters: Path, amount: object) -> None:  # noqa: ARG001  it sets the variable
    """A count that is none is an error where it is made, with the rule and the value."""
    with pytest.raises(ValueError, match=r"rlbench_client.discarded\(.*\): must be a whole number of at least 0"):
        rlbench_client.discarded(amount)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"lag=.*must be one number"):
        rlbench_client.learned(2, lag=[1.0, float("nan")])
    with pytest.raises(ValueError, match=r"span\('learning'\): unknown; known: other, "):
        rlbench_client.span("learning")


def test_a_span_pauses_the_one_around_it(counters: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds are counted once, in the innermost span, so that they sum to the time that passed."""
    now_s = 100.0
    monkeypatch.setattr(reports, "time", SimpleNamespace(perf_counter=lambda: now_s))
    with rlbench_client.span("learn"):
        now_s += 0.5
        with rlbench_client.span("communicate"):
            now_s += 4
        now_s += 0.25
    now_s += 32
    with rlbench_client.span("communicate"):
        now_s += 2
    (change,) = read(counters)
    assert (change.seconds["learn"], change.seconds["communicate"]) == (0.75, 6)


def test_threads_lose_no_report_and_one_is_timed(counters: Path) -> None:
    """Reports of several threads all count; spans are of the thread that opened one first."""
    with rlbench_client.span("infer"):
        pass

    def report() -> None:
        for _ in range(2000):
            rlbench_client.learned(1)
            with rlbench_client.span("learn"):
                pass

    threads = [threading.Thread(target=report) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (change,) = read(counters)
    assert change.counts["learned"] == 8000
    assert change.seconds["learn"] == 0


def test_a_forked_process_reports_for_itself(counters: Path) -> None:
    """A child counts in a file of its own, though it was forked inside a span with the lock held."""
    rlbench_client.learned(5)
    with rlbench_client.span("learn"), reports._process.lock:
        child = os.fork()
        if not child:
            rlbench_client.learned(2)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sorted(change.counts["learned"] for change in read(counters)) == [2, 5]
