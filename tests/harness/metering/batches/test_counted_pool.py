from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbench.harness.contract.envs import make_counted_batch, make_counted_env, make_counted_pool
from rlbench.harness.contract.pools import PoolLike
from rlbench.harness.metering.batches.counted_pool import CountedPool
from rlbench.harness.metering.meter_file import MeterFile
from tests.harness.metering.batches.pool_double import DoublePool, PoolScenario
from tests.harness.metering.batches.test_counted_batch import COUNTERS, played_alone, played_in_batch, records, rows_of
from tests.harness.metering.batches.vector_scenarios import ACTIONS, RandomEnv, meter, seats_of


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    for pool in list(DoublePool.opened):
        pool.close()


def open_pool(folder: Path, scenario: PoolScenario, num: int) -> tuple[CountedPool, MeterFile]:
    """Environments 7 to 6 + `num` of a run, of 4: the numbers differ otherwise."""
    path, file = meter(folder, num + 2)
    return make_counted_pool(scenario, seats_of(num), folder, path, scenario.envs_per_recv), file


def played_in_pool(
    pool: CountedPool, actions: np.ndarray[Any, Any], num_answers: int, holds_back: Callable[[int], bool]
) -> list[list[Any]]:
    """What each environment was told, [B][...], when some are acted for late: as `played_in_batch` says."""
    num = len(actions)
    story: list[list[Any]] = [[] for _ in range(num)]
    taken = np.zeros(num, int)
    pool.reset()
    idle: list[int] = []
    num_flying = num
    for number in range(num_answers):
        ids, step = pool.recv()
        num_flying -= len(ids)
        now, final = rows_of(step.observation), step.final
        assert (final is None) == (not step.ended.any())
        for k, i in enumerate(ids.tolist()):
            own = story[i]
            if step.counts[k]:
                taken[i] += 1
                own.append((float(step.rewards[k]), bool(step.terminated[k]), bool(step.truncated[k])))
            else:
                assert step.starts[k]
                assert not step.ended[k]
            if step.ended[k]:
                own.append((rows_of(final)[k], *map(repr, step.episodes[k].tolist())))
            else:
                own.append(now[k])
        idle += ids.tolist()
        enough = num_flying >= len(ids)
        send = np.array([i for i in idle if not (enough and holds_back(number + i))], np.intp)
        idle = [i for i in idle if i not in send]
        pool.send(actions[send, taken[send]], send)
        num_flying += len(send)
    return story


@settings(max_examples=25, deadline=None)
@given(
    size=st.sampled_from([(1, 1), (4, 1), (4, 2), (6, 3), (5, 1)]),
    most_steps=st.sampled_from([1, 2, 5]),
    num_answers=st.integers(1, 25),
    seed=st.integers(0, 99),
    every=st.sampled_from([1, 2, 3]),
)
def test_a_pool_counts_and_tells_what_single_environments_do(
    size: tuple[int, int], most_steps: int, num_answers: int, seed: int, every: int
) -> None:
    """With the same seeds and actions, in any order of answers; resets, and what is not received, count nothing."""
    num, of_recv = size
    scenario = PoolScenario(most_steps, of_recv)
    actions = np.random.default_rng(seed).integers(0, ACTIONS.n, (num, num_answers + 1))
    with tempfile.TemporaryDirectory() as name:
        together, apart = Path(name) / "together", Path(name) / "apart"
        pool, file = open_pool(together, scenario, num)
        story = played_in_pool(pool, actions, num_answers, lambda number: number % every > 0)
        pool.close()
        path, singles = meter(apart, num + 2)
        for i, seat in enumerate(seats_of(num)):
            env = make_counted_env(scenario, seat, apart, path)
            alone = played_alone(env, actions[i, : file.count(2 + i, "env_steps")].tolist())
            env.close()
            assert story[i] == alone[: len(story[i])]
            assert len(story[i]) >= len(alone) - 1
        for index in range(num + 4):
            assert [file.count(index, of) for of in COUNTERS] == [singles.count(index, of) for of in COUNTERS]
        assert repr(records(together)) == repr(records(apart))


def test_a_pool_that_answers_for_all_is_a_batch(tmp_path: Path) -> None:
    """It is stepped as any vector environment, with what single environments would give."""
    scenario, num = PoolScenario(4, 3), 3
    actions = np.random.default_rng(0).integers(0, ACTIONS.n, (num, 20))
    path, file = meter(tmp_path / "run", num + 2)
    batch = make_counted_batch(scenario, seats_of(num), tmp_path / "run", path)
    story = played_in_batch(batch, actions)
    batch.close()
    single_path, _ = meter(tmp_path / "apart", num + 2)
    for i, seat in enumerate(seats_of(num)):
        env = make_counted_env(scenario, seat, tmp_path / "apart", single_path)
        alone = played_alone(env, actions[i, : file.count(2 + i, "env_steps")].tolist())
        env.close()
        assert story[i] == alone[: len(story[i])]


def test_spans_reach_from_sending_to_receiving(tmp_path: Path) -> None:
    """The spans of an environment do not overlap, it waits in between, and the counters are their sums."""
    begin = time.perf_counter()
    pool, file = open_pool(tmp_path / "run", PoolScenario(3, 2), 4)
    played_in_pool(pool, np.zeros((4, 60), int), 50, lambda _: False)
    pool.used(0.5, 4.0)
    pool.close()
    took = time.perf_counter() - begin
    for i in range(4):
        spans = file.spans(2 + i)
        assert [kind for *_, kind in spans].count("simulate") == file.count(2 + i, "env_steps") > 0
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
        assert sum(end - begin for begin, end, _ in spans) <= took
        for kind, counter in (("simulate", "step_s"), ("reset", "reset_s")):
            seconds = sum(end - begin for begin, end, of in spans if of == kind)
            assert file.seconds(2 + i, kind) == pytest.approx(seconds)
            assert file.seconds(2 + i, counter) == pytest.approx(seconds)
        gaps = sum(b[0] - a[1] for a, b in itertools.pairwise(spans))
        assert file.seconds(2 + i, "wait:inference") == pytest.approx(gaps)
        assert file.cpu_seconds(2 + i, "simulate") == (1.0, 0.0)


def changed(name: str, value: Any) -> Callable[[DoublePool], DoublePool]:
    """A pool whose attribute is another."""

    def change(pool: DoublePool) -> DoublePool:
        setattr(pool, name, value)
        return pool

    return change


MADE: dict[str, tuple[Callable[[DoublePool], Any], str]] = {
    "too few": (changed("num_envs", 3), r"make_envs gave 3 environments: it must give 4"),
    "another size": (changed("config", {"batch_size": 1}), r"a pool that answers for 1 .* the scenario states 2"),
    "all": (changed("config", {"batch_size": 0}), r"a pool that answers for 4 .* the scenario states 2"),
    "no size": (changed("config", {}), r'config\["batch_size"\] = None .*it must be a whole number up to its 4'),
    "too large": (changed("config", {"batch_size": 5}), r'config\["batch_size"\] = 5: it must be a whole number'),
    "spaces": (changed("single_action_space", SPACE := ACTIONS.__class__(7)), r"single_action_space Discrete\(7\)"),
    "resets": (
        changed("metadata", {"autoreset_mode": "SameStep"}),
        r"a pool whose autoreset_mode is SameStep: it must be NextStep",
    ),
    "no pool": (lambda _: object(), r"make_envs gave a object: it must give a pool"),
}


@pytest.mark.parametrize("which", MADE)
def test_pools_that_are_not_as_stated_are_refused(which: str, tmp_path: Path) -> None:
    """The scenario's name for what it is comes with what was given instead."""
    change, told = MADE[which]
    with pytest.raises(ValueError, match=told):
        open_pool(tmp_path / "run", PoolScenario(3, 2, change), 4)


class Lying(DoublePool):
    """Changes the answers that follow the first two."""

    lie: Callable[[dict[str, Any]], object]

    def recv(self) -> Any:
        """The answer, changed."""
        observation, rewards, terminated, truncated, info = super().recv()
        if not self.num_sent:
            return observation, rewards, terminated, truncated, info
        answer = {"observation": observation, "rewards": rewards, "terminated": terminated, "info": dict(info)}
        self.lie(answer)
        return answer["observation"], answer["rewards"], answer["terminated"], truncated, answer["info"]


def ids(*given: Any) -> Callable[[dict[str, Any]], object]:
    """Says that others have answered."""
    return lambda answer: answer["info"].update(env_id=np.array(given))


LIES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "unknown": (ids(0, 4), r"environments 7 to 10: the pool gave env_id 4: it must be from 0 to 3"),
    "negative": (ids(-1, 0), r"env_id -1: it must be from 0 to 3"),
    "not sent": (ids(0, 3), r"env_id 3: it must be of an environment that has an action to apply, once"),
    "twice": (ids(1, 1), r"env_id 1: it must be of an environment that has an action to apply, once"),
    "too many": (ids(0, 1, 2), r"env_id .*an array of 2 whole numbers"),
    "floats": (ids(0.0, 1.0), r"env_id .*an array of 2 whole numbers"),
    "nobody": (lambda answer: answer["info"].pop("env_id"), r'the info .*it must have "env_id"'),
    "no info": (lambda answer: answer.update(info=None), r"environments 7 to 10 step gave"),
    "reward": (lambda answer: answer.update(rewards=np.array([0.0, np.nan])), r"environment [789] gave the reward nan"),
    "rewards": (lambda answer: answer.update(rewards=np.zeros(3)), r"gave the rewards .*an array of 2 real numbers"),
    "flags": (lambda answer: answer.update(terminated=np.zeros(2)), r"gave terminated .*an array of 2 bool"),
    "shape": (lambda answer: answer["observation"].update(x=np.zeros((2, 3))), r"shape \(2, 3\).*be \(2, 2\)"),
}


@pytest.mark.parametrize("which", LIES)
def test_lies_of_a_pool_are_refused(which: str, tmp_path: Path) -> None:
    """An answer for whom nobody asked, or with another shape, is a ValueError that names the environments."""

    def lying(pool: DoublePool) -> DoublePool:
        pool.__class__ = Lying
        pool.lie = LIES[which][0]  # type: ignore[attr-defined]
        return pool

    pool, _ = open_pool(tmp_path / "run", PoolScenario(9, 2, lying), 4)
    pool.reset()
    pool.recv()
    pool.recv()
    pool.send(np.zeros(3, int), np.arange(3))
    with pytest.raises(ValueError, match=LIES[which][1]):
        pool.recv()
    pool.close()


def test_a_reset_that_looks_like_a_step_is_refused(tmp_path: Path) -> None:
    """A first observation comes with reward 0, and ends nothing."""

    def lying(pool: DoublePool) -> DoublePool:
        pool.__class__, pool.num_sent = Lying, 1
        pool.lie = lambda answer: answer.update(rewards=np.ones(2))  # type: ignore[attr-defined]
        return pool

    pool, file = open_pool(tmp_path / "run", PoolScenario(9, 2, lying), 4)
    pool.reset()
    with pytest.raises(ValueError, match=r"environment (7|8|9|10) gave a reward of 1.0: it must be 0 and no end"):
        pool.recv()
    assert sum(file.count(2 + i, "env_steps") for i in range(4)) == 0
    pool.close()


def test_what_a_pool_is() -> None:
    """A pool is known by its methods; a vector environment is none."""
    pool = DoublePool([RandomEnv(3)], 1, [0])
    pool.close()
    assert isinstance(pool, PoolLike)
    assert not isinstance(object(), PoolLike)
