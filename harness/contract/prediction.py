"""What a system's model gives: the counters and the series that the ranks of a run would have left.

A system that can be predicted has, beside `contract.System`, the methods of `Predictable`; a scenario that it can be
predicted on has those of `Timed`. Letters: R ranks, N environments of a rank, E environments, B steps of a block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from harness.contract.budget import Limits
    from harness.contract.scenario import Scenario


class Times(Protocol):
    """Simulation times of environments, drawn with a generator for each."""

    def draw(self, envs: Sequence[int]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """The next block of some environments: seconds of each step, and whether it ends its episode, [E, B] both."""


@runtime_checkable
class Timed(Protocol):
    """What a scenario has, beside `contract.Scenario`, whose times are known: it states them in a profile."""

    @property
    def reset_s(self) -> float:
        """Seconds of a reset."""

    def times(self, seeds: Sequence[int]) -> Times:
        """The simulation times of environments with these seeds, [E]: the ones that they really take."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """The model of one run; times are seconds of the profile since the first iteration began."""

    rows: Sequence[Mapping[str, Any]]
    """A row for each iteration of each rank, as the series of a run has them."""
    of_ranks: Mapping[str, npt.NDArray[np.int64]]
    """`learned`, `reused`, `discarded`, `in_flight`, `lag_sum`, `lag_max`, [R] each."""
    of_envs: Mapping[str, npt.NDArray[np.float64]]
    """`env_steps`, `episodes`, and seconds `step_s`, `reset`, `simulate`, `wait:inference`, [R, N] each."""


@runtime_checkable
class Predictable(Protocol):
    """What a system has, beside `contract.System`, that has a model."""

    def why_not_predicted(self, scenario: Scenario, limits: Limits) -> str | None:
        """None, or what of such a run the model does not cover, with what it does."""

    def predict(self, scenario: Scenario, num_ranks: int, seed: int, limits: Limits) -> Prediction:
        """What a run on so many emulated GPUs would do. Raises ValueError for what the model does not cover."""
