from __future__ import annotations

import itertools
import math
import os
import re
import time
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import gymnasium
import numpy as np
import pytest

from rlbench.harness.contract.device import Place, Seat
from rlbench.harness.contract.envs import make_counted_env
from rlbench.harness.contract.scenario import Scenario
from rlbench.harness.devices.kinds import CpuDevice
from rlbench.harness.metering.counted import EPISODE, EPISODE_FIELDS, CountedEnv, episodes_path
from rlbench.harness.metering.meter_file import MeterFile, meter_path
from tests.descriptors import open_files
from tests.harness.hostile.misbehaving_plugin.values import ANSWERS, INFOS, RESETS, REWARDS

SLEEP_S = 0.002


class ScriptedEnv(gymnasium.Env[dict[str, Any], int]):
    """Steps that take a known time and give what a script says; episodes of three steps."""

    def __init__(self, script: list[dict[str, Any]], seeds: list[int | None]) -> None:
        self.script, self.seeds = script, seeds
        self.closed = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        del options
        self.seeds.append(seed)
        time.sleep(SLEEP_S)
        return {"x": np.zeros(1)}, {}

    def step(self, action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        time.sleep(SLEEP_S)
        given = self.script.pop(0)
        end = given.get("end")
        return (
            {"x": np.full(1, action)},
            given.get("reward", 1.0),
            end == "dead",
            end == "late",
            dict(given.get("info", {})),
        )

    def close(self) -> None:
        self.closed = True


@dataclass
class Scripted:
    """As much of a scenario as an environment needs."""

    script: list[dict[str, Any]]
    seeds: list[int | None] = field(default_factory=list)

    def make_env(self, seat: Seat) -> ScriptedEnv:
        del seat
        return ScriptedEnv(self.script, self.seeds)


def make(folder: Path, scripted: Scripted, rank: int = 0, index: int = 0) -> tuple[CountedEnv, MeterFile]:
    """A counted environment of a rank of two, and its meter."""
    path = meter_path(folder, rank)
    file = MeterFile(path, writable=False) if path.exists() else MeterFile.create(path, num_envs=2)
    place = Place(rank=rank, num_ranks=2, local_rank=rank)
    seat = Seat(place=place, index=index, num_envs=2, seed=5, device=CpuDevice(1))
    return make_counted_env(cast("Scenario", scripted), seat, folder, path), file


def episodes_of(folder: Path, rank: int) -> list[dict[str, float]]:
    """What the episode file holds."""
    data = episodes_path(folder, rank).read_bytes()
    return [dict(zip(EPISODE_FIELDS, values, strict=True)) for values in EPISODE.iter_unpack(data)]


def test_steps_frames_and_times_are_counted(tmp_path: Path) -> None:
    """An env step counts one, its frames are those that the simulator says, and times are those that passed."""
    env, file = make(tmp_path, Scripted([{"info": {"num_frames": 4}}, {}, {"info": {"num_frames": 3}}]), index=1)
    begin = time.perf_counter()
    env.reset()
    for action in (0, 1, 2):
        observation, reward, terminated, truncated, _ = env.step(action)
        assert (observation["x"].tolist(), reward, terminated, truncated) == ([action], 1.0, False, False)
    took = time.perf_counter() - begin
    assert (file.count(2, "env_steps"), file.count(2, "frames"), file.total("env_steps")) == (3, 8, 3)
    assert (file.count(1, "env_steps"), file.count(2, "pid")) == (0, os.getpid())
    assert [kind for *_, kind in file.spans(2)] == ["reset", "simulate", "simulate", "simulate"]
    assert file.seconds(2, "step_s") == pytest.approx(file.seconds(2, "simulate"))
    assert file.seconds(2, "reset_s") == pytest.approx(file.seconds(2, "reset"))
    assert 3 * SLEEP_S <= file.seconds(2, "step_s") < took
    assert file.seconds(2, "step_s") ** 2 / 3 <= file.seconds(2, "step_s_squared") < took**2


def test_an_environment_waits_from_its_answer_to_the_next_action(tmp_path: Path) -> None:
    """What passes between a reset or step and the next step is in the total, beside the ring and not in it."""
    env, file = make(tmp_path, Scripted([{}, {"end": "dead"}, {}]), index=1)
    for reset in (True, False, True):
        if reset:
            env.reset()
        time.sleep(SLEEP_S)
        env.step(0)
    spans = file.spans(2)
    waits = [begin - end for (_, end, _), (begin, _, kind) in itertools.pairwise(spans) if kind == "simulate"]
    assert len(waits) == 3
    assert file.seconds(2, "wait:inference") == pytest.approx(sum(waits))
    assert file.seconds(2, "wait:inference") >= 3 * SLEEP_S
    assert {kind for *_, kind in spans} == {"reset", "simulate"}


def test_episodes_are_recorded_when_they_end(tmp_path: Path) -> None:
    """Return, length, frames, success and SPL of each episode are kept, terminated or truncated; raw rewards count."""
    script: list[dict[str, Any]] = [
        {"reward": 1.0, "info": {"raw_reward": 40.0, "num_frames": 4}},
        {"reward": -0.5, "end": "dead", "info": {"success": 1, "spl": 0.25, "num_frames": 2}},
        {"reward": 2.0, "end": "late"},
        {"reward": 3.0},
    ]
    env, file = make(tmp_path, Scripted(script), rank=1, index=1)
    env.reset()
    env.step(0)
    *_, info = env.step(0)
    assert info["episode"] == (39.5, 2.0, 1.0, 0.25)
    env.reset()
    *_, info = env.step(0)
    assert info["episode"][:2] == (2.0, 1.0)
    env.reset()
    env.step(0)
    env.close()
    first, second = episodes_of(tmp_path, rank=1)
    assert first.pop("end_s") < second.pop("end_s") < time.perf_counter()
    assert first == {"environment": 3, "return": 39.5, "length": 2, "frames": 6, "success": 1.0, "spl": 0.25}
    assert (second["return"], second["length"], second["frames"]) == (2.0, 1, 1)
    assert math.isnan(second["success"])
    assert math.isnan(second["spl"])
    assert file.count(2, "episodes") == 2


def test_environments_share_the_episode_file_of_their_rank(tmp_path: Path) -> None:
    """Records of all environments of a rank are appended whole to one file."""
    envs = [make(tmp_path, Scripted([{"end": "dead"}] * 3), index=index)[0] for index in (0, 1)]
    for _ in range(3):
        for env in envs:
            env.reset()
            env.step(0)
    assert [int(episode["environment"]) for episode in episodes_of(tmp_path, rank=0)] == [0, 1] * 3


def test_the_first_reset_has_the_seats_seed(tmp_path: Path) -> None:
    """The first episode is seeded with the seat's seed unless told otherwise; later ones go on from there."""
    scripted = Scripted([])
    env, _ = make(tmp_path, scripted)
    env.reset()
    env.reset()
    env.reset(seed=9)
    assert scripted.seeds == [5, None, 9]


def test_rewards_must_be_finite(tmp_path: Path) -> None:
    """A reward that would poison learning is an error that names the environment."""
    env, _ = make(tmp_path, Scripted([{"reward": math.nan}]), rank=1)
    env.reset()
    with pytest.raises(ValueError, match=r"environment 2 gave the reward nan: it must be finite"):
        env.step(0)


@pytest.mark.parametrize(
    "reward",
    [
        1,
        True,
        np.float16(1),
        np.float32(1),
        np.float64(1),
        np.int8(1),
        np.bool_(1),
        np.ones(1),
        np.ones((1, 1)),
        Fraction(1),
    ],
    ids=lambda reward: type(reward).__name__,
)
def test_a_reward_is_any_real_number(tmp_path: Path, reward: Any) -> None:
    """Of Python or NumPy, or an array of one; what is given on is a float, also the second time."""
    env, _ = make(tmp_path, Scripted([{"reward": reward, "info": {"raw_reward": reward}}] * 2))
    env.reset()
    for _ in range(2):
        assert [type(given) for given in env.step(0)[1:2]] == [float]
    assert env._return == 2.0


@pytest.mark.parametrize("name", REWARDS)
def test_a_reward_that_is_no_number_of_float32_is_refused(tmp_path: Path, name: str) -> None:
    """At its step, by number, value and rule; the env step is counted."""
    reward, rule = REWARDS[name]
    env, file = make(tmp_path, Scripted([{"reward": reward}]), rank=1, index=1)
    env.reset()
    with pytest.raises(ValueError, match=rf"^environment 3 gave the reward .*{re.escape(rule)}"):
        env.step(0)
    assert file.count(2, "env_steps") == 1
    assert file.seconds(2, "step_s") >= SLEEP_S


@pytest.mark.parametrize("name", INFOS)
def test_info_that_cannot_be_counted_is_refused(tmp_path: Path, name: str) -> None:
    """Frames, raw rewards, success and SPL have rules; counters hold what was stepped, and no frames of it."""
    info, rule = INFOS[name]
    env, file = make(tmp_path, Scripted([{"end": "dead", "info": info}]), index=1)
    env.reset()
    with pytest.raises(ValueError, match=rf"^environment 1 gave .*{re.escape(rule)}"):
        env.step(0)
    assert (file.count(2, "env_steps"), file.count(2, "episodes")) == (1, 0)
    assert file.seconds(2, "step_s") >= SLEEP_S
    assert 0 <= file.count(2, "frames") <= 1


@pytest.mark.parametrize("success", [0, 1.0, True, np.float32(0.5), np.array([1]), math.nan])
def test_success_is_a_share(tmp_path: Path, success: Any) -> None:
    """From 0 to 1, or not known."""
    env, file = make(tmp_path, Scripted([{"end": "dead", "info": {"success": success, "num_frames": np.int64(2)}}]))
    env.reset()
    env.step(0)
    assert (file.count(1, "episodes"), file.count(1, "frames")) == (1, 2)


@pytest.mark.parametrize("name", ANSWERS)
def test_what_is_no_answer_to_a_step_is_refused(tmp_path: Path, name: str) -> None:
    """With the environment, what it gave and what it must be."""
    answer, rule = ANSWERS[name]
    env, file = make(tmp_path, Scripted([]), index=1)
    env.reset()
    cast("Any", env)._env.step = lambda _: answer
    with pytest.raises(ValueError, match=rf"^environment 1 (step )?gave .*{re.escape(rule.removeprefix('gave '))}"):
        env.step(0)
    assert file.count(2, "env_steps") == 1
    assert file.seconds(2, "step_s") > 0
    assert [kind for *_, kind in file.spans(2)] == ["reset", "simulate"]


@pytest.mark.parametrize("flag", [0, 1, np.bool_(0), np.bool_(1), np.int64(1), np.array([False]), np.array(1.0)])
def test_flags_may_be_of_other_classes(tmp_path: Path, flag: Any) -> None:
    """NumPy's, an array of one, or 0 and 1; they become Python's, and end episodes."""
    env, file = make(tmp_path, Scripted([]))
    env.reset()
    for flags in ((flag, False), (False, flag)):
        cast("Any", env)._env.step = lambda _, flags=flags: ({}, 0.0, *flags, {})
        _, _, *given, _ = env.step(0)
        assert given == [bool(each) for each in flags]
        assert {type(each) for each in given} == {bool}
    assert file.count(1, "episodes") == 2 * bool(flag)


@pytest.mark.parametrize("name", RESETS)
def test_what_is_no_answer_to_a_reset_is_refused(tmp_path: Path, name: str) -> None:
    """With the environment, what it gave and what it must be."""
    answer, rule = RESETS[name]
    env, _ = make(tmp_path, Scripted([]), index=1)
    cast("Any", env)._env.reset = lambda **_: answer
    with pytest.raises(ValueError, match=rf"^environment 1 reset gave .*{re.escape(rule)}"):
        env.reset()


@pytest.mark.parametrize("name", ["observation_space", "action_space"])
def test_an_environment_of_other_spaces_is_refused(tmp_path: Path, name: str) -> None:
    """Each is compared when it is made: one whose bounds are its own has the shapes that the scenario states."""
    given, stated = (gymnasium.spaces.Box(-high, high, (3,)) for high in (2.0, 1.0))
    scripted = Scripted([])
    for key in ("observation_space", "action_space"):
        setattr(scripted, key, stated)
        setattr(ScriptedEnv, key, given if key == name else stated)
    try:
        with pytest.raises(ValueError, match=rf"^environment 1 has {name} Box\(-2\.0, .*: the scenario states Box\(-1"):
            make(tmp_path, scripted, index=1)
        setattr(scripted, name, given)
        make(tmp_path, scripted, index=1)[0].close()
    finally:
        for key in ("observation_space", "action_space"):
            delattr(ScriptedEnv, key)


def test_close_closes_the_environment_and_its_file(tmp_path: Path) -> None:
    """Nothing stays open behind a closed environment."""
    scripted = Scripted([])
    env, _ = make(tmp_path, scripted)
    inner = cast("ScriptedEnv", env._env)
    episodes = str(episodes_path(tmp_path, rank=0))
    assert open_files().count(episodes) == 1
    env.close()
    assert inner.closed
    assert episodes not in open_files()


def test_a_close_that_raises_leaves_no_file_open(tmp_path: Path) -> None:
    """What it raises is passed on, and the episode file is closed all the same."""
    env, _ = make(tmp_path, Scripted([]))

    def fail() -> None:
        raise LookupError("no wall")

    cast("Any", env)._env.close = fail
    with pytest.raises(LookupError, match="no wall"):
        env.close()
    assert str(episodes_path(tmp_path, rank=0)) not in open_files()
