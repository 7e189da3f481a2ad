"""An emulated environment: a small task that is really learned, in steps that take the time that a profile states.

The task, 'recall': each observation shows one of four cues; the right action is the cue of the step before. So a policy
without memory earns 1/4 of what one with memory earns. Reward: 1 for each right action, for the learner. The reported
return is divided by the mean episode length: a perfect episode of mean length returns 1. Success: at least 90 % of the
episode's actions were right.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from rlbench.harness.devices.emulated_gpu import EmulatedGpu, sleep_until

if TYPE_CHECKING:
    from rlbench.harness.contract.device import Seat
    from rlbench.scenarios.emulated.profile import Profile
    from rlbench.scenarios.emulated.times import StepTimes

NUM_CUES = 4
CUES_STREAM = 0x72
"""Tells the random numbers of cues from those of times."""
SUCCESS_SHARE = 0.9

OBSERVATION_SPACE = gymnasium.spaces.Dict({"cue": gymnasium.spaces.Box(0, 1, (NUM_CUES,), np.float32)})


def gpu_of_cores(seat: Seat, num_at_once: int) -> EmulatedGpu | None:
    """The emulated GPU whose cores a rank's simulations share, if there is not one for each of so many at once."""
    if isinstance(seat.device, EmulatedGpu) and seat.device.costs.shared_cores(num_at_once):
        return seat.device.of_rank(seat.place.local_rank)  # the environment may render on another GPU
    return None


class RecallEnv(gymnasium.Env[dict[str, Any], int]):
    """One environment: simulates for the time that `times` gives, then renders on its rank's device."""

    observation_space = OBSERVATION_SPACE
    action_space = gymnasium.spaces.Discrete(NUM_CUES)  # type: ignore[assignment]  # its element is a numpy integer

    def __init__(self, profile: Profile, times: StepTimes, seat: Seat, time_scale: float) -> None:
        self._times = times
        self._device = seat.device
        self._gpu_of_cores = gpu_of_cores(seat, seat.num_envs)
        self._num_envs = seat.num_envs
        self._scale = time_scale
        self._reset_s = profile.episode.reset_ms / 1e3 * time_scale
        self._raw_reward = 1 / profile.episode.mean_steps
        self._draw_cues(seat.seed)
        self._cues = np.eye(NUM_CUES, dtype=np.float32)
        self._cue = self._previous = 0
        self._num_steps = self._num_right = 0
        self._has_begun = False

    def _draw_cues(self, seed: int) -> None:
        self.np_random = np.random.default_rng([seed, CUES_STREAM])

    def _observe(self) -> dict[str, Any]:
        self._previous, self._cue = self._cue, int(self.np_random.integers(NUM_CUES))
        return {"cue": self._cues[self._cue].copy()}

    def _simulated_at(self, begin: float, seconds: float) -> float:
        gpu = self._gpu_of_cores
        return begin + seconds if gpu is None else gpu.simulated_at(begin, seconds, self._num_envs)

    def reset(
        self,
        *,
        seed: int | None = None,
        options: dict[str, Any] | None = None,  # noqa: ARG002  there are none
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begins an episode after the reset time; the first action has no cue to recall and cannot be wrong.

        A `seed` restarts times and cues; the scene, which makes all times longer or shorter, stays the seat's.
        """
        begin = time.perf_counter()
        if seed is not None:
            self._times.restart(seed)
            self._draw_cues(seed)
        takes_core = self._has_begun and self._reset_s > 0  # the first one comes before anything is timed
        until = self._simulated_at(begin, self._reset_s) if takes_core else begin + self._reset_s
        self._has_begun = True
        self._num_steps = self._num_right = 0
        observation = self._observe()
        sleep_until(until)
        return observation, {}

    def step(self, action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """One env step: simulates, renders, says whether the action was the cue of the step before."""
        begin = time.perf_counter()
        simulation_s, ends = self._times.next_step()
        right = self._num_steps == 0 or action == self._previous
        self._num_steps += 1
        self._num_right += right
        observation = self._observe()
        info: dict[str, Any] = {"raw_reward": self._raw_reward * right}
        if ends:
            info["success"] = float(self._num_right >= SUCCESS_SHARE * self._num_steps)
        simulation_s *= self._scale
        sleep_until(self._simulated_at(begin, simulation_s))
        with self._device.busy("render", 1):
            pass
        return observation, float(right), ends, False, info
