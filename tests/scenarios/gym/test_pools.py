"""Environments of EnvPool, by a double of its package: `envpool` need not be installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from rlbench.harness.contract.envs import (
    envs_per_batch,
    envs_per_recv,
    make_counted_batch,
    make_counted_env,
    make_counted_pool,
)
from rlbench.scenarios.gym import making
from tests.harness.metering.batches.test_counted_batch import played_alone, played_in_batch
from tests.harness.metering.batches.test_counted_pool import played_in_pool
from tests.harness.metering.batches.vector_scenarios import meter, seats_of
from tests.scenarios.gym.envpool_double import ID, installed
from tests.scenarios.gym.test_making import scenario_of

POOLED = f"gym/{ID}:vector=envpool:num_envs=4:batch=4"


@pytest.fixture(autouse=True)
def _installed() -> Iterator[None]:
    with installed():
        yield
    making.TRIALS.known.clear()


@pytest.mark.parametrize("of_recv", [2, 4])
def test_together_and_alone_they_are_the_same(of_recv: int, tmp_path: Path) -> None:
    """With the seats' seeds, a pool, a whole batch and single environments of EnvPool give the same."""
    scenario = scenario_of(f"{POOLED}:recv={of_recv}")
    assert (envs_per_batch(scenario), envs_per_recv(scenario)) == (4, of_recv % 4)
    path, file = meter(tmp_path / "together", 6)
    where = (scenario, seats_of(4), tmp_path / "together", path)
    actions = np.random.default_rng(0).integers(0, 5, (4, 41))
    if of_recv == 4:
        batch = make_counted_batch(*where)
        story = played_in_batch(batch, actions)
        batch.close()
    else:
        pool = make_counted_pool(*where, of_recv)
        story = played_in_pool(pool, actions, 40, lambda _: False)
        pool.close()
    path, _ = meter(tmp_path / "apart", 6)
    for i, seat in enumerate(seats_of(4)):
        env = make_counted_env(scenario, seat, tmp_path / "apart", path)
        alone = played_alone(env, actions[i, : file.count(2 + i, "env_steps")].tolist())
        env.close()
        assert story[i] == alone[: len(story[i])]
        assert len(story[i]) > 10


def test_rewards_that_are_clipped_count_as_they_were(tmp_path: Path) -> None:
    """Returns are of EnvPool's `info["reward"]`, in batches and alone; learned from is what it clips."""
    scenario = scenario_of(f"{POOLED}:kwargs.reward_clip=True")
    path, _ = meter(tmp_path / "together", 6)
    batch = make_counted_batch(scenario, seats_of(4), tmp_path / "together", path)
    batch.reset()
    steps = [batch.step(np.full(4, 2)) for _ in range(12)]
    batch.close()
    assert max(np.abs(step.rewards).max() for step in steps) <= 1
    path, _ = meter(tmp_path / "alone", 6)
    env = make_counted_env(scenario, seats_of(1)[0], tmp_path / "alone", path)
    env.reset()
    raw, clipped = 0.0, 0.0
    while True:
        _, reward, terminated, truncated, info = env.step(2)
        raw, clipped = raw + info["raw_reward"], clipped + reward
        if terminated or truncated:
            break
    env.close()
    assert info["episode"][0] == raw != clipped
    first = next(step for step in steps if step.ended[0])
    assert first.episodes[0, 0] == raw


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gym/Walk-v1:vector=envpool", "vector=envpool: EnvPool has no Walk-v1; nearest: Walk-v0"),
        (f"{POOLED}:wrappers=my_package:Norm", "vector=envpool: wrappers would change single environments"),
        (f"{POOLED}:without=x", "vector=envpool: without would change single environments"),
        (f"{POOLED}:kwargs.num_envs=3", "kwargs.num_envs: with vector=envpool write num_envs"),
        (f"{POOLED}:kwargs.speed=3", r"EnvPool refused it: TypeError: unexpected keyword arguments \['speed'\]"),
        (f"gym/{ID}:recv=2", "there is no such environment|recv=2: must be 0, unless vector=envpool"),
    ],
)
def test_what_it_does_not_have_is_refused(text: str, expected: str) -> None:
    """In one line."""
    with pytest.raises(ValueError, match=expected) as refused:
        scenario_of(text)
    assert "\n" not in str(refused.value)


def test_environments_that_differ_are_refused() -> None:
    """A pool has one kind."""
    with pytest.raises(ValueError, match="vector=envpool: all its environments are the same"):
        scenario_of(f"{POOLED}:ids={ID}+Run-v0", "heterogeneous")


def test_without_the_package_it_says_what_to_install() -> None:
    """The extra, in one line."""
    with (
        patch.dict(sys.modules, envpool=None),
        pytest.raises(ValueError, match=r"vector=envpool: cannot import it .*pip install envpool"),
    ):
        scenario_of(POOLED)
