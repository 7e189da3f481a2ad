"""Atari games on ale-py's own vector environment: a batch of one game, stepped by its threads in one call.

It differs from `AtariEnv` of `scenarios/atari.py`, of the same settings, in this:

- Pixels are resized by OpenCV's INTER_AREA, which rounds otherwise: over 500 random env steps of six games, they were
  off by 0 (Pong) to 0.0024 (Enduro) of 255 on average, and by 1 at most. Scores, ends and frames were the same.
- An episode begins with 0 to `noop_max` no-op frames, not 1 to `noop_max`, which do not count for
  `max_episode_frames`; ale-py draws them, and repeated actions, by generators of its own, so that the same seed begins
  another episode.
- The stack of images begins with zeros, not with the first image repeated.
- When the game, or the time, ends before the last frame of an env step, the last image is that of the step before. With
  `terminal_on_life_loss` the next episode begins with the last stack of the one that has ended, without a no-op.

Letters: B environments, S images of a stack, H height, W width.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Spaces = tuple[gymnasium.spaces.Dict, gymnasium.spaces.Discrete]
    """Of observations and of actions."""
    Pixels = dict[str, NDArray[np.uint8]]
    """`pixels`: uint8 [B, S, H, W]."""


class AtariVectorEnv(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """B environments of one game, with the spaces, rewards, ends and infos of `AtariEnv`."""

    def __init__(
        self,
        game: str,
        num_envs: int,
        spaces: Spaces,
        *,
        clips: bool,
        frameskip: int,
        mode: AutoresetMode,
        **others: Any,
    ) -> None:
        """With the spaces of one environment; `clips` gives the signs of scores as rewards.

        `others` are settings of ale-py's vector environment, by its names. With its `life_loss_info` the mode must be
        SAME_STEP: the game goes on, and no step only resets.
        """
        from ale_py.vector_env import AtariVectorEnv as Vector

        assert mode == AutoresetMode.SAME_STEP or not others["life_loss_info"]
        self._envs = Vector(
            game,
            num_envs,
            num_threads=min(num_envs, len(os.sched_getaffinity(0))),
            frameskip=frameskip,
            autoreset_mode=mode,
            reward_clipping=False,
            use_fire_reset=False,
            **others,
        )
        self.num_envs, self._clips, self._most_frames = num_envs, clips, frameskip
        self.metadata = {"autoreset_mode": mode}
        self.single_observation_space, self.single_action_space = spaces
        self.observation_space, self.action_space = (batch_space(space, num_envs) for space in spaces)
        codes = [action.value for action in self._envs.ale.get_action_set()]
        # Paddle games have fewer than the joystick's 18 actions; the others are no-ops there.
        asked = codes if spaces[1].n == len(codes) else range(int(spaces[1].n))
        self._actions = np.array([codes.index(code) if code in codes else 0 for code in asked])
        self._frames = self._episode_frames = np.zeros(num_envs, np.int32)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Pixels, dict[str, Any]]:
        """Begins episodes: of all, or of those in `options["reset_mask"]`; `seed` is an int, or an array [B]."""
        pixels, info = self._envs.reset(seed=seed, options=options)
        self._frames, self._episode_frames = info["frame_number"], info["episode_frame_number"]
        return {"pixels": pixels}, {}

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[Pixels, NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Applies an action of each environment, [B]; infos hold `num_frames`, `raw_reward` and `final_obs`."""
        pixels, scores, terminated, truncated, said = self._envs.step(self._actions[actions])
        num_frames, was_reset = self._advanced(said)
        raw = scores.astype(np.float32)
        info: dict[str, Any] = {"num_frames": num_frames, "raw_reward": raw}
        ended = terminated | truncated
        if self.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP and ended.any():
            final, goes_on = said.get("final_obs", pixels), ended & ~was_reset
            if goes_on.any() and "final_obs" in said:
                final = np.where(goes_on[:, None, None, None], pixels, final)
            info["final_obs"], info["_final_obs"] = {"pixels": final}, ended
        rewards = np.sign(raw) if self._clips else raw
        return {"pixels": pixels}, rewards, terminated, truncated, info

    def _advanced(self, said: dict[str, Any]) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """Frames of the env step, [B], and whether a new game has begun in it, whose no-op frames are not among them.

        The frames of a game begin again with it; those of an environment are of all games.
        """
        frames, of_episode = said["frame_number"], said["episode_frame_number"]
        num_frames = frames - self._frames
        was_reset = num_frames != of_episode - self._episode_frames
        if was_reset.any():
            num_frames = np.where(was_reset, num_frames - of_episode, num_frames).clip(0, self._most_frames)
        self._frames, self._episode_frames = frames, of_episode
        return num_frames, was_reset

    def close_extras(self, **kwargs: Any) -> None:
        """Closes ale-py's environments."""
        self._envs.close(**kwargs)
