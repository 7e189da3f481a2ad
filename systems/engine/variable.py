"""`Variable` rollouts: T x N steps in total, from whichever environments are fastest (VER section 2.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from systems.engine.rollout import Rollout, Split, Step, check_num_steps

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True, kw_only=True, slots=True)
class Variable:
    """T x N steps in total; actions in flight at the end belong to the next rollout (VER section 2.2)."""

    num_steps: int = 0
    """T; 0 takes the scenario's."""

    split: ClassVar[Split] = "steps"

    def __post_init__(self) -> None:
        """Checks the field."""
        check_num_steps(self.num_steps)

    def steps(self, scenario_steps: int) -> int:
        """T for a scenario."""
        return self.num_steps or scenario_steps

    def target(self, num_envs: int, num_steps: int) -> int:
        """T * N."""
        return num_envs * num_steps

    def open(self, num_envs: int, num_steps: int, *, ahead: int) -> VariableRollout:
        """Makes the rollout of one rank."""
        return VariableRollout(num_envs, num_steps * num_envs, ahead=ahead)


class VariableRollout(Rollout):
    """No environment is held to any number of steps; steps count in the order in which they end."""

    def __init__(self, num_envs: int, target: int, *, ahead: int = 0) -> None:
        # Beside the rollouts: where each stands, its step in flight, and one that ended after the rollout was full.
        super().__init__(num_envs, target * (1 + ahead) + 3 * num_envs)
        self.target = target
        self._arrived: list[Step] = []

    def _count(self, envs: list[int], slots: list[int]) -> None:
        self._arrived.extend(zip(envs, slots, strict=True))

    def may_act(self) -> npt.NDArray[np.bool_]:
        """All, until the rollout is full."""
        return np.full(self.num_envs, not self.is_full)

    @property
    def is_full(self) -> bool:
        """True when T * N steps have ended."""
        return len(self._arrived) >= self.target

    @property
    def num_samples(self) -> int:
        """Finished env steps; at the end there may be a few more than T * N, which the next rollout gets."""
        return len(self._arrived)

    @property
    def num_steps(self) -> int:
        """The mean over the environments, rounded down."""
        return len(self._arrived) // self.num_envs

    def take(self) -> list[Step]:
        """The first T * N steps that ended, or all if there are fewer."""
        taken, self._arrived = self._arrived[: self.target], self._arrived[self.target :]
        return taken
