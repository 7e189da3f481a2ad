from __future__ import annotations

from dataclasses import replace

import pytest

from rlbench.harness.contract.budget import Limits
from rlbench.harness.plan.cells import Cell
from rlbench.harness.plan.enough import too_short
from rlbench.harness.plan.planning import plan
from tests.harness.plan.test_planning import REQUEST


def cells(seeds: str = "0", protocol: str = "steady", **limits: float) -> list[Cell]:
    """Two cells, or more."""
    return plan(replace(REQUEST, seeds=seeds, protocol=protocol, limits=Limits(**limits)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("protocol", "iterations", "said"),
    [
        ("steady", 3, "2 of 3 count (--protocol steady); give them 4, or several seeds"),
        ("steady", 4, None),
        ("ddppo", 3, "1 of 3 count (--protocol ddppo); give them 6, or several seeds"),
        ("ddppo", 10, None),
    ],
)
def test_too_few_iterations_are_said_beforehand(protocol: str, iterations: int, said: str | None) -> None:
    """How many of them count, and how many it takes until three do."""
    found = too_short(cells(protocol=protocol, iterations=iterations))
    begin = "all 2 cells have too few iterations for an interval: "
    assert found == (said and begin + said)


def test_env_steps_are_iterations_where_rollouts_are_whole() -> None:
    """As many as there are rollouts of all ranks in them; those that may be cut do not tell."""
    (first, *_) = cells(iterations=1)
    _, scenario = first.load()
    each = scenario.num_envs * scenario.rollout_steps
    of_two = [replace(first, system="sync", gpus=2, limits=Limits(env_steps=2 * num * each)) for num in (3, 4)]
    found = too_short(of_two[:1])
    assert found is not None
    assert "2 of 3 count" in found
    assert too_short(of_two[1:]) is None
    assert too_short([replace(first, system="ddppo", gpus=2, limits=Limits(env_steps=each))]) is None


def test_seeds_or_time_make_an_interval() -> None:
    """Several seeds are enough; how many iterations there will be in some seconds is not known."""
    assert too_short(cells(seeds="0,1", iterations=1)) is None
    assert too_short(cells(seconds=1.0)) is None
