"""What systems learned over the tasks of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rlbench.results.statistics.learning_curves import interquartile_mean
from rlbench.results.summary.across_tasks import across_tasks
from rlbench.results.summary.document import CellSummary, Estimate, Learning
from tests.results.summaries import make_cell


def learned(system: str, finals: Sequence[float], *, metric: str = "success", **fields: Any) -> CellSummary:
    """A cell on 8 GPUs whose runs ended with these values; `fields` are the cell's."""
    learning = Learning(
        metric=metric,
        final=Estimate(value=float(np.mean(finals))),
        finals=list(finals),
        area=None,
        area_env_steps=None,
        threshold=None,
        to_threshold=[],
        curve=[],
        against_reference=None,
    )
    return make_cell(system, 8, learning=learning, **fields)


def test_two_tasks_by_hand() -> None:
    """Final over the runs of both tasks, improvement and profile as means over the tasks."""
    cells = [
        learned("ddppo", [0.2, 0.4, 0.6]),
        learned("ver", [0.5, 0.6, 0.7]),
        learned("ddppo", [0.1, 0.2, 0.3], workload="heterogeneous"),
        learned("ver", [0.2, 0.2, 0.9], workload="heterogeneous"),
    ]
    base, ver = across_tasks(cells, "ddppo")
    assert base.improvement is None
    # Of 9 pairs: 0.5 beats 2, 0.6 beats 2 and ties one, 0.7 beats 3; then twice one beats 1 and ties 1, 0.9 beats 3.
    assert ver.improvement == pytest.approx((7.5 / 9 + 6 / 9) / 2)
    assert (ver.system, ver.num_runs, ver.gpus, ver.metric) == ("ver", 6, 8, "success")
    assert [task.rpartition(", ")[2] for task in ver.tasks] == ["homogeneous", "heterogeneous"]
    assert ver.final.value == pytest.approx(float(np.mean([0.2, 0.5, 0.6, 0.7])))  # of six, one is cut off either end
    assert ver.final.low is not None
    assert ver.final.low < ver.final.value
    share = dict(zip(ver.thresholds, ver.shares, strict=True))
    assert list(share) == [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.9, 1]
    assert share[0.0] == 1
    assert share[0.2] == pytest.approx((1 + 1 / 3) / 2)
    assert share[0.6] == pytest.approx((1 / 3 + 1 / 3) / 2)
    assert share[1.0] == 0


def test_a_system_that_lacks_a_task_is_left_out() -> None:
    """Its mean over the others would not be of the same work."""
    cells = [learned("sync", [0.5] * 3), learned("ver", [0.5] * 3), learned("ver", [0.5] * 3, workload="heterogeneous")]
    (only,) = across_tasks(cells, "sync")
    assert (only.system, only.improvement, len(only.tasks)) == ("ver", None, 2)


def test_what_has_no_common_scale_stays_apart() -> None:
    """Returns of two scenarios are not averaged, their successes are; other sweeps and kinds stand alone."""
    returns = [learned("ver", [1.0, 5.0], metric="return", scenario=name) for name in ("atari", "vizdoom")]
    assert [each.tasks for each in across_tasks(returns, None)] == [
        ["atari, homogeneous"],
        ["vizdoom, homogeneous"],
    ]
    assert returns[0].learning is not None
    thresholds = across_tasks(returns, None)[0].thresholds
    assert (thresholds[0], thresholds[-1]) == (1.0, 5.0)
    successes = [learned("ver", [0.1, 0.5], scenario=name) for name in ("atari", "vizdoom")]
    (both,) = across_tasks(successes, None)
    assert len(both.tasks) == 2
    assert both.final.low is None  # of two runs a task there is no interval
    apart = [learned("ver", [0.5]), learned("ver", [0.5], sweep="other"), learned("ver", [0.5], kind="measured")]
    assert len(across_tasks(apart, None)) == 3


def test_equal_runs_have_one_threshold() -> None:
    """Returns that are all the same leave no range to divide."""
    (each,) = across_tasks([learned("ver", [2.0, 2.0, 2.0], metric="return")], "ver")
    assert (each.thresholds, each.shares) == ([2.0], [0.0])


def test_many_runs_have_thresholds_at_equal_distances() -> None:
    """A thousand different runs have 200 thresholds."""
    (each,) = across_tasks([learned("ver", np.linspace(0.2, 0.8, 1000).tolist())], None)
    assert len(each.thresholds) == len(each.shares) == 200
    assert (each.thresholds[0], each.thresholds[-1]) == (0, 1)
    assert each.shares == sorted(each.shares, reverse=True)


def test_intervals_do_not_depend_on_what_else_is_there() -> None:
    """The same curves have the same interval."""
    generator = np.random.default_rng(1)
    ours, others = (learned(name, generator.random(6).tolist()) for name in ("ver", "sync"))
    one = across_tasks([ours], None)[0].final
    assert across_tasks([others, ours], None)[1].final == one
    assert one.value == pytest.approx(float(interquartile_mean([np.array(ours.learning.finals)])))  # type: ignore[union-attr]


def test_nothing_was_learned() -> None:
    """Cells without learning are none of it."""
    assert across_tasks([make_cell("ver", 8)], "ver") == []
