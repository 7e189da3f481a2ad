"""Filling a preempted rollout with steps of the previous ones (VER section 2.3).

A rank's experience is a buffer of T * N steps in which a new step overwrites the oldest. So a full rollout overwrites
all of it, and a preempted one leaves the newest of the older steps, which are learned from once more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rlbench.systems.engine.rollouts.rollout import Experience, runs_of

if TYPE_CHECKING:
    import numpy.typing as npt

    Steps = npt.NDArray[np.int64]


def overwrite(buffer: Steps, fresh: Steps, capacity: int) -> tuple[Steps, Steps]:
    """What `fresh` steps [S, 2] leave of a buffer of `capacity` steps, oldest first, and what they overwrite."""
    num_left = max(0, min(len(buffer), capacity - len(fresh)))
    cut = len(buffer) - num_left
    return buffer[cut:], buffer[:cut]


class StaleFill:
    """The buffer of one rank; keeps the slots of its steps from being used again."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._buffer: Steps = np.empty((0, 2), np.int64)

    def fill(self, fresh: Steps, *, is_whole: bool = False) -> tuple[Experience, list[int]]:
        """Returns the experience that a rollout gives, stale runs first, and the slots that are free now.

        `is_whole`: nobody has cut the rollout, so nothing is filled, though resets may have taken places in it.
        """
        stale, overwritten = overwrite(self._buffer, fresh, len(fresh) if is_whole else self._capacity)
        self._buffer = np.concatenate((stale, fresh))
        stale_runs, stale_envs = runs_of(stale)
        fresh_runs, fresh_envs = runs_of(fresh)
        experience = Experience(
            runs=[*stale_runs, *fresh_runs], envs=[*stale_envs, *fresh_envs], num_stale_runs=len(stale_runs)
        )
        return experience, overwritten[:, 1].tolist()
