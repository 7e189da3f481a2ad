from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rlbench.harness.contract.budget import Limits
from rlbench.harness.contract.settings import Work
from rlbench.harness.metering.counted import EPISODE, EPISODE_FIELDS
from rlbench.scenarios.emulated import FAMILY, EmulatedScenario
from rlbench.scenarios.emulated.env import NUM_CUES, RecallEnv
from rlbench.scenarios.emulated.profile import Profile
from rlbench.scenarios.emulated.times import BlocksOfTimes, StepTimes
from tests.scenarios.seats import PlainDevice, seat_of
from tests.systems.engine.ranks import run_cell

NUM_STEPS = 4000
NUM_ENVS = 50


def scenario_of(workload: str = "homogeneous", **fields: Any) -> EmulatedScenario:
    """`open-fridge`."""
    return replace(FAMILY.make("open-fridge", workload), **fields)


PROFILE = scenario_of().profile


def with_(**changes: dict[str, float]) -> Profile:
    """`open-fridge` with fields of some of its tables changed."""
    tables = {name: getattr(PROFILE, name).model_copy(update=fields) for name, fields in changes.items()}
    return PROFILE.model_copy(update=tables)


def draw(profile: Profile, workload: str = "homogeneous") -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Seconds and ends of NUM_STEPS steps of NUM_ENVS environments, [environments, steps]."""
    seconds, ends = np.empty((NUM_ENVS, NUM_STEPS)), np.empty((NUM_ENVS, NUM_STEPS), np.bool_)
    for env in range(NUM_ENVS):
        times = StepTimes(profile, workload, seed=env)
        for step in range(NUM_STEPS):
            seconds[env, step], ends[env, step] = times.next_step()
    return seconds, ends


@pytest.fixture(scope="module")
def drawn() -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Of the homogeneous workload."""
    return draw(PROFILE)


def stays(collides: NDArray[np.bool_]) -> list[int]:
    """Lengths of the stays in the collision mode that begin and end within the run."""
    lengths = []
    for row in collides:
        edges = np.flatnonzero(np.diff(row.astype(np.int8)))
        begins, ends = edges[~row[edges]], edges[row[edges]]
        ends = ends[ends > begins[0]]
        lengths += (ends - begins[: len(ends)]).tolist()
    return lengths


def test_collisions_follow_the_profile() -> None:
    """The share of steps in the collision mode and the mean stay there are the profile's."""
    step, collision = PROFILE.step, PROFILE.collision
    seconds, _ = draw(with_(step={"sigma": 0.0}, episode={"sigma": 0.0}))
    collides = seconds > 1e-3 * (step.median_ms + collision.median_ms) / 2
    assert set(np.round(seconds * 1e3, 9).ravel().tolist()) == {step.median_ms, collision.median_ms}
    assert collides.mean() == pytest.approx(collision.share, rel=0.08)
    lengths = stays(collides)
    assert np.mean(lengths) == pytest.approx(collision.mean_stay_steps, rel=0.08)
    assert np.mean(np.array(lengths) == 1) == pytest.approx(1 / collision.mean_stay_steps, rel=0.15), "geometric"


def test_mean_step_time(drawn: tuple[NDArray[np.float64], NDArray[np.bool_]]) -> None:
    """The mean step time is that of the two modes, times the means of both lognormal factors."""
    step, collision, episode = PROFILE.step, PROFILE.collision, PROFILE.episode
    modes_ms = (1 - collision.share) * step.median_ms + collision.share * collision.median_ms
    expected_ms = modes_ms * math.exp(step.sigma**2 / 2) * math.exp(episode.sigma**2 / 2)
    assert 1e3 * drawn[0].mean() == pytest.approx(expected_ms, rel=0.05)


def test_factors_are_lognormal() -> None:
    """Steps differ by the step's sigma within an episode; episodes by the episode's."""
    seconds, ends = draw(with_(collision={"share": 0.0}))
    logs = np.log(seconds * 1e3 / PROFILE.step.median_ms)
    within, means = [], []
    for row, ended in zip(logs, ends, strict=True):
        for episode in np.split(row, np.flatnonzero(ended) + 1)[:-1]:
            if len(episode) > 50:
                within.append(episode.var(ddof=1))
                means.append(episode.mean())
    assert math.sqrt(np.mean(within)) == pytest.approx(PROFILE.step.sigma, rel=0.02)
    assert np.std(means) == pytest.approx(PROFILE.episode.sigma, rel=0.1)
    assert np.mean(means) == pytest.approx(0, abs=0.05)


def test_episodes_have_the_mean_length(drawn: tuple[NDArray[np.float64], NDArray[np.bool_]]) -> None:
    """Episodes are as long as the profile says, on average, and end independently of what came before."""
    _, ends = drawn
    assert 1 / ends.mean() == pytest.approx(PROFILE.episode.mean_steps, rel=0.08)
    gaps = np.concatenate([np.diff(np.flatnonzero(row)) for row in ends])
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.15), "geometric"


def test_scenes_differ_in_the_heterogeneous_workload_alone() -> None:
    """Homogeneous: no scene factor. Heterogeneous: a lognormal one of the profile's sigma, fixed per environment."""
    factors = BlocksOfTimes(PROFILE, "heterogeneous", range(10_000)).scene_factors
    assert (BlocksOfTimes(PROFILE, "homogeneous", range(50)).scene_factors == 1).all()
    assert np.std(np.log(factors)) == pytest.approx(PROFILE.heterogeneous.sigma, rel=0.03)
    assert np.mean(np.log(factors)) == pytest.approx(0, abs=0.04)
    plain, factored = (StepTimes(PROFILE, workload, 3) for workload in ("homogeneous", "heterogeneous"))
    for _ in range(100):
        (alike, _), (differs, _) = plain.next_step(), factored.next_step()
        assert differs == pytest.approx(alike * factors[3])


def test_times_follow_the_seed() -> None:
    """One seed gives one sequence of times, another seed another."""

    def first(seed: int) -> list[tuple[float, bool]]:
        times = StepTimes(PROFILE, "heterogeneous", seed)
        return [times.next_step() for _ in range(20)]

    assert first(5) == first(5)
    assert not set(first(5)) & set(first(6))


def test_times_restart_with_a_seed() -> None:
    """Restarted, times are those of the seed, times how slow the scene was before; nothing of a block is left over."""
    times = StepTimes(PROFILE, "heterogeneous", 5)
    first = [times.next_step() for _ in range(300)]
    times.restart(5)
    assert [times.next_step() for _ in range(300)] == first
    times.restart(6)
    scenes = [BlocksOfTimes(PROFILE, "heterogeneous", [seed]).scene_factors[0] for seed in (5, 6)]
    other = StepTimes(PROFILE, "heterogeneous", 6)
    for _ in range(300):
        (seconds, ends), (expected_s, expected_ends) = times.next_step(), other.next_step()
        assert seconds == pytest.approx(expected_s * scenes[0] / scenes[1])
        assert ends == expected_ends


def play(choose: Callable[[int, int], int], num_episodes: int, seed: int = 0) -> tuple[float, float]:
    """Mean of the reported returns and success of a policy that is told the cue and the one before; takes no time."""
    scenario = scenario_of(time_scale=1e-6)
    env = scenario.make_env(seat_of(seed=seed))
    returns, successes = [], []
    for _ in range(num_episodes):
        observation, _ = env.reset()
        before, total, ended = 0, 0.0, False
        while not ended:
            cue = int(observation["cue"].argmax())
            observation, reward, ended, truncated, info = env.step(choose(before, cue))
            assert not truncated
            assert info["raw_reward"] == pytest.approx(float(reward) / PROFILE.episode.mean_steps)
            before, total = cue, total + info["raw_reward"]
        returns.append(total)
        successes.append(info["success"])
    return float(np.mean(returns)), float(np.mean(successes))


def test_optimal_policy_returns_one() -> None:
    """The policy that recalls the cue before returns 1 per episode of mean length, and always succeeds."""
    mean, success = play(lambda before, _: before, 100)
    assert mean == pytest.approx(1, abs=0.35)
    assert success == 1


def test_no_policy_without_memory_is_better_than_chance() -> None:
    """A random policy, one that always says the same, and one that repeats what it sees earn a quarter of that."""
    best, _ = play(lambda before, _: before, 100)
    rng = np.random.default_rng(0)
    for choose in (lambda *_: int(rng.integers(NUM_CUES)), lambda *_: 2, lambda _, cue: cue):
        mean, success = play(choose, 100)
        assert mean / best == pytest.approx(1 / NUM_CUES, rel=0.15)
        assert success < 0.2, "only of very short episodes"


class RenderingDevice(PlainDevice):
    """Notes when it was asked for what."""

    def __init__(self) -> None:
        super().__init__("cpu")
        self.asked: list[tuple[Work, int, float]] = []

    def busy(self, work: Work, num_items: int) -> AbstractContextManager[None]:
        """Notes it."""
        self.asked.append((work, num_items, time.perf_counter()))
        return nullcontext()


def test_step_takes_its_time_and_renders() -> None:
    """A step lasts what was drawn, times the time scale, and then renders once on the rank's device."""
    device, time_scale = RenderingDevice(), 0.1
    times = StepTimes(PROFILE, "heterogeneous", 11)
    env = RecallEnv(
        PROFILE, StepTimes(PROFILE, "heterogeneous", 11), replace(seat_of(seed=11), device=device), time_scale
    )
    env.reset()
    for number in range(1, 41):
        expected_s, ends = times.next_step()
        began = time.perf_counter()
        assert env.step(0)[2] == ends
        assert len(device.asked) == number
        work, num_items, moment = device.asked[-1]
        assert (work, num_items) == ("render", 1)
        assert moment - began >= time_scale * expected_s
        if ends:
            env.reset()


def test_seats_have_streams_of_their_own() -> None:
    """Environments of different seeds show different cues."""

    def cues(seed: int) -> list[int]:
        env = scenario_of(time_scale=1e-6).make_env(seat_of(seed=seed))
        shown = [env.reset()[0]]
        shown += [env.step(0)[0] for _ in range(30)]
        return [int(observation["cue"].argmax()) for observation in shown]

    assert cues(1) == cues(1)
    assert len({tuple(cues(seed)) for seed in range(10)}) == 10


def test_it_is_really_learned(tmp_path: Path) -> None:
    """The task is learned within a few iterations: from chance to nearly certain, and right."""
    settings = {"num_envs": "8", "rollout_steps": "64", "time_scale": "0.0001"}
    run = run_cell(tmp_path, "run", "emulated/open-fridge", settings, device="emulated", limits=Limits(iterations=28))
    entropies = [row["entropy"] for row in run.rows(0)]
    assert entropies[0] == pytest.approx(math.log(NUM_CUES), abs=0.02)
    assert entropies[-1] < 0.3
    episodes = [dict(zip(EPISODE_FIELDS, values, strict=True)) for values in EPISODE.iter_unpack(run.episodes(0))]
    shares = [episode["return"] * PROFILE.episode.mean_steps / episode["length"] for episode in episodes]
    # Learning begins before the first ten have ended: over 8 runs 0.25 to 0.35, where 1 / NUM_CUES is chance.
    assert 1 / NUM_CUES - 0.06 < np.mean(shares[:10]) < 0.45
    assert np.mean(shares[-10:]) > 0.85
    assert np.mean([episode["success"] for episode in episodes[-10:]]) > 0.5
