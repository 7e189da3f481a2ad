from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rlbench.harness.contract.budget import Limits
from rlbench.harness.contract.device import Place
from rlbench.harness.contract.settings import Message
from rlbench.harness.contract.system import Context
from rlbench.harness.metering.meter import LagSummary, RankMeter
from rlbench.harness.processes.told import Sender, StopRequests, Told, read_told
from rlbench.systems.engine.rank.agreed_progress import NUM_RECENT_EPISODES, RunProgress
from tests.scenarios.seats import PlainDevice
from tests.systems.engine.counting import CountingScenario

NUM_HEAD = 5
"""Of what ranks exchange, before episodes and statistics: learned, stop, ranks, seconds, broken off."""
SENDER = Sender(pid=812, uid=0, name="earlyoom")


class Others:
    """An averager among ranks that all know the same as this one, or what is given."""

    def __init__(self, *, num_ranks: int = 1, is_synchronous: bool = True) -> None:
        self.num_ranks, self.is_synchronous = num_ranks, is_synchronous
        self.exchanged: list[NDArray[np.float64]] = []

    def agree(self, own: NDArray[np.float64], num_lasting: int) -> NDArray[np.float64]:  # noqa: ARG002  none is gone
        """The sum over ranks that are alike."""
        self.exchanged.append(own.copy())
        return own * self.num_ranks

    def is_over(self, own: bool) -> bool:
        """This rank's opinion."""
        return own

    def statistics(self) -> dict[str, float]:
        """One."""
        return {"distance": 0.25}


class Synchronized(PlainDevice):
    """A device that counts how often ranks were synchronised; they say nothing else at the end of an iteration."""

    def __init__(self) -> None:
        super().__init__("cpu")
        self.num_synchronized = 0

    def communicate(self, message: Message, peer: int = 0) -> None:
        """Counts."""
        assert (message, peer) == ("synchronize", 0)
        self.num_synchronized += 1


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Context]:
    """Of a rank alone, with a budget of three iterations."""
    meter = RankMeter(tmp_path, 0, 4)
    yield Context(
        place=Place(rank=0, num_ranks=1, local_rank=0),
        scenario=CountingScenario(),
        device=Synchronized(),
        seed=0,
        budget=Limits(iterations=3),
        meter=meter,
        folder=str(tmp_path),
        stall_s=60,
    )
    meter.close()


def progress_of(
    context: Context, others: Others, *, all_learn: bool = True, requests: StopRequests | None = None
) -> RunProgress:
    """Progress with these others."""
    asked = requests or StopRequests()
    return RunProgress(context, others, asked, all_learn=all_learn)  # type: ignore[arg-type]  # no more of them


def rows(context: Context) -> list[dict[str, Any]]:
    """The time series so far."""
    path = Path(context.folder, "series-rank0.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_over_when_the_budget_is_spent(context: Context) -> None:
    """Iterations are counted; the last one of the budget ends the run."""
    progress = progress_of(context, Others())
    assert [progress.end_iteration({}) for _ in range(3)] == [False, False, True]
    assert [row["iteration"] for row in rows(context)] == [0, 1, 2]


@pytest.mark.parametrize(("num_ranks", "expected"), [(1, [False, False, False, True]), (4, [True])])
def test_env_steps_are_those_of_all_ranks(context: Context, num_ranks: int, expected: list[bool]) -> None:
    """A budget in env steps is spent by all ranks together."""
    progress = progress_of(replace(context, budget=Limits(env_steps=40)), Others(num_ranks=num_ranks))
    for is_over in expected:
        context.meter.learned(10, LagSummary(0, 0))
        assert progress.end_iteration({}) == is_over


def test_a_rank_that_is_told_to_stop_ends_the_run_after_the_iteration(context: Context) -> None:
    """The next end of an iteration says that the run is over, and tells the other ranks; who told it is left."""
    others, requests = Others(), StopRequests()
    progress = progress_of(context, others, requests=requests)
    assert not progress.end_iteration({})
    requests.sender = SENDER
    assert progress.end_iteration({})
    assert [own[1] for own in others.exchanged] == [0, 1]
    assert read_told(Path(context.folder), [0, 1]) == [Told(rank=0, iteration=1, sender=SENDER)]


def test_a_rank_that_is_told_to_stop_in_the_last_iteration_ends_nothing_early(context: Context) -> None:
    """Where the budget is spent in the same iteration, the run is finished: nothing is left."""
    requests = StopRequests()
    progress = progress_of(context, Others(), requests=requests)
    assert not any(progress.end_iteration({}) for _ in range(2))
    requests.sender = SENDER
    assert progress.end_iteration({})
    assert read_told(Path(context.folder), [0]) == []


def test_ranks_that_wait_for_the_one_that_learns_hear_that_it_broke_off(context: Context) -> None:
    """The iteration does not count for them: the run is over without it."""
    others = Others(num_ranks=2)
    learner = progress_of(context, others, all_learn=False)
    learner.break_off()
    (told,) = others.exchanged
    assert told[NUM_HEAD - 1] == 1

    class Hears(Others):
        def agree(self, own: NDArray[np.float64], num_lasting: int) -> NDArray[np.float64]:
            del num_lasting
            return own + told

    assert progress_of(context, Hears(), all_learn=False).end_iteration({})
    assert rows(context) == []


def test_statistics_are_means_over_ranks(context: Context) -> None:
    """Training statistics go into the time series as means over the ranks, beside those of averaging."""
    progress = progress_of(context, Others(num_ranks=4))
    progress.end_iteration({"loss": 2.0, "entropy": 1.0})
    (row,) = rows(context)
    assert (row["loss"], row["entropy"], row["distance"]) == (2.0, 1.0, 0.25)


def test_owners_of_devices_exchange_no_statistics(context: Context) -> None:
    """Where rank 0 alone learns, its statistics stay its own, and ranks exchange arrays of one length."""
    learner, owner = Others(num_ranks=2), Others(num_ranks=2)
    progress_of(context, learner, all_learn=False).end_iteration({"loss": 2.0})
    progress_of(context, owner, all_learn=False).end_iteration({})
    assert len(learner.exchanged[0]) == len(owner.exchanged[0])
    assert [row.get("loss") for row in rows(context)] == [2.0, None]
    assert isinstance(context.device, Synchronized)
    assert context.device.num_synchronized == 0, "nobody waits for all ranks"


@pytest.mark.parametrize(("is_synchronous", "expected"), [(True, 1), (False, 0)])
def test_ranks_in_step_synchronise(context: Context, is_synchronous: bool, expected: int) -> None:
    """An iteration of ranks that are in step costs one synchronisation of the devices; others cost none."""
    progress_of(context, Others(is_synchronous=is_synchronous)).end_iteration({})
    assert isinstance(context.device, Synchronized)
    assert context.device.num_synchronized == expected


def episodes(num: int, value: float) -> NDArray[np.float32]:
    """Episodes with this return, of 10 steps, without success or SPL."""
    return np.tile(np.array([value, 10, np.nan, np.nan], np.float32), (num, 1))


def test_metrics_are_means_of_the_last_episodes(context: Context) -> None:
    """Metrics are there once all ranks together have enough episodes, as means over the last ones that have them."""
    progress = progress_of(context, Others())
    progress.note_episodes(episodes(NUM_RECENT_EPISODES - 1, 1.0))
    progress.end_iteration({})
    progress.note_episodes(episodes(1, 101.0))
    progress.end_iteration({})
    progress.note_episodes(episodes(NUM_RECENT_EPISODES, 5.0))
    progress.end_iteration({})
    none, first, last = rows(context)
    assert "return" not in none
    assert (first["return"], first["length"]) == (2.0, 10.0)
    assert last["return"] == 5.0
    assert "success" not in last


def test_ranks_share_the_last_episodes(context: Context) -> None:
    """Each of 3 ranks that learn keeps its share of the last episodes; one that learns for all keeps all of them."""
    place = Place(rank=0, num_ranks=3, local_rank=0)
    for all_learn, expected in ((True, 34), (False, NUM_RECENT_EPISODES)):
        others = Others(num_ranks=3)
        progress = progress_of(replace(context, place=place), others, all_learn=all_learn)
        progress.note_episodes(episodes(200, 1.0))
        progress.end_iteration({})
        assert others.exchanged[0][NUM_HEAD] == expected


@pytest.mark.parametrize("is_synchronous", [True, False])
def test_the_clock_is_rank_zeros_where_ranks_are_in_step(
    context: Context, monkeypatch: pytest.MonkeyPatch, is_synchronous: bool
) -> None:
    """Ranks in step go by rank 0's clock, so all end together; others by their own, so that none can stop time."""
    monkeypatch.setattr(RankMeter, "elapsed_s", 100.0)
    others = Others(is_synchronous=is_synchronous)
    place = Place(rank=1, num_ranks=2, local_rank=1)
    progress = progress_of(replace(context, place=place, budget=Limits(seconds=60)), others)
    assert progress.end_iteration({}) == (not is_synchronous)
    assert others.exchanged[0][3] == 0.0
