from __future__ import annotations

import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, cast

import ale_py
import numpy as np
import pytest
from numpy.typing import NDArray

from rlbench.harness.contract.scenario import Scenario
from rlbench.scenarios.atari import FAMILY, HETEROGENEOUS_GAMES, AtariEnv, AtariScenario
from rlbench.scenarios.resize import AreaResize
from tests.scenarios.seats import seat_of

BREAKOUT = FAMILY.make("breakout", "homogeneous")


def make_env(scenario: AtariScenario = BREAKOUT, *, seed: int = 1, index: int = 0, rank: int = 0) -> AtariEnv:
    """Makes an environment of a run of two ranks; it renders on the CPU and uses no device."""
    return scenario.make_env(seat_of(rank=rank, num_ranks=2, index=index, seed=seed))


def play(env: AtariEnv, num_env_steps: int) -> list[tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]]:
    """Steps through the actions in turn, without a reset."""
    actions = (index % int(BREAKOUT.action_space.n) for index in range(num_env_steps))
    return [(pixels["pixels"], *rest) for pixels, *rest in map(env.step, actions)]


def literal_resize(image: NDArray[np.uint8], height: int, width: int) -> NDArray[np.float64]:
    """The mean over the area of each output pixel, on a grid so fine that it cuts no input pixel."""
    fine = np.kron(image.astype(np.float64), np.ones((height, width)))
    blocks = fine.reshape(height, image.shape[0], width, image.shape[1])
    return cast("NDArray[np.float64]", blocks.mean(axis=(1, 3)))


def test_import_is_light() -> None:
    """Importing the scenario imports neither torch nor the emulator."""
    code = "import rlbench.scenarios.atari, sys; sys.exit(bool({'torch', 'ale_py'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=Path(__file__).parents[2]).returncode == 0


def test_variants_are_the_playable_games() -> None:
    """The variants are the shipped games that ALE can play alone, the default first."""
    assert FAMILY.unavailable() is None
    assert FAMILY.variants[0] == "breakout"
    assert {"pong", "space_invaders", "montezuma_revenge", *HETEROGENEOUS_GAMES} < set(FAMILY.variants)
    assert "combat" not in FAMILY.variants
    assert FAMILY.make("", "homogeneous") == BREAKOUT


def test_unknown_game_lists_the_known_ones() -> None:
    """An unknown game, as a variant or as a setting, is refused with the list of the known ones."""
    with pytest.raises(ValueError, match=r"^atari/pung: unknown game; did you mean 'pong'\? known: .*breakout"):
        FAMILY.make("pung", "homogeneous")
    with pytest.raises(ValueError, match=r"^atari/breakout:games=.*pong"):
        replace(BREAKOUT, games=("pung",))


def test_scenario_has_the_fields_of_the_contract() -> None:
    """All fields that `Scenario` asks for are settings of the scenario."""
    assert set(Scenario.__annotations__) <= {field.name for field in fields(AtariScenario)}


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("workload", "mixed"),
        ("num_envs", 0),
        ("rollout_steps", 0),
        ("games", ()),
        ("games", ("pong", "breakout")),
        ("frameskip", 0),
        ("repeat_action_probability", 1.0),
        ("noop_max", -1),
        ("max_episode_frames", 30),
        ("resolution", 8),
        ("frame_stack", 0),
    ],
)
def test_bad_setting_is_refused_in_one_line(setting: str, value: Any) -> None:
    """A setting out of range raises one line that names scenario, setting and rule."""
    with pytest.raises(ValueError, match=rf"^atari/breakout:{setting}=[^\n]*: must be [^\n]+$"):
        replace(BREAKOUT, **{setting: value})


@pytest.mark.parametrize(("size", "new_size"), [((21, 16), (9, 7)), ((30, 40), (18, 32)), ((12, 12), (12, 4))])
def test_resize_takes_the_mean_of_the_area(size: tuple[int, int], new_size: tuple[int, int]) -> None:
    """Every output pixel is the mean of the area that it covers, rounded, over all leading axes."""
    images = np.random.default_rng(0).integers(0, 256, (3, *size), dtype=np.uint8)
    resized = AreaResize(size, new_size)(images)
    assert resized.dtype == np.uint8
    for image, small in zip(images, resized, strict=True):
        assert np.abs(small - literal_resize(image, *new_size)).max() < 0.501


def test_observation_is_the_maximum_of_the_last_two_frames() -> None:
    """Pixels and scores are those of a plain ALE that is stepped frame by frame, with the same seed and no-ops."""
    env = make_env(seed=5)
    first = env.reset()[0]["pixels"]
    ale = ale_py.ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(Path(ale_py.__file__).parent / "roms" / "breakout.bin")
    for _ in range(np.random.default_rng(5).integers(1, 30, endpoint=True)):
        ale.act(0)
    resize = AreaResize((210, 160), (84, 84))
    assert (first == resize(ale.getScreenGrayscale())).all()
    before = first
    for action, (pixels, _, _, _, info) in enumerate(play(env, 60)):
        code = ale.getMinimalActionSet()[action % 4]
        score = ale.act(code) + ale.act(code) + ale.act(code)
        frame = ale.getScreenGrayscale()
        score += ale.act(code)
        assert (pixels[-1] == resize(np.maximum(frame, ale.getScreenGrayscale()))).all()
        assert (pixels[:-1] == before[1:]).all()
        assert info == {"num_frames": 4, "raw_reward": score}
        before = pixels


def test_observation_lies_in_its_space() -> None:
    """Reset and step give what the observation space says, and later steps do not change what was given."""
    env = make_env()
    observation, _ = env.reset()
    kept = observation["pixels"].copy()
    steps = play(env, 20)
    assert BREAKOUT.observation_space.contains(observation)
    assert all(BREAKOUT.observation_space.contains({"pixels": step[0]}) for step in steps)
    assert (observation["pixels"] == kept).all()


def test_equal_seeds_give_equal_episodes() -> None:
    """With sticky actions too, equal seeds and actions give equal steps, and so does a reset to the seed."""
    scenario = replace(BREAKOUT, repeat_action_probability=0.25)
    runs = []
    for env in (make_env(scenario, seed=3), make_env(scenario, seed=3), make_env(scenario, seed=4)):
        env.reset()
        runs.append(np.stack([step[0] for step in play(env, 100)]))
    assert (runs[0] == runs[1]).all()
    assert (runs[0] != runs[2]).any()
    env.reset(seed=3)
    assert (runs[0] == np.stack([step[0] for step in play(env, 100)])).all()


def test_game_over_is_a_termination() -> None:
    """The end of the game is a termination; rewards are the signs of the scores, whose sum is the game's own."""
    env = make_env(FAMILY.make("qbert", "homogeneous"))
    env.reset()
    rng = np.random.default_rng(0)
    scores, terminated = [], False
    while not terminated:
        _, reward, terminated, truncated, info = env.step(int(rng.integers(6)))
        assert not truncated
        assert reward == np.sign(info["raw_reward"])
        scores.append(info["raw_reward"])
    assert sum(scores) >= 25 > sum(np.sign(scores)) > 0  # Q*bert gives 25 points for a cube
    assert env._ale.game_over()


def test_time_limit_is_a_truncation() -> None:
    """The frame limit ends the episode to the frame, no-op frames counted, as a truncation."""
    env = make_env(replace(BREAKOUT, max_episode_frames=101, noop_max=0))
    env.reset()
    steps = play(env, 26)
    assert [step[3] for step in steps] == [False] * 25 + [True]
    assert not any(step[2] for step in steps)
    assert [step[4]["num_frames"] for step in steps] == [4] * 25 + [1]


def test_life_loss_can_end_an_episode() -> None:
    """With `terminal_on_life_loss` a lost life is a termination, and the game goes on after the reset."""
    env = make_env(replace(BREAKOUT, terminal_on_life_loss=True))
    lives = []
    for _ in range(6):
        env.reset()
        lives.append(env._ale.lives())
        while not any(env.step(1)[2:4]):
            pass
    assert lives == [5, 4, 3, 2, 1, 5]


def test_heterogeneous_games_go_by_global_index() -> None:
    """Environments of all ranks take the games in turn, with one action space and one observation space."""
    scenario = FAMILY.make("", "heterogeneous")
    assert set(scenario.games) == set(HETEROGENEOUS_GAMES)
    assert scenario.action_space.n == 18
    for rank, index in ((0, 0), (0, 5), (1, 0)):
        env = make_env(scenario, rank=rank, index=index)
        assert env._game == scenario.games[(rank * 8 + index) % 6]
        env.reset()
        assert all(scenario.observation_space.contains(env.step(action)[0]) for action in range(18))


@pytest.mark.parametrize("game", ["skiing", "adventure", "pooyan"])
def test_uncommon_consoles_fit(game: str) -> None:
    """Games with another screen height or with fewer legal actions play with the full action space too."""
    env = make_env(replace(FAMILY.make(game, "homogeneous"), full_action_space=True))
    env.reset()
    assert all(BREAKOUT.observation_space.contains(env.step(action)[0]) for action in range(18))
