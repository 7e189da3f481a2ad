from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from rlbench.systems.choices.overlap import Alternate, Continuous, OneAhead
from rlbench.systems.engine.workers import background
from rlbench.systems.engine.workers.background import Background

LIMIT_S = 60.0


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the main thread is that of the tests, which may notice a failure late; else its process would end."""
    monkeypatch.setattr(background, "NOTICE_S", LIMIT_S)


class Loop:
    """Notes what a rank does, and with which rollout; a stream is its own."""

    def __init__(self, folder: Path, num_iterations: int, fails: str = "") -> None:
        self.calls: list[str] = []
        self._folder, self._left, self._fails = folder, num_iterations, fails
        self._num_collected = self._num_taken = 0
        self._stopped = threading.Event()
        self.is_learning, self.is_collecting = threading.Event(), threading.Event()
        self.waits_for_both = False
        self.has_deadline = False
        self.breaks_off_at = 0
        """The barrier at which some rank says that it has broken off its rollout, from 1; 0: none does."""

    def _note(self, call: str) -> None:
        self.calls.append(call)
        if self._fails == call:
            raise LookupError(call)

    def plan(self) -> None:
        """As a rank does."""
        self._note("plan")

    def collect(self) -> None:
        """As a rank does; for the stream until it is stopped."""
        self._num_collected += 1
        if self.waits_for_both and self._num_collected > 1:
            self.is_collecting.set()
            assert self.is_learning.wait(LIMIT_S), "learning does not begin before collecting has ended"
        self._note(f"collect {self._num_collected}")

    def collect_ahead(self) -> None:
        """As a rank does."""
        self.collect()

    def take(self) -> str:
        """As a rank does."""
        self._num_taken += 1
        assert self._num_taken == self._num_collected
        self._note(f"take {self._num_taken}")
        return str(self._num_taken)

    def take_batch(self, max_lag: int) -> str | None:
        """A stream alone has batches."""
        raise NotImplementedError

    def take_newest_weights(self) -> None:
        """As a rank does."""
        self._note("take_newest_weights")

    def wait_for_ranks(self) -> bool:
        """As a rank does."""
        self._note("wait_for_ranks")
        return self.calls.count("wait_for_ranks") == self.breaks_off_at

    def break_off(self) -> None:
        """As a rank does."""
        self._note("break_off")

    def learn(self, experience: str) -> None:
        """As a rank does."""
        if self.waits_for_both:
            assert self.is_collecting.wait(LIMIT_S), "collecting does not begin before learning has ended"
            self.is_learning.set()
        self._note(f"learn {experience}")

    def end_iteration(self) -> bool:
        """Over after so many."""
        self.is_learning.clear()
        self.is_collecting.clear()
        self._note("end")
        self._left -= 1
        return self._left == 0

    def in_background(self, work: Callable[[], None]) -> Background:
        """As a rank does."""
        return Background("sampler", work, self.stop, self._folder / "error.json")

    def wait_for(self, collecting: Background) -> None:
        """As a rank does."""
        collecting.join()

    def stop(self) -> None:
        """Stops the stream."""
        self._stopped.set()

    def stop_stream(self) -> None:
        """As a rank does."""
        self.stop()
        self._note("wake")


class Stream(Loop):
    """A loop whose `collect` never ends by itself, and whose batches are there at once."""

    def collect(self) -> None:
        """Collects until it is stopped."""
        if self._fails == "collect":
            raise LookupError("collect")
        assert self._stopped.wait(LIMIT_S)
        self._note("collected")

    def take_batch(self, max_lag: int) -> str | None:
        """The next batch, of this lag; none any more when the thread that collects has failed."""
        if self._fails == "collect":
            assert self._stopped.wait(LIMIT_S)
            return None
        self._note(f"take_batch {max_lag}")
        return "batch"


def test_alternate_does_one_after_the_other(tmp_path: Path) -> None:
    """Plan, collect, wait for the other ranks, learn on what was collected; again until the budget is spent."""
    loop = Loop(tmp_path, 2)
    Alternate().run(loop)
    one, two = (
        ["plan", f"collect {number}", f"take {number}", "wait_for_ranks", f"learn {number}", "end"] for number in (1, 2)
    )
    assert loop.calls == one + two


def test_one_ahead_learns_on_the_rollout_before(tmp_path: Path) -> None:
    """Rollout k is learned from while k + 1 is collected, with the weights from before; neither waits for the other."""
    loop = Loop(tmp_path, 3)
    loop.waits_for_both = True
    OneAhead().run(loop)
    assert loop.calls[:2] == ["plan", "collect 1"]
    assert len(loop.calls) == 2 + 3 * 7
    for number in (1, 2, 3):
        calls = loop.calls[2 + 7 * (number - 1) : 2 + 7 * number]
        assert calls[:3] == [f"take {number}", "take_newest_weights", "plan"]
        assert sorted(calls[3:5]) == [f"collect {number + 1}", f"learn {number}"]
        assert calls[5:] == ["wait_for_ranks", "end"]


def test_alternate_learns_from_no_rollout_that_a_rank_has_broken_off(tmp_path: Path) -> None:
    """What the barrier says of any rank holds for all: nobody learns, and the iteration does not end."""
    loop = Loop(tmp_path, 5)
    loop.breaks_off_at = 2
    Alternate().run(loop)
    assert loop.calls[-5:] == ["plan", "collect 2", "take 2", "wait_for_ranks", "break_off"]
    assert loop.calls.count("end") == 1


def test_one_ahead_ends_the_iteration_beside_which_a_rollout_was_broken_off(tmp_path: Path) -> None:
    """What was learned meanwhile counts; a first rollout that is broken off is agreed upon before anybody learns."""
    loop = Loop(tmp_path, 5)
    loop.has_deadline, loop.breaks_off_at = True, 3
    OneAhead().run(loop)
    assert loop.calls[-2:] == ["wait_for_ranks", "end"]
    assert [call for call in loop.calls if call.startswith("learn")] == ["learn 1", "learn 2"]
    first = Loop(tmp_path, 5)
    first.has_deadline, first.breaks_off_at = True, 1
    OneAhead().run(first)
    assert first.calls == ["plan", "collect 1", "wait_for_ranks", "break_off"]


def test_continuous_asks_the_other_ranks_before_it_learns_where_there_is_a_limit(tmp_path: Path) -> None:
    """A batch that one rank has not got is learned by none, and the stream is stopped."""
    loop = Stream(tmp_path, 5)
    loop.has_deadline, loop.breaks_off_at = True, 2
    Continuous(max_lag=9).run(loop)
    batch = ["take_batch 9", "wait_for_ranks"]
    assert loop.calls[:7] == [*batch, "learn batch", "end", *batch, "break_off"]
    assert sorted(loop.calls[7:]) == ["collected", "wake"]


@pytest.mark.parametrize("fails", ["collect 1", "collect 3", "learn 2", "plan"])
def test_one_ahead_raises_what_either_thread_raises(tmp_path: Path, fails: str) -> None:
    """Whichever of the two fails, the rank does."""
    with pytest.raises(LookupError, match=fails):
        OneAhead().run(Loop(tmp_path, 5, fails))
    assert list(tmp_path.iterdir()) == []


def test_continuous_learns_until_the_budget_is_spent(tmp_path: Path) -> None:
    """Batches are learned from one after the other; at the end the stream is stopped, and its thread has ended."""
    loop = Stream(tmp_path, 3)
    Continuous(max_lag=9).run(loop)
    assert loop.calls[:9] == ["take_batch 9", "learn batch", "end"] * 3
    assert sorted(loop.calls[9:]) == ["collected", "wake"]


@pytest.mark.parametrize("fails", ["collect", "learn batch", "end"])
def test_continuous_raises_what_either_thread_raises(tmp_path: Path, fails: str) -> None:
    """Whichever of the two fails, the rank does, and the stream is stopped."""
    loop = Stream(tmp_path, 3, fails)
    with pytest.raises(LookupError, match=fails):
        Continuous().run(loop)
    assert loop._stopped.is_set()
    assert "wake" in loop.calls


def test_a_lag_of_none_is_for_alternate() -> None:
    """`Continuous` with no lag at all is refused, and `Alternate` named."""
    with pytest.raises(ValueError, match=r"overlap\.max_lag=0: must be at least 1; for 0 there is overlap=alternate"):
        Continuous(max_lag=0)
