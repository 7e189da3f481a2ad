"""The simulation times of emulated environments, drawn from a profile with seeded generators.

The same draws drive the real processes (`env.py`), one environment each, and predictions, which draw for many at once:
an environment's times depend on its seed alone. Environments of a batch end their episodes as they would alone.
Letters: E environments, B steps of a block; K batches of C environments each.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rlbench.scenarios.emulated.profile import Profile

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

    def draw_ends(self, envs: Sequence[int]) -> NDArray[np.bool_]:
        """What `draw` says of ends, [E, B], from the same numbers; the times of these steps are passed over."""
        ends = np.empty((len(envs), BLOCK_STEPS), np.bool_)
        passed = np.empty(BLOCK_STEPS)
        for row, env in enumerate(envs):
            generator = self._generators[env]
            generator.random(out=passed)
            generator.standard_normal(out=passed)
            ends[row] = generator.random(out=passed) < self._end
            generator.standard_normal(np.count_nonzero(ends[row]))
        return ends

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


class BlocksOfCalls:
    """Draws, block after block, how long calls take that step C environments each, and whose episodes end with them.

    A call takes the profile's mean for so many, times the mean of its environments' scene factors, times a lognormal
    factor of mean 1. Its resets are part of it.
    """

    def __init__(self, profile: Profile, workload: str, seeds: Sequence[int], size: int) -> None:
        """Of the environments with these seeds, C = `size` after the other in a batch."""
        self._envs = BlocksOfTimes(profile, workload, seeds)
        self._size = size
        self._generators = [np.random.default_rng([seed, 0x74]) for seed in seeds[::size]]
        self._sigma = profile.batch.sigma
        self._call_s = profile.batch.call_ms(size) / 1e3 * math.exp(-(self._sigma**2) / 2)
        self.scene_factors: NDArray[np.float64] = self._envs.scene_factors.reshape(-1, size).mean(1)
        """How much slower than one of median scenes each batch is, for good, [K]."""

    def draw(self, batches: Sequence[int]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """The next block of some batches: seconds of each call, and whether an environment's episode ends with it.

        Args:
            batches: numbers of batches, [K], each at most once.

        Returns:
            Seconds [K, B] and ends [K, B, C].
        """
        envs = [self._size * batch + place for batch in batches for place in range(self._size)]
        ends = self._envs.draw_ends(envs).reshape(len(batches), self._size, BLOCK_STEPS)
        spread = np.empty((len(batches), BLOCK_STEPS))
        for row, batch in enumerate(batches):
            self._generators[batch].standard_normal(out=spread[row])
        factors = np.exp(self._sigma * spread) * self.scene_factors[np.asarray(batches)][:, None]
        return self._call_s * factors, ends.swapaxes(1, 2)


class CallTimes:
    """The draws of one batch, call after call."""

    def __init__(self, profile: Profile, workload: str, seeds: Sequence[int]) -> None:
        self._profile, self._workload = profile, workload
        self._blocks = BlocksOfCalls(profile, workload, seeds, len(seeds))
        self._next = BLOCK_STEPS

    def restart(self, seeds: Sequence[int]) -> None:
        """Draws from the beginning of these seeds' streams; how slow the scenes are stays."""
        scene_factors = self._blocks.scene_factors
        self._blocks = BlocksOfCalls(self._profile, self._workload, seeds, len(seeds))
        self._blocks.scene_factors = scene_factors
        self._next = BLOCK_STEPS

    def next_call(self) -> tuple[float, NDArray[np.bool_]]:
        """Seconds that the next call simulates, and whose episodes end with it, [C]."""
        if self._next == BLOCK_STEPS:
            seconds, ends = self._blocks.draw([0])
            self._seconds, self._ends = seconds[0].tolist(), ends[0]
            self._next = 0
        now, self._next = self._next, self._next + 1
        return self._seconds[now], self._ends[now]
