"""The workload on which peers are timed: ViZDoom's `basic`, as Sample Factory's paper sets it (appendix A.1.2).

The engine draws 160x120 RGB, shrunk by area to 128x72. An env step is 4 frames with one of four actions (nothing, left,
right, attack). An episode lasts 300 frames at most; the reward is the map's times 0.01. `vizdoom/basic` is the same
work, written again here because a peer's virtual environment holds neither our package nor its requirements.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import gymnasium
import numpy as np
import vizdoom
from numpy.typing import NDArray

from benchmarks.peers.counter import StepCounter

FRAMESKIP = 4
HEIGHT, WIDTH = 72, 128
REWARD_SCALE = 0.01
BUTTONS_OF_ACTION = ([False, False, False], [True, False, False], [False, True, False], [False, False, True])
"""Left, right, attack: the map's own buttons."""
COUNTER = StepCounter()


class DoomBasic(gymnasium.Env[NDArray[np.uint8], int]):
    """Observes uint8 [3, 72, 128]; actions are 0 to 3. The engine starts with the first reset."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  gymnasium declares it so

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.observation_space = gymnasium.spaces.Box(0, 255, (3, HEIGHT, WIDTH), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(len(BUTTONS_OF_ACTION))  # type: ignore[assignment]  # numpy's int
        self._game: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Begins an episode; the first seed is the engine's."""
        super().reset(seed=seed, options=options)
        if self._game is None:
            self._game = _start_engine(seed or 0)
        self._game.new_episode()
        return self._observe(), {}

    def step(self, action: int) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """One env step; the map's time limit counts as a termination, and ends with a black screen."""
        points = self._game.make_action(BUTTONS_OF_ACTION[int(action)], FRAMESKIP)
        COUNTER.add()
        ended = bool(self._game.is_episode_finished())
        return self._observe(), points * REWARD_SCALE, ended, False, {"num_frames": FRAMESKIP}

    def _observe(self) -> NDArray[np.uint8]:
        state = self._game.get_state()
        if state is None:
            return np.zeros((3, HEIGHT, WIDTH), np.uint8)
        small = cv2.resize(state.screen_buffer, (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA)
        return np.ascontiguousarray(np.moveaxis(small, 2, 0), dtype=np.uint8)

    def close(self) -> None:
        """Ends the engine."""
        if self._game is not None:
            self._game.close()
            self._game = None


def _start_engine(seed: int) -> Any:
    cv2.setNumThreads(1)  # as many processes step as there are cores
    game = vizdoom.DoomGame()
    game.load_config(str(Path(vizdoom.scenarios_path) / "basic.cfg"))
    game.set_screen_resolution(vizdoom.ScreenResolution.RES_160X120)
    game.set_screen_format(vizdoom.ScreenFormat.RGB24)
    game.set_mode(vizdoom.Mode.PLAYER)
    game.set_window_visible(False)
    game.set_seed(seed)
    game.init()
    return game
