from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlbench.harness.contract.device import Place
from rlbench.systems.choices.preempt import Threshold, is_preempted
from rlbench.systems.engine.rollouts.monitors import open_monitor
from rlbench.systems.engine.rollouts.rollout import FixedRollout, VariableRollout
from rlbench.systems.engine.wire.group import Group
from tests.harness.command import launch
from tests.systems.engine.ranks import run_ranks

NUM_ITERATIONS = 40


def having(num_steps: int) -> FixedRollout:
    """A rollout of one environment that has taken so many of its 8 steps."""
    rollout = FixedRollout(num_envs=1, target_steps=8)
    rollout.taken[:] = num_steps
    return rollout


def needed(num_ranks: int, p: float) -> int:
    """How many ranks must have finished before another is cut."""
    return next(count for count in range(num_ranks + 2) if is_preempted(count, num_ranks, p, 1, 0))


@pytest.mark.parametrize(
    ("num_ranks", "p", "expected"),
    [(2, 0.6, 2), (3, 0.6, 2), (4, 0.6, 3), (5, 0.6, 4), (8, 0.6, 5), (256, 0.6, 154), (4, 0.5, 3), (10, 0.7, 8)],
)
def test_strictly_more_than_p(num_ranks: int, p: float, expected: int) -> None:
    """Strictly more than p x ranks must have finished (DD-PPO Fig. 9), also where that is whole: 3 of 4 at 50 %."""
    assert needed(num_ranks, p) == expected


@pytest.mark.parametrize("num_ranks", [1, 2, 8])
def test_p_of_one_never_preempts(num_ranks: int) -> None:
    """At p = 1 no number of finished ranks is enough."""
    assert not any(is_preempted(finished, num_ranks, 1.0, 100, 0) for finished in range(num_ranks + 1))


def test_at_least_a_quarter() -> None:
    """However many have finished, a rank takes T/4 steps first, rounded up."""
    assert not is_preempted(8, 8, 0.6, 31, 32)
    assert is_preempted(8, 8, 0.6, 32, 32)
    group = Group(Place(rank=0, num_ranks=1, local_rank=0))
    group.add("finished/0", 1)  # alone in its group, another has already finished
    monitor = open_monitor(Threshold(p=0.6), group, having(0), 10)
    assert [monitor.should_stop(having(num_steps)) for num_steps in range(5)] == [False, False, False, True, True]


def test_short_variable_rollouts_are_judged_by_their_mean() -> None:
    """Where environments may have different numbers of steps, a rank has T/4 when they have it on average."""
    group = Group(Place(rank=0, num_ranks=1, local_rank=0))
    group.add("finished/0", 1)
    rollout = VariableRollout(2, 16)
    monitor = open_monitor(Threshold(p=0.6), group, rollout, 8)
    stops = []
    for _ in range(5):
        stops.append(monitor.should_stop(rollout))
        rollout.start(np.array([0]))
        rollout.finish(np.array([0]))
    assert stops == [False, False, False, False, True]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"p": 0.0}, "preempt.p=0.0: must be above 0"),
        ({"p": 1.1}, "at most 1"),
        ({"least": -0.1}, "preempt.least=-0.1"),
    ],
)
def test_bad_settings(settings: dict[str, float], message: str) -> None:
    """A share that is none is refused with its rule."""
    with pytest.raises(ValueError, match=message):
        Threshold(**settings)


def watch(folder: Path) -> None:
    """On each of 3 ranks: two finish, the third sees it; again and again; says how many keys the store had."""
    place = Place(rank=int(os.environ["RANK"]), num_ranks=3, local_rank=0)
    group = Group(place)
    assert group._transport is not None
    monitor = open_monitor(Threshold(p=0.6), group, having(0), 8)
    answers, num_keys = [], []
    for _ in range(NUM_ITERATIONS):
        before = monitor.should_stop(having(8))
        group.sum(np.zeros(1))
        if place.rank != 2:
            monitor.finished(having(8))
        group.sum(np.zeros(1))
        # Ranks 0 and 1 ask about the next iteration now, rank 2 about this one.
        answers.append([before, *(monitor.should_stop(having(num_steps)) for num_steps in (1, 2, 8))])
        group.sum(np.zeros(1))
        if place.rank == 2:
            monitor.finished(having(8))
        group.sum(np.zeros(1))
        num_keys.append(group._transport.store.num_keys())
        group.sum(np.zeros(1))
    left = [number for number in range(NUM_ITERATIONS + 1) if group._transport.store.check([f"finished/{number}"])]
    (folder / f"rank{place.rank}.json").write_text(json.dumps([answers, num_keys, left]))
    group.close()


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What `watch` found on each rank: answers, numbers of keys, keys that were left."""
    folder = tmp_path_factory.mktemp("watched")
    run_ranks(watch, 3, folder)
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(3)]


def test_straggler_sees_who_finished(watched: list[Any]) -> None:
    """The last of 3 ranks is told to stop when the other two have finished, not before, and only from T/4 steps on."""
    answers = watched[2][0]
    assert answers == [[False, False, True, True]] * NUM_ITERATIONS


@pytest.mark.parametrize("rank", [0, 1])
def test_early_rank_sees_no_old_count(watched: list[Any], rank: int) -> None:
    """A rank that is already in the next iteration is not told to stop by what was counted in this one."""
    answers = watched[rank][0]
    assert answers == [[False] * 4] * NUM_ITERATIONS


def test_store_does_not_grow(watched: list[Any]) -> None:
    """Rank 0 deletes the counts of past iterations: the store has as many keys after 40 iterations as after 5."""
    _, num_keys, left = watched[0]
    assert len(set(num_keys[5:])) == 1
    assert len(left) <= 3
    assert left[-1] == NUM_ITERATIONS


@pytest.fixture(scope="module")
def cut_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of `ddppo` on 3 emulated GPUs whose environments differ."""
    folder = tmp_path_factory.mktemp("cut")
    scenario = "emulated/open-fridge:num_envs=2:rollout_steps=16"
    ended = launch(
        *("run", "--systems", "ddppo", "--gpus", "3", "--scenario", scenario, "--workload", "heterogeneous"),
        *("--time-scale", "0.2", "--iterations", "12", "--device", "emulated", "--out", "runs"),
        folder=folder,
    )
    assert ended.code == 0, ended.out + ended.err
    return next(folder.glob("runs/*/001-*"))


def test_stragglers_are_cut(cut_run: Path) -> None:
    """In a real run the slowest of 3 ranks is cut, two always complete their rollouts, and none takes less than T/4."""
    import pandas as pd

    series = pd.read_parquet(cut_run / "series.parquet")
    learned = series.pivot_table(index="iteration", columns="rank", values="learned").to_numpy()  # [iterations, ranks]
    assert learned.shape == (12, 3)
    assert ((learned == 32).sum(1) >= 2).all()
    assert (learned.min(1) < 32).sum() >= 3, learned
    assert (learned >= 8).all()
    assert (learned % 2 == 0).all(), "all environments of a rank are cut alike"


def test_statistics_are_means_over_ranks(cut_run: Path) -> None:
    """Training statistics are averaged over the ranks: all ranks note the same, and `collected` is their mean."""
    import pandas as pd

    series = pd.read_parquet(cut_run / "series.parquet")
    for _, rows in series.groupby("iteration"):
        for name in ("collected", "loss", "entropy", "grad_norm", "value_loss"):
            assert len(set(rows[name])) == 1
        assert rows["collected"].iloc[0] == pytest.approx(rows["learned"].mean())


def test_conserved_when_cut(cut_run: Path) -> None:
    """Where rollouts are cut, every env step is learned all the same; none is discarded or left."""
    record = json.loads((cut_run / "run.json").read_text())
    counters = record["counters"]
    assert record["status"] == "finished"
    assert counters["env_steps"] == counters["learned"] > 0
    assert counters["reused"] == counters["learned"]
    assert counters["discarded"] == counters["in_flight"] == 0
