"""Atari 2600 games on the Arcade Learning Environment (ale-py), prepared as in Mnih et al. 2015, 'Preprocessing'.

One env step is `frameskip` frames with one action; the observation is the pixel-wise maximum of the last two of them,
grey, resized by area and stacked over the last `frame_stack` env steps. An episode begins with 1 to `noop_max` no-op
frames. Game over is a termination, the limit of `max_episode_frames` a truncation. The learner sees the reward clipped
to its sign; `info["raw_reward"]` of every step is the game's own score.

The heterogeneous workload gives environment i of the run (over all ranks) game i modulo six of `HETEROGENEOUS_GAMES`,
all with the 18 actions of the full joystick. `SPREAD` states how far apart their step costs are.

With `vector=native` ale-py itself steps batches of environments: `scenarios/atari_vector.py`, which says what differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rlbench.harness.contract.device import Seat
from rlbench.harness.contract.scenario import WORKLOADS
from rlbench.harness.contract.settings import TYPICAL_GPU_COSTS, GpuCosts, LearnSettings
from rlbench.results.reading.names import known_variants
from rlbench.scenarios.resize import AreaResize

if TYPE_CHECKING:
    from gymnasium.vector import AutoresetMode

    from rlbench.scenarios.atari_vector import AtariVectorEnv

DEFAULT_GAME = "breakout"
HETEROGENEOUS_GAMES = ("star_gunner", "seaquest", "qbert", "breakout", "enduro", "up_n_down")
"""From the cheapest to the dearest per frame; six, so that ranks of eight environments hold different mixtures."""
SPREAD = "step cost with a coefficient of variation of 0.3, max/min 2.2 to 2.8"
"""Over the six games, by three runs of `taskset -c 1 python benchmarks/hot_paths/bench_atari.py` (0.26, 0.31, 0.32)."""
NUM_JOYSTICK_ACTIONS = 18
FRAMES_PER_S = 60
"""Of play."""
LEAST_WITH_VECTORS = (0, 12)
"""Of ale-py: earlier vectors count their limit in env steps, and cannot reset part of themselves."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AtariScenario:
    """One game, or several that differ in cost; satisfies `harness.contract.scenario.Scenario`."""

    name: str = f"atari/{DEFAULT_GAME}"
    workload: str = "homogeneous"
    num_envs: int = 8
    """Environments of one rank."""
    vector: Literal["none", "native"] = "none"
    """`none`: each in a worker of its own; `native`: in batches, each stepped by ale-py's vector environment."""
    batch: int = 0
    """Environments of a batch; 0: half of those of a rank, so that two batches take turns, or all if that is odd."""
    rollout_steps: int = 128
    """Env steps of each environment in one rollout."""
    policy: str = "conv"
    """Network of `systems/policies`."""
    learn: LearnSettings = field(
        default_factory=lambda: LearnSettings(epochs=3, num_minibatches=4, clip=0.1, value_coef=1.0)
    )
    """PPO as published for Atari (Schulman et al. 2017, table 5), without its annealing."""
    gpu_costs: GpuCosts = TYPICAL_GPU_COSTS
    """Times of an emulated GPU; the games are drawn on the CPU."""
    preload: tuple[str, ...] = ("ale_py",)
    """Modules an environment worker needs."""
    games: tuple[str, ...] = (DEFAULT_GAME,)
    """Environment i of the run plays game i modulo their number."""
    full_action_space: bool = False
    """All 18 actions of the joystick instead of the game's minimal set; needed when there are several games."""
    frameskip: int = 4
    """Frames per env step."""
    repeat_action_probability: float = 0.0
    """Chance per frame that the last action is repeated: 0 as in Mnih et al. 2015, 0.25 as in Machado et al. 2018."""
    noop_max: int = 30
    """An episode begins with 1 to this many no-op frames; 0 for none."""
    max_episode_frames: int = 108_000
    """Frames (30 minutes of play) after which an episode is truncated."""
    clip_reward: bool = True
    """The learner sees the sign of the score; `info["raw_reward"]` stays unclipped."""
    terminal_on_life_loss: bool = False
    """A lost life ends the episode; the game then goes on from there."""
    resolution: int = 84
    """Height and width of the observation, pixels."""
    frame_stack: int = 4
    """Env steps seen at once, the oldest first."""

    def __post_init__(self) -> None:
        """Checks every field once."""
        several = len(self.games) > 1
        rules = (
            ("workload", self.workload in WORKLOADS, f"one of: {', '.join(WORKLOADS)}"),
            ("num_envs", self.num_envs >= 1, "at least 1"),
            ("rollout_steps", self.rollout_steps >= 1, "at least 1"),
            ("vector", self.vector in {"none", "native"}, "none or native"),
            ("vector", self.vector == "none" or not several, "none when there are several games: a batch has one"),
            ("vector", self.vector == "none" or _has_vectors(), "none with ale-py below 0.12; pip install -U ale-py"),
            ("batch", self.batch >= 0, "at least 0; 0 is half of num_envs"),
            ("batch", not self.batch or self.vector != "none", "0 with vector=none"),
            ("vector", self.vector == "none" or self.envs_per_batch > 1, "none when a batch has one environment"),
            ("games", len(self.games) >= 1, "at least one game"),
            ("games", set(self.games) <= set(FAMILY.variants or self.games), f"among: {', '.join(FAMILY.variants)}"),
            ("games", several == (self.workload == "heterogeneous"), "several when heterogeneous, else one"),
            ("full_action_space", self.full_action_space or not several, "true when there are several games"),
            ("frameskip", self.frameskip >= 1, "at least 1"),
            ("repeat_action_probability", 0 <= self.repeat_action_probability < 1, "from 0 to below 1"),
            ("noop_max", self.noop_max >= 0, "at least 0"),
            ("max_episode_frames", self.max_episode_frames > self.noop_max, "above noop_max"),
            ("resolution", 36 <= self.resolution <= 160, "from 36 to 160 pixels"),
            ("frame_stack", self.frame_stack >= 1, "at least 1"),
        )
        for name, holds, rule in rules:
            if not holds:
                raise ValueError(f"{self.name}:{name}={getattr(self, name)}: must be {rule}")

    @property
    def observation_space(self) -> gymnasium.spaces.Dict:
        """`pixels`: uint8 [frame_stack, resolution, resolution], grey."""
        shape = (self.frame_stack, self.resolution, self.resolution)
        return gymnasium.spaces.Dict({"pixels": gymnasium.spaces.Box(0, 255, shape, np.uint8)})

    @property
    def action_space(self) -> gymnasium.spaces.Discrete:
        """18 with the full action space, else the game's minimal set."""
        num = NUM_JOYSTICK_ACTIONS if self.full_action_space else len(minimal_actions(self.games[0]))
        return gymnasium.spaces.Discrete(num)

    @property
    def envs_per_batch(self) -> int:
        """Environments that are stepped by one call; 1 where each is stepped by itself."""
        if self.vector == "none":
            return 1
        return self.batch or (self.num_envs // 2 if self.num_envs % 2 == 0 else self.num_envs)

    def game(self, global_index: int) -> str:
        """The game of one environment of the run."""
        return self.games[global_index % len(self.games)]

    def part(self, global_index: int, seed: int) -> str:  # noqa: ARG002  the same for every seed
        """The game."""
        return self.game(global_index)

    def make_env(self, seat: Seat) -> AtariEnv:
        """Makes the environment of a seat, in the process that will step it."""
        return AtariEnv(self, self.game(seat.global_index), seat.seed)

    def make_envs(self, seats: Sequence[Seat], mode: AutoresetMode | None = None) -> AtariVectorEnv:
        """Makes the environments of a batch of seats, in the process that will step them; `mode` is SAME_STEP if None.

        Imports what gymnasium before 1.1 lacks, which trainers may have that only make single environments.
        """
        from gymnasium.vector import AutoresetMode

        from rlbench.scenarios.atari_vector import AtariVectorEnv

        return AtariVectorEnv(
            self.games[0],
            len(seats),
            (self.observation_space, self.action_space),
            clips=self.clip_reward,
            frameskip=self.frameskip,
            mode=mode or AutoresetMode.SAME_STEP,
            max_num_frames_per_episode=self.max_episode_frames,
            repeat_action_probability=self.repeat_action_probability,
            full_action_space=self.full_action_space,
            img_height=self.resolution,
            img_width=self.resolution,
            stack_num=self.frame_stack,
            noop_max=self.noop_max + 1,  # it is above the most that is drawn
            life_loss_info=self.terminal_on_life_loss,
        )


class AtariEnv(gymnasium.Env[dict[str, Any], int]):
    """One game on an ALE of its own."""

    def __init__(self, scenario: AtariScenario, game: str, seed: int) -> None:
        self._scenario = scenario
        self._game = game
        self._lives = 0
        self.observation_space = scenario.observation_space
        self.action_space = cast("gymnasium.Space[int]", scenario.action_space)
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": FRAMES_PER_S / scenario.frameskip}
        self._start(seed)
        height, width = self._ale.getScreenDims()
        self._resize = AreaResize((height, width), (scenario.resolution, scenario.resolution))
        self._screens = np.zeros((2, height, width), np.uint8)
        shape = (scenario.frame_stack, scenario.resolution, scenario.resolution)
        self._stack: NDArray[np.uint8] = np.zeros(shape, np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begins an episode; a `seed` restarts the environment's random streams."""
        del options
        if seed is not None:
            self._start(seed)
        ale = self._ale
        if self._scenario.terminal_on_life_loss and self._lives and not ale.game_over():
            ale.act(0)
        else:
            ale.reset_game()
            if self._scenario.noop_max:
                for _ in range(self.np_random.integers(1, self._scenario.noop_max, endpoint=True)):
                    ale.act(0)
                    if ale.game_over():
                        ale.reset_game()
        self._lives = ale.lives()
        ale.getScreenGrayscale(self._screens[0])
        self._stack[:] = self._resize(self._screens[0])
        return {"pixels": self._stack.copy()}, {}

    def step(self, action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Plays `frameskip` frames, fewer when the game ends; `info` holds `num_frames` and `raw_reward`."""
        ale, code = self._ale, self._actions[action]
        frameskip = self._scenario.frameskip
        score, num_frames, num_screens = 0, 0, 0
        while num_frames < frameskip and not ale.game_over():
            score += ale.act(code)
            num_frames += 1
            if num_frames >= frameskip - 1:
                ale.getScreenGrayscale(self._screens[num_screens])
                num_screens += 1
        if num_screens == 0:
            ale.getScreenGrayscale(self._screens[0])
        newest = np.maximum(self._screens[0], self._screens[1]) if num_screens == 2 else self._screens[0]
        self._stack[:-1] = self._stack[1:]
        self._stack[-1] = self._resize(newest)
        lives = ale.lives()
        terminated = ale.game_over(with_truncation=False)
        truncated = not terminated and ale.game_truncated()
        if self._scenario.terminal_on_life_loss and lives < self._lives:
            terminated, truncated = True, False
        self._lives = lives
        reward = float(np.sign(score)) if self._scenario.clip_reward else float(score)
        info = {"num_frames": num_frames, "raw_reward": float(score)}
        return {"pixels": self._stack.copy()}, reward, terminated, truncated, info

    def render(self) -> NDArray[np.uint8]:
        """The game's screen in colours, [210, 160, 3] in most games."""
        screen: NDArray[np.uint8] = self._ale.getScreenRGB()
        return screen

    def _start(self, seed: int) -> None:
        """Loads the game; ALE takes its seed and its settings only then."""
        scenario = self._scenario
        self.np_random = np.random.default_rng(seed)
        ale = _new_ale()
        ale.setInt("random_seed", int(np.random.SeedSequence(seed).generate_state(1)[0] >> 1))
        ale.setFloat("repeat_action_probability", scenario.repeat_action_probability)
        ale.setInt("max_num_frames_per_episode", scenario.max_episode_frames)
        ale.loadROM(_rom(self._game))
        self._ale = ale
        self._lives = 0
        legal = {action.value for action in ale.getLegalActionSet()}
        # Paddle games have fewer than the joystick's 18 actions; the others are no-ops there.
        joystick = tuple(code if code in legal else 0 for code in range(NUM_JOYSTICK_ACTIONS))
        self._actions = joystick if scenario.full_action_space else minimal_actions(self._game)


class AtariFamily:
    """`atari/<game>`: see the module."""

    draws: ClassVar[bool] = True
    about: ClassVar[str] = f"Atari 2600 games on ale-py, 84x84 grey x4, frameskip 4; heterogeneous: {SPREAD}"

    @property
    def variants(self) -> tuple[str, ...]:
        """The single-player games that ale-py ships, the default first; () without ale-py."""
        return _shipped_games() if self.unavailable() is None else ()

    def unavailable(self) -> str | None:
        """None, or the command that installs ale-py."""
        return None if find_spec("ale_py") else "ale-py is not installed; pip install 'ale-py>=0.10.2'"

    def make(self, variant: str, workload: str) -> AtariScenario:
        """Makes the scenario of a game, which is the first of several in the heterogeneous workload."""
        if reason := self.unavailable():
            raise ValueError(f"atari: {reason}")
        game = variant or DEFAULT_GAME
        if game not in self.variants:
            raise ValueError(f"atari/{game}: unknown game; {known_variants(game, self.variants)}")
        several = workload == "heterogeneous"
        games = (game, *(other for other in HETEROGENEOUS_GAMES if other != game)) if several else (game,)
        return AtariScenario(name=f"atari/{game}", workload=workload, games=games, full_action_space=several)


@cache
def minimal_actions(game: str) -> tuple[int, ...]:
    """The codes of the actions that do something in a game."""
    ale = _new_ale()
    ale.loadROM(_rom(game))
    return tuple(action.value for action in ale.getMinimalActionSet())


@cache
def _shipped_games() -> tuple[str, ...]:
    """Games that are shipped and that ALE can play: four of them are for two players only."""
    import ale_py
    from ale_py.roms import get_all_rom_ids

    playable = sorted(game for game in get_all_rom_ids() if ale_py.ALEInterface.isSupportedROM(_rom(game)))
    return (DEFAULT_GAME, *(game for game in playable if game != DEFAULT_GAME))


def _rom(game: str) -> Path:
    import ale_py.roms

    return Path(ale_py.roms.__file__).with_name(f"{game}.bin")


def _new_ale() -> Any:
    import ale_py

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    return ale_py.ALEInterface()


def _has_vectors() -> bool:
    """Whether ale-py is installed with vector environments as they are meant here."""
    try:
        return tuple(int(part) for part in version("ale-py").split(".")[:2]) >= LEAST_WITH_VECTORS
    except (PackageNotFoundError, ValueError):
        return False


FAMILY = AtariFamily()
