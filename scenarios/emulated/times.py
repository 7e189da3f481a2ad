"""The simulation times of one emulated environment, drawn from a profile with a seeded generator.

The same draws drive the real processes (`env.py`) and models on paper: both make a `StepTimes` with the same seed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from scenarios.emulated.profile import Profile


class StepTimes:
    """Draws, step after step, how long one environment simulates and when its episode ends."""

    def __init__(self, profile: Profile, workload: str, seed: int) -> None:
        self._rng = np.random.default_rng([seed, 0x71])
        step, collision, episode = profile.step, profile.collision, profile.episode
        self._median_s = (step.median_ms / 1e3, collision.median_ms / 1e3)
        self._sigma = step.sigma
        self._episode_sigma = episode.sigma
        self._end = 1 / episode.mean_steps
        self._leave = 1 / collision.mean_stay_steps
        self._enter = collision.share / (1 - collision.share) * self._leave
        spread = profile.heterogeneous.sigma if workload == "heterogeneous" else 0.0
        self.scene_factor = math.exp(spread * self._rng.standard_normal())
        """How much slower than the median scene this environment is, for good."""
        self._collides = self._rng.random() < collision.share
        self.begin_episode()

    def begin_episode(self) -> None:
        """Draws the factor of a new episode."""
        self._factor = self.scene_factor * math.exp(self._episode_sigma * self._rng.standard_normal())

    def next_step(self) -> tuple[float, bool]:
        """Seconds that the next step simulates, and whether it ends the episode."""
        rng = self._rng
        chance = rng.random()
        self._collides = chance >= self._leave if self._collides else chance < self._enter
        took = self._median_s[self._collides] * self._factor * math.exp(self._sigma * rng.standard_normal())
        return took, rng.random() < self._end
