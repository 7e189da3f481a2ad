from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import psutil
import pytest
import vizdoom

from rlbench.harness.contract.scenario import Scenario
from rlbench.scenarios.doom_maps import MAPS
from rlbench.scenarios.vizdoom import (
    FAMILY,
    HETEROGENEOUS_MAPS,
    HETEROGENEOUS_RESOLUTIONS,
    VizdoomEnv,
    VizdoomScenario,
    _engine_seed,
)
from tests.harness.runs import has_ended, wait_until
from tests.scenarios.seats import seat_of

BASIC = FAMILY.make("basic", "homogeneous")
DEATHMATCH = FAMILY.make("deathmatch", "homogeneous")
ROOT = Path(__file__).parents[2]
SHARED = Path("/dev/shm")  # noqa: S108  # where POSIX shared memory lives

WORKER = """
import sys, time
from rlbench.scenarios.vizdoom import FAMILY
from tests.scenarios.seats import seat_of
env = FAMILY.make("basic", "homogeneous").make_env(
    seat_of(num_ranks=1, num_envs=1))
env.reset()
print("ready", flush=True)
sys.stdin.read()
"""


def make_env(scenario: VizdoomScenario = BASIC, *, seed: int = 1, index: int = 0) -> VizdoomEnv:
    """Makes an environment of a run; it renders on the CPU and uses no device."""
    return scenario.make_env(seat_of(num_ranks=1, index=index, num_envs=20, seed=seed))


@pytest.fixture
def env() -> Iterator[VizdoomEnv]:
    """`basic`, closed at the end."""
    env = make_env()
    yield env
    env.close()


def engines(pid: int) -> list[psutil.Process]:
    """The engines of a process that run."""
    children = psutil.Process(pid).children()
    return [child for child in children if child.name() == "vizdoom" and child.status() != psutil.STATUS_ZOMBIE]


def shared_memory(pid: int | str = "self") -> set[Path]:
    """The files in /dev/shm that a process has mapped."""
    last_words = (line.split()[-1] for line in Path(f"/proc/{pid}/maps").read_text().splitlines())
    return {Path(word) for word in last_words if Path(word).parent == SHARED}


def plain_game(name: str, seed: int) -> Any:
    """The map as ViZDoom ships it, its own time limit and rewards on, at the start of the seed's first episode."""
    game = vizdoom.DoomGame()
    game.load_config(str(Path(vizdoom.scenarios_path) / f"{name}.cfg"))
    game.set_available_buttons([vizdoom.Button.__members__[button] for button in MAPS[name].buttons])
    game.set_available_game_variables([])
    game.set_screen_resolution(vizdoom.ScreenResolution.RES_160X120)
    game.set_screen_format(vizdoom.ScreenFormat.RGB24)
    game.set_window_visible(False)
    game.set_doom_config_path(os.devnull)
    game.init()
    game.set_seed(_engine_seed(seed))
    game.new_episode()
    return game


def test_import_is_light() -> None:
    """Importing the scenario imports neither torch nor ViZDoom."""
    code = "import rlbench.scenarios.vizdoom, sys; sys.exit(bool({'torch', 'vizdoom', 'ale_py'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT).returncode == 0


def test_unknown_map_lists_the_known_ones() -> None:
    """An unknown map, as a variant or as a setting, is refused with the list of the known ones."""
    assert FAMILY.unavailable() is None
    assert FAMILY.variants[:2] == ("basic", "my_way_home")
    with pytest.raises(ValueError, match=r"^vizdoom/basik: .*basic.*my_way_home"):
        FAMILY.make("basik", "homogeneous")
    with pytest.raises(ValueError, match=r"^vizdoom/basic:maps=.*my_way_home"):
        replace(BASIC, maps=("basik",))


def test_scenario_has_the_fields_of_the_contract() -> None:
    """All fields that `Scenario` asks for are settings of the scenario."""
    assert set(Scenario.__annotations__) <= {field.name for field in fields(VizdoomScenario)}


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("workload", "mixed"),
        ("workload", "heterogeneous"),
        ("num_envs", 0),
        ("rollout_steps", 0),
        ("maps", ()),
        ("render_resolutions", ("161x120",)),
        ("frameskip", 0),
        ("width", 10),
        ("height", 1000),
    ],
)
def test_bad_setting_is_refused_in_one_line(setting: str, value: Any) -> None:
    """A setting out of range raises one line that names scenario, setting and rule."""
    with pytest.raises(ValueError, match=rf"^vizdoom/basic:{setting}=[^\n]*: must be [^\n]+$"):
        replace(BASIC, **{setting: value})


@pytest.mark.parametrize("name", ["basic", "my_way_home", "deadly_corridor", "predict_position", "deathmatch"])
def test_steps_are_the_engines_own(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rewards, frames, ends and their kind, and screens are those of the plain map that is stepped frame by frame."""
    monkeypatch.chdir(tmp_path)  # the plain engine leaves a folder
    scenario = FAMILY.make(name, "homogeneous")
    env, game = make_env(scenario, seed=7), plain_game(name, 7)
    env.reset()
    own = plain_game(name, 7)
    env.action_space.seed(0)
    for _ in range(200):
        action = env.action_space.sample()
        held = env._held(action)
        observation, reward, terminated, truncated, info = env.step(action)
        raw_reward = game.make_action(held, scenario.frameskip)
        num_frames = 0
        own.set_action(held)
        while num_frames < scenario.frameskip and not own.is_episode_finished():
            own.advance_action(1)
            num_frames += 1
        assert info == {"num_frames": num_frames}
        assert reward == pytest.approx(raw_reward * MAPS[name].reward_scale)
        assert (terminated or truncated) == game.is_episode_finished()
        assert truncated == game.is_episode_timeout_reached()
        if terminated or truncated:
            env.reset()
            game.new_episode()
            own.new_episode()
        else:
            screen = np.ascontiguousarray(game.get_state().screen_buffer.transpose(2, 0, 1))
            assert (observation["pixels"] == env._resize(screen)).all()
    for engine in (env, game, own):
        engine.close()


def test_time_limit_is_a_truncation_with_a_last_screen(env: VizdoomEnv) -> None:
    """`basic` is truncated at 300 frames, with a screen to bootstrap from, and frames are cut to the limit."""
    before = env.reset()[0]["pixels"]
    env._frameskip = 7
    for step in range(43):
        observation, _, terminated, truncated, info = env.step(1 + step % 2)
        assert not terminated
        assert truncated == (step == 42)
        assert (observation["pixels"] != before).any()
        assert info["num_frames"] == (6 if truncated else 7)
        before = observation["pixels"]


def test_equal_seeds_give_equal_episodes(env: VizdoomEnv) -> None:
    """Equal seeds and actions give equal steps, in another engine and after a reset to the seed; others differ."""

    def play(env: VizdoomEnv, seed: int | None = None) -> list[Any]:
        seen = [env.reset(seed=seed)[0]["pixels"].tobytes()]
        for index in range(100):
            observation, *rest = env.step(index % 4)
            seen.append((observation["pixels"].tobytes(), rest))
            if rest[1] or rest[2]:
                seen.append(env.reset()[0]["pixels"].tobytes())
        return seen

    other = make_env(seed=2)
    first = play(env)
    assert play(other) != first
    assert play(other, seed=1) == first
    assert play(env, seed=1) == first
    other.close()


def test_heterogeneous_shares_one_action_space() -> None:
    """Maps and resolutions go by global index; a map's missing actions are no-ops, its own keep their buttons."""
    scenario = FAMILY.make("", "heterogeneous")
    assert len({scenario.kind(index) for index in range(12)}) == 12
    assert {scenario.kind(index)[0] for index in range(4)} == set(HETEROGENEOUS_MAPS)
    assert scenario.action_space == gymnasium.spaces.Discrete(len(scenario.actions))
    assert set(scenario.actions) == {action for name in scenario.maps for action in MAPS[name].actions}
    for index in (0, 1, 2):
        env = make_env(scenario, index=index)
        name, resolution = scenario.kind(index)
        env.reset()
        height, width = env._game.get_state().screen_buffer.shape[1:]
        assert resolution == f"{width}x{height}"
        for action, buttons in enumerate(scenario.actions):
            assert sum(env._actions[action]) == (len(buttons) if buttons in MAPS[name].actions else 0)
            assert scenario.observation_space.contains(env.step(action)[0])
        env.close()


@pytest.mark.parametrize("name", MAPS)
def test_every_map_plays(name: str) -> None:
    """Each variant starts, and gives an observation that its space contains."""
    scenario = FAMILY.make(name, "homogeneous")
    env = make_env(scenario)
    assert scenario.observation_space.contains(env.reset()[0])
    assert scenario.observation_space.contains(env.step(scenario.action_space.sample())[0])
    env.close()


def test_heads_are_the_published_ones() -> None:
    """`deathmatch` has the heads of Sample Factory's table A.4: 12,096 actions; two frames each, discount 0.995."""
    assert isinstance(DEATHMATCH.action_space, gymnasium.spaces.MultiDiscrete)
    assert DEATHMATCH.action_space.nvec.tolist() == [3, 3, 2, 2, 2, 8, 21]
    assert math.prod(DEATHMATCH.action_space.nvec.tolist()) == 12_096
    assert DEATHMATCH.frameskip == 2
    assert DEATHMATCH.learn == replace(BASIC.learn, discount=0.995)
    buttons = [{button for choice in head for button, _ in choice} for head in DEATHMATCH.heads]
    assert sum(map(len, buttons)) == len(MAPS["deathmatch"].buttons) == 15


def test_choices_of_all_heads_are_pressed_at_once() -> None:
    """Each head's choice presses its own button, whatever the others choose; an action of another length is refused."""
    env = make_env(DEATHMATCH)
    buttons = MAPS["deathmatch"].buttons

    def pressed(*action: int) -> dict[str, float]:
        return {button: held for button, held in zip(buttons, env._held(np.array(action)), strict=True) if held}

    assert pressed(0, 0, 0, 0, 0, 0, 10) == {}
    assert pressed(1, 2, 1, 1, 0, 3, 0) == {
        "MOVE_FORWARD": 1.0,
        "MOVE_RIGHT": 1.0,
        "ATTACK": 1.0,
        "SPEED": 1.0,
        "SELECT_WEAPON3": 1.0,
        "TURN_LEFT_RIGHT_DELTA": -12.5,
    }
    assert pressed(2, 1, 0, 0, 1, 0, 11) == {
        "MOVE_BACKWARD": 1.0,
        "MOVE_LEFT": 1.0,
        "USE": 1.0,
        "TURN_LEFT_RIGHT_DELTA": 1.25,
    }
    with pytest.raises(ValueError, match="shorter"):
        pressed(0, 0)
    env.close()


def test_the_agent_aims_and_walks_at_once() -> None:
    """In one step of `deathmatch` the agent turns by two frames of the angle, clockwise if positive, and moves."""
    env = make_env(DEATHMATCH)
    env.reset()
    for _ in range(10):  # Doom holds a player still for a moment at the start
        env.step([0, 0, 0, 0, 0, 0, 10])

    def state() -> np.ndarray:
        names = ("POSITION_X", "POSITION_Y", "ANGLE")
        return np.array([env._game.get_game_variable(vizdoom.GameVariable.__members__[name]) for name in names])

    before = state()
    for _ in range(4):
        env.step([1, 0, 0, 1, 0, 0, 14])  # 5 degrees
    x, y, angle = state() - before
    assert math.hypot(x, y) > 10
    assert math.remainder(angle, 360) == pytest.approx(-4 * 2 * 5, abs=1)
    env.close()


def test_a_map_with_heads_is_alone() -> None:
    """`deathmatch`'s heterogeneous workload is three resolutions; a mix of action spaces is refused in a line."""
    scenario = FAMILY.make("deathmatch", "heterogeneous")
    assert [scenario.kind(index) for index in range(3)] == [("deathmatch", r) for r in HETEROGENEOUS_RESOLUTIONS]
    assert scenario.action_space == DEATHMATCH.action_space
    with pytest.raises(ValueError, match=r"^vizdoom/deathmatch:maps=[^\n]*: must be of one kind: [^\n]+$"):
        replace(scenario, maps=("deathmatch", "basic"))


@pytest.mark.parametrize("resolution", ["160x120", "640x480"])
def test_engines_write_no_more_shared_memory_than_is_said(resolution: str) -> None:
    """What the kernel has given to an engine's names is within `shm_bytes`, and more than half of it."""
    scenario = replace(FAMILY.make("health_gathering", "homogeneous"), num_envs=1, render_resolutions=(resolution,))
    env = make_env(scenario)
    try:
        env.reset()
        for _ in range(100):
            _, _, terminated, truncated, _ = env.step(0)
            if terminated or truncated:
                env.reset()
        names = shared_memory()
        used = sum(512 * name.stat().st_blocks for name in names)
    finally:
        env.close()
    assert all(name.match(scenario.shm_names[0]) for name in names)
    assert scenario.shm_bytes / 2 < used <= scenario.shm_bytes


def test_close_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed environment leaves no process, no shared memory, and no file in the current or a temporary folder."""
    temporary, current = tmp_path / "temporary", tmp_path / "current"
    temporary.mkdir()
    current.mkdir()
    monkeypatch.chdir(current)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    env = make_env()
    env.reset()
    (engine,) = engines(os.getpid())
    mapped = shared_memory()
    assert len(mapped) == 3
    env.close()
    env.close()
    assert not engine.is_running()
    assert not any(file.exists() for file in mapped)
    assert not list(temporary.iterdir())
    assert not list(current.iterdir())


def test_engine_dies_with_a_killed_worker(tmp_path: Path) -> None:
    """After kill -9 of the worker its engine ends by itself, and /proc/<pid>/maps had named all that it leaves."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", WORKER],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as worker:
        assert worker.stdout
        assert worker.stdout.readline() == b"ready\n"
        (engine,) = engines(worker.pid)
        names = shared_memory(worker.pid)
        assert {name.name[:-10] for name in names} == {"ViZDoomMQCtr", "ViZDoomMQDoom", "ViZDoomSM"}
        worker.kill()
    wait_until(lambda: has_ended(engine), "the engine has ended")
    instance = next(iter(names)).name[-10:]
    assert set(SHARED.glob(f"*{instance}")) == names
    for name in names:
        name.unlink()
    assert not list(tmp_path.iterdir())


def test_dead_engine_is_an_error() -> None:
    """When the engine is killed the next step raises at once, and `close` still frees the shared memory."""
    env = make_env()
    env.reset()
    mapped = shared_memory()
    (engine,) = engines(os.getpid())
    engine.kill()
    with pytest.raises(vizdoom.ViZDoomErrorException):
        env.step(0)
    env.close()
    assert not any(file.exists() for file in mapped)


def test_engine_ignores_an_interrupt(env: VizdoomEnv) -> None:
    """Ctrl-C reaches every process of the terminal; the engine leaves it to its worker."""
    env.reset()
    (engine,) = engines(os.getpid())
    engine.send_signal(signal.SIGINT)
    for _ in range(20):
        env.step(0)
    assert engine.is_running()
