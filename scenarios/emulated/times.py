"""The simulation times of emulated environments, drawn from a profile with seeded generators.

The same draws drive the real processes (`env.py`), one environment each, and predictions, which draw for many at once:
an environment's times depend on its seed alone. Letters: E environments, B steps of a block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from scenarios.emulated.profile import Profile

BLOCK_STEPS = 256
"""Steps that are drawn together: drawing one alone costs a hundred times as much per step."""


class BlocksOfTimes:
    """Draws, block after block, how long environments simulate and when their episodes end."""

    def __init__(self, profile: Profile, workload: str, seeds: Sequence[int]) -> None:
        self._generators = [np.random.default_rng([seed, 0x71]) for seed in seeds]
        step, collision, episode = profile.step, profile.collision, profile.episode
        self._medians_s = np.array([step.median_ms, collision.median_ms]) / 1e3
        self._sigma, self._episode_sigma = step.sigma, episode.sigma
        self._end = 1 / episode.mean_steps
        self._leave = 1 / collision.mean_stay_steps
        self._enter = collision.share / (1 - collision.share) * self._leave
        spread = profile.heterogeneous.sigma if workload == "heterogeneous" else 0.0
        begun = np.array([[draw.standard_normal(), draw.random(), draw.standard_normal()] for draw in self._generators])
        self.scene_factors: NDArray[np.float64] = np.exp(spread * begun[:, 0])
        """How much slower than the median scene each environment is, for good, [E]."""
        self._collides = begun[:, 1] < collision.share
        self._episode_factors = np.exp(self._episode_sigma * begun[:, 2])

    def draw(self, envs: Sequence[int]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """The next block of some environments: seconds that each step simulates, and whether it ends its episode.

        Args:
            envs: indices of environments in `seeds`, [E], each at most once.

        Returns:
            Seconds and ends, [E, B] each.
        """
        size = len(envs), BLOCK_STEPS
        mode, spread, end = np.empty(size), np.empty(size), np.empty(size)
        for row, env in enumerate(envs):
            generator = self._generators[env]
            generator.random(out=mode[row])
            generator.standard_normal(out=spread[row])
            generator.random(out=end[row])
        ends = end < self._end
        places = np.asarray(envs)
        collides = self._modes(mode, self._collides[places])
        self._collides[places] = collides[:, -1]
        factors = self._factors(places, ends)
        spread *= self._sigma
        seconds = self._medians_s[collides.astype(np.intp)]
        seconds *= factors * np.exp(spread)
        return seconds, ends

    def _modes(self, chance: NDArray[np.float64], before: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether each step is slow: the mode is left where `chance` < leave, and entered where `chance` < enter.

        A step's chance sets the mode, clears it, flips it or keeps it. So the mode is what the last step that set or
        cleared it made it, flipped as often as steps have flipped it since.
        """
        low, high = min(self._enter, self._leave), max(self._enter, self._leave)
        turns = np.cumsum(chance < low, axis=1)
        fixed = (chance >= low) & (chance < high)  # set if entering is likelier than leaving, else cleared
        last = np.maximum.accumulate(np.where(fixed, np.arange(1, chance.shape[1] + 1), 0), axis=1)
        turned_before = np.where(last > 0, np.take_along_axis(turns, np.maximum(last - 1, 0), 1), 0)
        began_as = np.where(last > 0, self._enter > self._leave, before[:, None])
        modes: NDArray[np.bool_] = began_as ^ ((turns - turned_before) % 2 == 1)
        return modes

    def _factors(self, places: NDArray[np.intp], ends: NDArray[np.bool_]) -> NDArray[np.float64]:
        """The factor of each step, from its scene and its episode, [E, B]; draws one for each episode that begins."""
        num_ends = ends.sum(1)
        episodes = np.empty((len(places), 1 + int(num_ends.max())))
        episodes[:, 0] = self._episode_factors[places]
        for row in np.flatnonzero(num_ends).tolist():
            draws = self._generators[int(places[row])].standard_normal(int(num_ends[row]))
            episodes[row, 1 : 1 + len(draws)] = np.exp(self._episode_sigma * draws)
        self._episode_factors[places] = np.take_along_axis(episodes, num_ends[:, None], 1)[:, 0]
        which: NDArray[np.intp] = np.cumsum(ends, axis=1) - ends  # the step that ends an episode still belongs to it
        return np.take_along_axis(episodes, which, 1) * self.scene_factors[places, None]


class StepTimes:
    """The draws of one environment, step after step."""

    def __init__(self, profile: Profile, workload: str, seed: int) -> None:
        self._profile, self._workload = profile, workload
        self._blocks = BlocksOfTimes(profile, workload, [seed])
        self._seconds: list[float] = []
        self._ends: list[bool] = []

    def restart(self, seed: int) -> None:
        """Draws from the beginning of a seed's stream; how slow the scene is stays."""
        scene_factors = self._blocks.scene_factors
        self._blocks = BlocksOfTimes(self._profile, self._workload, [seed])
        self._blocks.scene_factors = scene_factors
        self._seconds, self._ends = [], []

    def next_step(self) -> tuple[float, bool]:
        """Seconds that the next step simulates, and whether it ends the episode."""
        if not self._seconds:
            seconds, ends = self._blocks.draw([0])
            self._seconds, self._ends = seconds[0, ::-1].tolist(), ends[0, ::-1].tolist()
        return self._seconds.pop(), self._ends.pop()
