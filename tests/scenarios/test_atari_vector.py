from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from rlbench.harness.contract.device import Seat
from rlbench.harness.contract.envs import InBatches, envs_per_batch, make_counted_batch
from rlbench.harness.metering.batches.vector_envs import SAME_STEP, check_batch, mode_of
from rlbench.harness.metering.counted import EPISODE, episodes_path
from rlbench.scenarios.atari import FAMILY, AtariScenario
from rlbench.scenarios.atari_vector import AtariVectorEnv
from tests.harness.metering.batches.vector_scenarios import meter, seats_of
from tests.scenarios.seats import seat_of

NUM = 4
BREAKOUT = replace(FAMILY.make("breakout", "homogeneous"), vector="native", noop_max=0)
SEEDS = np.arange(1, 1 + NUM, dtype=np.int32)
MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP]


def vector(scenario: AtariScenario = BREAKOUT, num: int = NUM) -> AtariVectorEnv:
    """A batch of a rank."""
    return scenario.make_envs([seat_of(index=index) for index in range(num)])


class Mode:
    """A scenario whose batches are reset in one of ale-py's ways."""

    def __init__(self, scenario: AtariScenario, mode: AutoresetMode) -> None:
        self.scenario, self.mode = scenario, mode
        self.observation_space, self.action_space = scenario.observation_space, scenario.action_space

    def make_envs(self, seats: Sequence[Seat]) -> AtariVectorEnv:
        """Makes a batch."""
        return self.scenario.make_envs(seats, self.mode)


def test_batches_are_as_the_scenario_says() -> None:
    """Half of the environments of a rank are a batch, or as many as told; its batches have the scenario's spaces."""
    assert isinstance(BREAKOUT, InBatches)
    assert [envs_per_batch(each) for each in (FAMILY.make("", "homogeneous"), BREAKOUT)] == [1, 4]
    assert [envs_per_batch(replace(BREAKOUT, batch=8)), envs_per_batch(replace(BREAKOUT, num_envs=5))] == [8, 5]
    for scenario in (BREAKOUT, replace(BREAKOUT, full_action_space=True, frame_stack=2, resolution=64)):
        envs = vector(scenario)
        check_batch(envs, NUM, scenario.observation_space, scenario.action_space)
        assert mode_of(envs) == SAME_STEP
        assert envs.observation_space.contains(envs.reset(seed=SEEDS)[0])
        assert envs.observation_space.contains(envs.step(np.zeros(NUM, np.int64))[0])
        envs.close()


@pytest.mark.parametrize("fields", [{"batch": -1}, {"batch": 1}, {"num_envs": 1}, {"vector": "none", "batch": 2}])
def test_bad_batch_is_refused(fields: dict[str, Any]) -> None:
    """What makes no batch of several environments is refused in one line."""
    with pytest.raises(ValueError, match=r"^atari/breakout:(batch|vector)=[^\n]*: must be [^\n]+$"):
        replace(BREAKOUT, **fields)


def test_several_games_are_refused() -> None:
    """A batch has one game, and environment i of a run has game i modulo their number."""
    with pytest.raises(ValueError, match=r"^atari/breakout:vector=native: must be none when there are several games"):
        replace(FAMILY.make("", "heterogeneous"), vector="native")


def test_an_old_ale_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors of an ale-py that ends episodes otherwise are not used; the message says what to install."""
    monkeypatch.setattr("rlbench.scenarios.atari.version", lambda _: "0.11.2")
    with pytest.raises(ValueError, match=r"vector=native: must be none with ale-py below 0.12; pip install -U ale-py"):
        replace(BREAKOUT)


@pytest.mark.parametrize("game", ["breakout", "pong", "qbert"])
def test_steps_are_those_of_single_environments(game: str) -> None:
    """Rewards, scores, ends and frames are equal, pixels to 1 of 255, and to 0.005 on average."""
    scenario = replace(BREAKOUT, games=(game,))
    envs, env = vector(scenario), scenario.make_env(seat_of())
    pixels = envs.reset(seed=SEEDS)[0]["pixels"]
    assert not pixels[:, :-1].any()
    distances = [np.abs(pixels[0, -1].astype(int) - env.reset()[0]["pixels"][-1])]
    rng, ended = np.random.default_rng(0), False
    for _ in range(400):
        action = int(rng.integers(int(scenario.action_space.n)))
        observation, *several, infos = envs.step(np.full(NUM, action))
        single, *alone, info = env.step(action)
        assert [row[0] for row in several] == alone
        assert {key: infos[key][0] for key in info} == info
        if any(alone[1:]):
            ended = True
            env.reset()
        else:
            distances.append(np.abs(observation["pixels"][0, -1].astype(int) - single["pixels"][-1]))
    assert ended == (game != "pong")
    assert np.max(distances) <= 1
    assert np.mean(distances) < 0.005


def test_the_same_seeds_give_the_same_episodes() -> None:
    """With no-ops and repeated actions drawn, batches of the same seeds are equal, those of other seeds are not."""
    scenario = replace(BREAKOUT, noop_max=30, repeat_action_probability=0.25)
    stories = []
    for seeds in (SEEDS, SEEDS, SEEDS + 1):
        envs, rng = vector(scenario), np.random.default_rng(0)
        first = envs.reset(seed=seeds)[0]["pixels"]
        steps = [envs.step(rng.integers(0, 4, NUM)) for _ in range(100)]
        stories.append(np.concatenate([first, *(step[0]["pixels"] for step in steps)]))
        envs.close()
    assert (stories[0] == stories[1]).all()
    assert (stories[0] != stories[2]).any()


def test_time_limit_is_a_truncation() -> None:
    """The frame limit ends episodes to the frame; the stack to act on is the next episode's, the last one is told."""
    envs = vector(replace(BREAKOUT, max_episode_frames=101))
    first = envs.reset(seed=SEEDS)[0]["pixels"]
    steps = [envs.step(np.ones(NUM, np.int64)) for _ in range(26)]
    assert [step[3].all() for step in steps] == [False] * 25 + [True]
    assert not np.any([step[2] for step in steps])
    assert np.array_equal([step[4]["num_frames"] for step in steps], [[4] * NUM] * 25 + [[1] * NUM])
    assert (steps[-1][0]["pixels"] == first).all()
    assert (steps[-1][4]["final_obs"]["pixels"] != first).any()
    assert all("final_obs" not in step[4] for step in steps[:-1])


def test_a_lost_life_can_end_an_episode() -> None:
    """With `terminal_on_life_loss` the game goes on after a lost life, from the same image, while there are any."""
    scenario = replace(BREAKOUT, terminal_on_life_loss=True)
    envs = vector(scenario)
    first = envs.reset(seed=SEEDS)[0]["pixels"]
    goes_on: list[bool] = []
    while len(goes_on) < 6:
        observation, _, terminated, _, info = envs.step(np.ones(NUM, np.int64))
        if terminated[0]:
            goes_on.append(bool((observation["pixels"][0] == info["final_obs"]["pixels"][0]).all()))
            assert goes_on[-1] or (observation["pixels"][0] == first[0]).all()
    assert goes_on == [True] * 4 + [False, True]


@pytest.mark.parametrize("game", ["skiing", "pooyan", "breakout"])
def test_uncommon_consoles_fit(game: str) -> None:
    """Games with another screen height or with fewer legal actions have all actions of the joystick too."""
    scenario = replace(BREAKOUT, games=(game,), full_action_space=True)
    envs, env = vector(scenario), scenario.make_env(seat_of())
    check_batch(envs, NUM, scenario.observation_space, scenario.action_space)
    envs.reset(seed=SEEDS)
    env.reset()
    for action in range(18):
        pixels = envs.step(np.full(NUM, action))[0]["pixels"]
        assert np.abs(pixels[0, -1].astype(int) - env.step(action)[0]["pixels"][-1]).max() <= 1


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fields", [{"max_episode_frames": 61}, {"noop_max": 30}])
def test_what_is_counted_is_what_was_played(mode: AutoresetMode, fields: dict[str, Any], tmp_path: Path) -> None:
    """However ale-py resets: env steps, frames, episodes, returns and lengths add up, by meter and by records."""
    path, file = meter(tmp_path / "run", NUM + 2)
    scenario, seats = Mode(replace(BREAKOUT, clip_reward=False, **fields), mode), seats_of(NUM)
    batch = make_counted_batch(scenario, seats, tmp_path / "run", path)
    batch.reset()
    rng = np.random.default_rng(0)
    steps = [batch.step(rng.integers(0, 4, NUM)) for _ in range(300)]
    batch.close()
    counts, ended = np.array([step.counts for step in steps]), np.array([step.ended for step in steps])
    rewards = np.array([step.rewards for step in steps])
    records = list(EPISODE.iter_unpack(episodes_path(tmp_path / "run", 1).read_bytes()))
    assert ended.sum() == len(records) > NUM
    assert counts.all() == (mode == AutoresetMode.SAME_STEP)
    for i, seat in enumerate(seats):
        own = [record for record in records if record[0] == seat.global_index]
        ends = np.flatnonzero(ended[:, i]) + 1
        steps_of, rewards_of = (np.split(column[:, i], ends) for column in (counts, rewards))
        assert [record[2] for record in own] == [each.sum() for each in rewards_of[:-1]]
        assert [record[3] for record in own] == [each.sum() for each in steps_of[:-1]]
        frames = [record[4] for record in own]
        assert all(4 * record[3] - 4 < of <= 4 * record[3] for of, record in zip(frames, own, strict=True))
        assert frames == [61] * len(frames) or "noop_max" in fields
        assert file.count(2 + i, "env_steps") == counts[:, i].sum()
        assert file.count(2 + i, "episodes") == len(own) > 0
        assert file.count(2 + i, "frames") == sum(frames) + 4 * steps_of[-1].sum()
