"""A batch of emulated environments: those of `env.py`, stepped together by calls that take the time of a profile.

Each environment shows the cues and has the episodes that it would have alone with its seed. A call simulates for the
time that the profile's table `batch` gives, then renders all of them, in one piece of work; a reset is part of the call
in which an episode ends (`AutoresetMode.SAME_STEP`). No Python is run for each environment but when a block of random
numbers is used up. Letters: C environments.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from gymnasium.spaces import Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from rlbench.harness.devices.emulated_gpu import sleep_until
from rlbench.scenarios.emulated.env import CUES_STREAM, NUM_CUES, OBSERVATION_SPACE, SUCCESS_SHARE, gpu_of_cores

if TYPE_CHECKING:
    import numpy.typing as npt

    from rlbench.harness.contract.device import Seat
    from rlbench.scenarios.emulated.profile import Profile
    from rlbench.scenarios.emulated.times import CallTimes

    Ints = npt.NDArray[np.int64]

BLOCK_CUES = 256


class Cues:
    """The cues that C environments show, each from its own stream."""

    def __init__(self, seeds: Sequence[int]) -> None:
        self._generators = [np.random.default_rng([seed, CUES_STREAM]) for seed in seeds]
        self._cues = np.empty((len(seeds), BLOCK_CUES), np.int64)
        self._at = np.full(len(seeds), BLOCK_CUES)

    def take(self, envs: Ints) -> Ints:
        """The next cue of each of `envs`, [K]."""
        at = self._at[envs]
        for env in envs[at == BLOCK_CUES].tolist():
            self._cues[env] = self._generators[env].integers(NUM_CUES, size=BLOCK_CUES)
        at %= BLOCK_CUES
        self._at[envs] = at + 1
        taken: Ints = self._cues[envs, at]
        return taken


class RecallBatch(VectorEnv[dict[str, Any], Any, Any]):
    """C environments that are stepped by one call, on the device of the first one's seat."""

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.SAME_STEP}  # type: ignore[misc]  # as gymnasium

    def __init__(self, profile: Profile, times: CallTimes, seats: Sequence[Seat], time_scale: float) -> None:
        self.num_envs = len(seats)
        self.single_observation_space, self.single_action_space = OBSERVATION_SPACE, Discrete(NUM_CUES)
        self.observation_space = batch_space(OBSERVATION_SPACE, len(seats))
        self.action_space = batch_space(self.single_action_space, len(seats))
        first = seats[0]
        self._num_calls = first.num_envs // len(seats)
        self._times, self._device, self._scale = times, first.device, time_scale
        self._gpu_of_cores = gpu_of_cores(first, self._num_calls)
        self._raw_reward = 1 / profile.episode.mean_steps
        self._cues = Cues([seat.seed for seat in seats])
        self._shown = np.eye(NUM_CUES, dtype=np.float32)
        self._all = np.arange(len(seats))
        self._cue = self._previous = np.zeros(len(seats), np.int64)
        self._num_steps, self._num_right = (np.zeros(len(seats), np.int64) for _ in range(2))

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,  # noqa: ARG002  there are none
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begins an episode of each environment, in no time; seeds, one for each, restart times and cues."""
        if seed is not None:
            seeds = (
                [seed + place for place in range(self.num_envs)]
                if isinstance(seed, int)
                else [one or 0 for one in seed]
            )
            self._times.restart(seeds)
            self._cues = Cues(seeds)
        self._num_steps[:] = self._num_right[:] = 0
        self._cue = self._cues.take(self._all)
        return {"cue": self._shown[self._cue]}, {}

    def step(self, actions: Any) -> tuple[dict[str, Any], Any, Any, Any, dict[str, Any]]:
        """One env step of each: simulates, renders, says whose action was the cue of the step before."""
        begin = time.perf_counter()
        simulation_s, ends = self._times.next_call()
        right = (self._num_steps == 0) | (np.asarray(actions) == self._previous)
        self._num_steps += 1
        self._num_right += right
        self._previous, self._cue = self._cue, self._cues.take(self._all)
        info: dict[str, Any] = {"raw_reward": self._raw_reward * right}
        if ends.any():
            info |= self._ended(ends)
        simulation_s *= self._scale
        gpu = self._gpu_of_cores
        done = begin + simulation_s if gpu is None else gpu.simulated_at(begin, simulation_s, self._num_calls)
        sleep_until(done)
        with self._device.busy("render", self.num_envs):
            pass
        never = np.zeros(self.num_envs, np.bool_)
        return {"cue": self._shown[self._cue]}, right.astype(np.float64), ends.copy(), never, info

    def _ended(self, ends: npt.NDArray[np.bool_]) -> dict[str, Any]:
        """Begins the next episode where one has ended, [C]; returns what is to be said of those."""
        final = {"cue": self._shown[self._cue]}
        success = (self._num_right >= SUCCESS_SHARE * self._num_steps).astype(np.float64)
        self._num_steps[ends] = self._num_right[ends] = 0
        self._cue[ends] = self._cues.take(np.flatnonzero(ends))
        return {"final_obs": final, "_final_obs": ends, "success": success, "_success": ends}
