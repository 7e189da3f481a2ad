"""`Variable` rollouts: T x N steps in total, from whichever environments are fastest (VER section 2.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from systems.engine.rollout import Gathered, Split, Step, StepsPerEnv

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True, kw_only=True, slots=True)
class Variable(StepsPerEnv):
    """T x N steps in total; actions in flight at the end belong to the next rollout (VER section 2.2)."""

    split: ClassVar[Split] = "steps"

    def open(self, num_envs: int, num_steps: int, *, ahead: int) -> VariableRollout:
        """Makes the rollout of one rank."""
        return VariableRollout(num_envs, num_steps * num_envs, ahead=ahead)


class VariableRollout(Gathered):
    """No environment is held to any number of steps; steps count in the order in which they end."""

    def __init__(self, num_envs: int, target: int, *, ahead: int = 0) -> None:
        # Beside the rollouts: where each stands, its step in flight, and one that ended after the rollout was full.
        super().__init__(num_envs, target * (1 + ahead) + 3 * num_envs)
        self.target = target

    def may_act(self) -> npt.NDArray[np.bool_]:
        """All, until the rollout is full."""
        return np.full(self.num_envs, not self.is_full)

    @property
    def is_full(self) -> bool:
        """True when T * N steps have ended."""
        return len(self._arrived) >= self.target

    def take(self) -> list[Step]:
        """The first T * N steps that ended, or all if there are fewer."""
        taken, self._arrived = self._arrived[: self.target], self._arrived[self.target :]
        return taken
