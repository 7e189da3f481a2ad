"""Doom maps on ViZDoom, observed as in Sample Factory (Petrenko et al. 2020, appendix A.1.2).

One env step is `frameskip` frames with one action: an item of the map's list (Discrete), or a choice of each of its
heads, all pressed at once (MultiDiscrete; `doom_maps`). The observation is the screen, drawn by the engine at
`render_resolutions` (160x120 by default) and resized by area to 128x72 RGB. Rewards are the map's own, times a scale
for each map. Death and success are terminations, the map's time limit a truncation: the engine's own limit is off,
because it would end the episode without a last screen to bootstrap from.

The heterogeneous workload gives environment i of the run (over all ranks) map i modulo four and resolution i modulo
three, twelve combinations. All maps then share one list of actions, the union of their own in a fixed order; an action
that a map does not have is a no-op there. A map with heads is drawn at the three resolutions alone. `SPREAD` states
how far apart the step costs of the twelve are.

The engine is a process of its own, which does not notice when its environment worker is killed. A launcher therefore
asks the kernel to kill the engine with the thread that started it (PR_SET_PDEATHSIG; that is ViZDoom's engine thread,
which lives until the engine ends). The engine ignores Ctrl-C and ends with its worker. It runs in a temporary folder
that is removed once it is up, and reads its configuration from /dev/null, so it leaves no `_vizdoom` anywhere. A killed
worker leaves three files in /dev/shm; its /proc/<pid>/maps names them (ViZDoomMQCtr.., ViZDoomMQDoom.., ViZDoomSM..).
"""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, cast

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rlbench.harness.contract.device import Seat
from rlbench.harness.contract.scenario import WORKLOADS
from rlbench.harness.contract.settings import TYPICAL_GPU_COSTS, GpuCosts, LearnSettings
from rlbench.results.reading.names import known_variants
from rlbench.scenarios.doom_maps import MAPS, Action, Choice
from rlbench.scenarios.resize import AreaResize

HETEROGENEOUS_MAPS = ("basic", "my_way_home", "defend_the_line", "health_gathering_supreme")
HETEROGENEOUS_RESOLUTIONS = ("160x120", "320x240", "512x384")
RESOLUTIONS = ("160x120", "200x150", "256x192", "320x240", "400x300", "512x384", "640x480")
"""4:3 resolutions of the engine, width x height in pixels, the default first."""
FRAMES_PER_S = 35
"""Of play."""
SHM_BYTES = 65536
"""An upper bound on what an engine writes in shared memory beside its screen: 16 KiB, and two queues of 10 KiB."""
POINTS_PER_FRAME = 2.0**20
"""Living reward that the engine is given, so that rewards tell exactly how many frames were played.

The engine's clock cannot: a map's exit sets it to 0. Maps give multiples of 2**-16 below 2**15, so the sums are exact.
"""
SPREAD = "step cost with a coefficient of variation of 0.66, max/min 10"
"""Over the twelve combinations, by `taskset -c 1 python benchmarks/hot_paths/bench_vizdoom.py` (10.3, 10.5)."""
LEARN = LearnSettings(learning_rate=5e-4, entropy_coef=0.003, max_grad_norm=4.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class VizdoomScenario:
    """One map, or several that differ in cost; satisfies `harness.contract.scenario.Scenario`."""

    name: str = "vizdoom/basic"
    workload: str = "homogeneous"
    num_envs: int = 8
    """Environments of one rank."""
    rollout_steps: int = 64
    """Env steps of each environment in one rollout."""
    policy: str = "conv"
    """Network of `systems/policies`."""
    learn: LearnSettings = LEARN
    """Entropy and gradient norm as in Sample Factory (table A.5); a larger step size, for our smaller batch."""
    gpu_costs: GpuCosts = TYPICAL_GPU_COSTS
    """Times of an emulated GPU; the maps are drawn on the CPU."""
    preload: tuple[str, ...] = ("vizdoom",)
    """Modules an environment worker needs."""
    shm_names: ClassVar[tuple[str, ...]] = ("ViZDoom*",)
    """Patterns of the names that engines make in /dev/shm."""
    maps: tuple[str, ...] = ("basic",)
    """Environment i of the run plays map i modulo their number."""
    render_resolutions: tuple[str, ...] = RESOLUTIONS[:1]
    """Environment i of the run is drawn at resolution i modulo their number."""
    frameskip: int = 4
    """Frames per env step, at 35 frames per second of play."""
    width: int = 128
    """Width of the observation, pixels."""
    height: int = 72
    """Height of the observation, pixels."""

    def __post_init__(self) -> None:
        """Checks every field once."""
        several = len(self.maps) > 1 or len(self.render_resolutions) > 1
        rules = (
            ("workload", self.workload in WORKLOADS, f"one of: {', '.join(WORKLOADS)}"),
            ("num_envs", self.num_envs >= 1, "at least 1"),
            ("rollout_steps", self.rollout_steps >= 1, "at least 1"),
            ("maps", self.maps and set(self.maps) <= set(MAPS), f"among: {', '.join(MAPS)}"),
            (
                "maps",
                len({MAPS[name].heads for name in self.maps if name in MAPS}) <= 1,
                "of one kind: all without heads of actions, or all with the same",
            ),
            (
                "render_resolutions",
                self.render_resolutions and set(self.render_resolutions) <= set(RESOLUTIONS),
                f"among: {', '.join(RESOLUTIONS)}",
            ),
            (
                "workload",
                several == (self.workload == "heterogeneous"),
                "heterogeneous exactly when there are several",
            ),
            ("frameskip", self.frameskip >= 1, "at least 1"),
            ("width", 36 <= self.width <= 160, "from 36 to 160 pixels"),
            ("height", 36 <= self.height <= 120, "from 36 to 120 pixels"),
        )
        for name, holds, rule in rules:
            if not holds:
                raise ValueError(f"{self.name}:{name}={getattr(self, name)}: must be {rule}")

    @property
    def observation_space(self) -> gymnasium.spaces.Dict:
        """`pixels`: uint8 [3, height, width], red, green, blue."""
        return gymnasium.spaces.Dict({"pixels": gymnasium.spaces.Box(0, 255, (3, self.height, self.width), np.uint8)})

    @property
    def actions(self) -> tuple[Action, ...]:
        """Action i holds these buttons down: the union over the maps, in the order of first use."""
        return tuple(dict.fromkeys(action for name in self.maps for action in MAPS[name].actions))

    @property
    def heads(self) -> tuple[tuple[Choice, ...], ...]:
        """What is pressed at once, a choice of each; () where the maps have `actions`."""
        return MAPS[self.maps[0]].heads

    @property
    def action_space(self) -> gymnasium.spaces.Discrete | gymnasium.spaces.MultiDiscrete:
        """One of `actions`, or a choice of each of `heads`."""
        if self.heads:
            return gymnasium.spaces.MultiDiscrete([len(head) for head in self.heads])
        return gymnasium.spaces.Discrete(len(self.actions))

    @property
    def shm_bytes(self) -> int:
        """Bytes that the engines of one rank write in /dev/shm: each a screen and `SHM_BYTES`."""
        sizes = [[int(side) for side in resolution.split("x")] for resolution in self.render_resolutions]
        return self.num_envs * (SHM_BYTES + 3 * max(width * height for width, height in sizes))

    def kind(self, global_index: int) -> tuple[str, str]:
        """The map and the resolution of one environment of the run."""
        resolutions = self.render_resolutions
        return self.maps[global_index % len(self.maps)], resolutions[global_index % len(resolutions)]

    def part(self, global_index: int, seed: int) -> str:  # noqa: ARG002  the same for every seed
        """`kind`, as text."""
        return " ".join(self.kind(global_index))

    def make_env(self, seat: Seat) -> VizdoomEnv:
        """Starts an engine for a seat, as a child of the process that will step it."""
        return VizdoomEnv(self, *self.kind(seat.global_index), seat.seed)


class VizdoomEnv(gymnasium.Env[dict[str, Any], Any]):
    """One map on an engine of its own; `close` ends the engine."""

    def __init__(self, scenario: VizdoomScenario, name: str, resolution: str, seed: int) -> None:
        import vizdoom

        self.observation_space = scenario.observation_space
        self.action_space = cast("gymnasium.Space[Any]", scenario.action_space)
        self._seed: int | None = seed  # until the first reset
        self._frameskip = scenario.frameskip
        self._episode_frames = 0
        self._reward_scale = MAPS[name].reward_scale
        buttons, own = MAPS[name].buttons, set(MAPS[name].actions)
        self._actions = [[b in action and action in own for b in buttons] for action in scenario.actions]
        self._heads = [
            [[(buttons.index(button), amount) for button, amount in choice] for choice in head]
            for head in scenario.heads
        ]
        self._num_buttons = len(buttons)
        width, height = (int(part) for part in resolution.split("x"))
        self._resize = AreaResize((height, width), (scenario.height, scenario.width))
        self._pixels: NDArray[np.uint8] = np.zeros((3, scenario.height, scenario.width), np.uint8)
        self._screen: NDArray[np.uint8] = np.zeros((3, height, width), np.uint8)
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": FRAMES_PER_S / scenario.frameskip}

        game = self._game = vizdoom.DoomGame()
        game.load_config(str(Path(vizdoom.scenarios_path) / f"{name}.cfg"))
        self._timeout_frames = game.get_episode_timeout()  # 0: none
        game.set_episode_timeout(0)
        self._living_reward = game.get_living_reward()
        game.set_living_reward(POINTS_PER_FRAME)
        game.set_available_buttons([vizdoom.Button.__members__[button] for button in buttons])
        game.set_available_game_variables([])
        game.set_screen_resolution(vizdoom.ScreenResolution.__members__[f"RES_{resolution.upper()}"])
        game.set_screen_format(vizdoom.ScreenFormat.CRCGCB)  # RGB24, plane by plane
        game.set_window_visible(False)
        game.set_mode(vizdoom.Mode.PLAYER)
        game.set_doom_config_path(os.devnull)
        _start_engine(game, Path(vizdoom.__file__).with_name("vizdoom"))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begins an episode; a `seed` restarts the engine's random stream."""
        seed, self._seed = self._seed if seed is None else seed, None
        super().reset(seed=seed, options=options)
        if seed is not None:
            self._game.set_seed(_engine_seed(seed))
        self._game.new_episode()
        self._episode_frames = 0
        self._look()
        return {"pixels": self._pixels.copy()}, {}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Plays `frameskip` frames, fewer when the episode ends; `info` holds `num_frames`."""
        game, frames = self._game, self._frameskip
        if self._timeout_frames:
            frames = min(frames, self._timeout_frames - self._episode_frames)
        points = float(game.make_action(self._held(action), frames))
        num_frames = round(points / POINTS_PER_FRAME)
        score = points + num_frames * (self._living_reward - POINTS_PER_FRAME)
        terminated = game.is_episode_finished()
        self._episode_frames += num_frames
        truncated = not terminated and 0 < self._timeout_frames <= self._episode_frames
        if not terminated:  # the engine draws nothing after the end; the last screen stands in
            self._look()
        info: dict[str, Any] = {"num_frames": num_frames}
        return {"pixels": self._pixels.copy()}, score * self._reward_scale, terminated, truncated, info

    def _held(self, action: Any) -> list[bool] | list[float]:
        """How far each button is pressed by an item of the list, or by a choice of each head, [number of heads]."""
        if not self._heads:
            return self._actions[action]
        held = [0.0] * self._num_buttons
        for head, choice in zip(self._heads, action, strict=True):
            for button, amount in head[choice]:
                held[button] = amount
        return held

    def close(self) -> None:
        """Ends the engine and frees its shared memory; may be called again."""
        self._game.close()

    def render(self) -> NDArray[np.uint8]:
        """The last screen of the episode as the engine has drawn it, [H, W, 3]."""
        return self._screen.transpose(1, 2, 0)

    def _look(self) -> None:
        self._screen = self._game.get_state().screen_buffer
        self._pixels = self._resize(self._screen)


class VizdoomFamily:
    """`vizdoom/<map>`: see the module."""

    draws: ClassVar[bool] = True
    about: ClassVar[str] = f"Doom maps on ViZDoom, 128x72 RGB, frameskip 4; heterogeneous: {SPREAD}"
    variants: ClassVar[tuple[str, ...]] = tuple(MAPS)

    def unavailable(self) -> str | None:
        """None, or the command that installs ViZDoom."""
        return None if find_spec("vizdoom") else "ViZDoom is not installed; pip install 'vizdoom>=1.2.4'"

    def make(self, variant: str, workload: str) -> VizdoomScenario:
        """Makes the scenario of a map, in the heterogeneous workload the first of several unless it has heads."""
        name = variant or next(iter(MAPS))
        if name not in MAPS:
            raise ValueError(f"vizdoom/{name}: unknown map; {known_variants(name, MAPS)}")
        chosen, several = MAPS[name], workload == "heterogeneous"
        others = tuple(other for other in HETEROGENEOUS_MAPS if other != name) if several and not chosen.heads else ()
        return VizdoomScenario(
            name=f"vizdoom/{name}",
            workload=workload,
            maps=(name, *others),
            render_resolutions=HETEROGENEOUS_RESOLUTIONS if several else RESOLUTIONS[:1],
            frameskip=chosen.frameskip,
            learn=replace(LEARN, discount=chosen.discount),
        )


LAUNCHER = """
import ctypes, os, signal, sys
folder, parent, *engine = sys.argv[1:]
signal.signal(signal.SIGINT, signal.SIG_IGN)
PR_SET_PDEATHSIG = 1
if ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) or os.getppid() != int(parent):
    sys.exit("the process that starts ViZDoom is gone")
os.chdir(folder)
os.execv(engine[0], engine)
"""


def _start_engine(game: Any, engine: Path) -> None:
    """Starts the engine so that it dies with this process and leaves no files; see the module."""
    with TemporaryDirectory(prefix="rlbench-vizdoom-") as folder:
        launcher = Path(folder, "launch")
        command = shlex.join([sys.executable, "-ISc", LAUNCHER, folder, str(os.getpid()), str(engine)])
        launcher.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
        launcher.chmod(0o700)
        if not os.access(launcher, os.X_OK):
            raise ValueError(f"vizdoom: programs cannot be run from {folder}; set TMPDIR to a folder where they can")
        game.set_vizdoom_path(str(launcher))
        game.init()


def _engine_seed(seed: int) -> int:
    """Maps any integer of at least 0 to the engine's 31 bits."""
    return int(np.random.SeedSequence(seed).generate_state(1)[0] >> 1)


FAMILY = VizdoomFamily()
