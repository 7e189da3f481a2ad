from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

from rlbench.harness.commands import filming
from rlbench.harness.plan import registry
from rlbench.results.records.store import write_run
from rlbench.systems.engine.rank.rank_loop import POLICY_FILE
from rlbench.systems.policies.policy import policy_of
from tests.harness.command import Ended, assert_refused, call
from tests.reports.exports.seen import pictures_of
from tests.results.made_records import make_record, write_series

DRAWN = {
    "gym/CartPole-v1": ({"num_envs": 2}, (400, 600), 50),
    "atari/pong": ({"num_envs": 1, "max_episode_frames": 60}, (420, 320), 15),
    "vizdoom/basic": ({"num_envs": 1}, (240, 320), 8.75),
    "pointnav": ({"num_envs": 2, "max_steps": 20}, (256, 512), 10),
    "pettingzoo/mpe/simple_spread_v3": ({"num_envs": 2}, (700, 700), 10),
    "minigrid/Empty-5x5": ({"num_envs": 1, "max_episode_steps": 10}, (320, 320), 10),
}
"""Scenarios that draw: some settings, height and width of a picture, pictures per second."""
OWN = """
import gymnasium, numpy as np

class Own(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.zeros(2, np.float32), 1.0, self.t == 5, False, {}

    def render(self):
        return RENDERED
"""


def leave_policy(folder: Path, scenario: str, **settings: Any) -> Path:
    """The folder of a finished run of `sync` that has left an untrained policy."""
    path = folder / "001-run"
    path.mkdir(parents=True)
    cell = {
        "scenario": scenario,
        "workload": "homogeneous",
        "device": "cpu",
        "settings": {f"scenario.{name}": value for name, value in settings.items()},
    }
    write_run(path, make_record("sync", cell=cell, figures={"emulated": False}))
    write_series(path, [(0, 0, 0.0, 1.0, 32)], lost=False)
    made = registry.load_scenario(scenario, "homogeneous", {name: str(value) for name, value in settings.items()})
    torch.save(policy_of(made, seed=0).state_dict(), path / POLICY_FILE)
    return path


def evaluated(run: Path, *more: str) -> Ended:
    """What `evaluate --json` says of four episodes."""
    return call("evaluate", str(run), "--episodes", "4", "--json", *more)


@pytest.mark.parametrize("scenario", DRAWN)
def test_what_draws_is_filmed(tmp_path: Path, scenario: str) -> None:
    """The video has a picture of each moment of the first environment, and they differ; the figures are as without."""
    settings, size, per_second = DRAWN[scenario]
    run = leave_policy(tmp_path, scenario, **settings)
    video = tmp_path / "out.mp4"
    ended = evaluated(run, "--video", str(video))
    assert (ended.code, ended.err) == (0, "")
    (row,) = json.loads(ended.out)
    told = row.pop("video")
    assert [row] == json.loads(evaluated(run).out)
    pictures, rate = pictures_of(video)
    assert (told["file"], told["pictures"], told["per_second"]) == (str(video), len(pictures), per_second)
    assert float(rate) == per_second
    assert {picture.shape for picture in pictures} == {(*size, 3)}
    assert len(pictures) > told["episodes"] >= 1
    assert any(np.any(picture != pictures[0]) for picture in pictures)


def test_a_film_has_the_episodes_of_one_environment(tmp_path: Path) -> None:
    """Of four episodes in two environments it has two: a picture before the first step of each, and after each step."""
    run = leave_policy(tmp_path, "pointnav", num_envs=2, max_steps=1)
    (row,) = json.loads(evaluated(run, "--video", str(tmp_path / "out.gif")).out)
    assert (row["episodes"], row["video"]["episodes"], row["video"]["pictures"]) == (4, 2, 4)
    assert len(pictures_of(tmp_path / "out.gif")[0]) == 4


def test_a_film_has_an_end(tmp_path: Path) -> None:
    """It ends where it has as many pictures as it may have, and says so; the episodes are played to their end."""
    run = leave_policy(tmp_path, "pointnav", num_envs=1, max_steps=1)
    with patch.object(filming, "MOST_PICTURES", 5):
        ended = call("evaluate", str(run), "--episodes", "4", "--video", str(tmp_path / "out.mp4"))
    assert "out.mp4: 3 episodes of environment 0, 5 pictures, 10 per second, as many as a video may have" in ended.out
    assert len(pictures_of(tmp_path / "out.mp4")[0]) == 5


def test_what_does_not_draw_is_refused(tmp_path: Path) -> None:
    """It is one line with those that do, before anything is played, and no file."""
    run = leave_policy(tmp_path, "emulated/open-fridge", num_envs=1)
    ended = evaluated(run, "--video", str(tmp_path / "out.mp4"))
    assert_refused(
        ended, "emulated/open-fridge cannot be drawn (its environments have no render())", "atari, ", "gym, "
    )
    assert not (tmp_path / "out.mp4").exists()


@pytest.mark.parametrize(
    ("rendered", "expected"),
    [
        ("np.full((8, 8, 3), 10 * self.t, np.uint8)", None),
        ("None", "its render() gave None: it must give an array of uint8 [H, W, 3]"),
        ("np.zeros((8, 8), np.uint8)", "its render() gave uint8 [8, 8]: it must give"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_an_environment_of_ones_own(tmp_path: Path, rendered: str, expected: str | None) -> None:
    """One without `render_mode` draws by its `render()`; what that gives must be a picture."""
    file = tmp_path / "own.py"
    file.write_text(OWN.replace("RENDERED", rendered))
    scenario = f"gym/{file}:Own"
    run = leave_policy(tmp_path, scenario, num_envs=1)
    ended = evaluated(run, "--scenario", f"{scenario}:num_envs=1", "--video", str(tmp_path / "out.mp4"))
    if expected is not None:
        assert_refused(ended, expected)
        return
    assert ended.err == ""
    levels = [picture.mean() for picture in pictures_of(tmp_path / "out.mp4")[0][:6]]
    assert np.allclose(levels, [0, 10, 20, 30, 40, 50], atol=3)


def test_what_cannot_be_written_is_said_first(tmp_path: Path) -> None:
    """Another ending, a folder that is not there, a folder in the file's place and several runs are refused."""
    run = leave_policy(tmp_path / "sweep", "pointnav")
    (tmp_path / "folder.mp4").mkdir()
    for video, expected in (
        ("out.avi", "must end in .mp4 or .gif"),
        ("no/out.mp4", "there is no folder"),
        ("folder.mp4", "is a folder; name a file"),
    ):
        assert_refused(evaluated(run, "--video", str(tmp_path / video)), f"--video {tmp_path / video}: {expected}")
    ended = evaluated(run, str(run), "--video", str(tmp_path / "out.mp4"))
    assert_refused(ended, "shows one run, and there are 2; name the folder of one")


def test_the_package_is_missing(tmp_path: Path) -> None:
    """It is said with what installs it."""
    run = leave_policy(tmp_path, "pointnav")
    with patch.object(filming, "find_spec", lambda _: None):
        ended = evaluated(run, "--video", "out.mp4")
    assert_refused(ended, "--video out.mp4: needs the package av; pip install 'rlbench[video]'")
