"""What a system's model returns: the counters and the series that the ranks of a real run would have left.

A system that can be predicted has the methods of `Predictable` in addition to `contract.System`; a scenario on which it
can be predicted has those of `Timed`. Letters: R ranks, N environments of a rank, E environments, B steps of a block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from rlbench.harness.contract.budget import Limits
    from rlbench.harness.contract.scenario import Scenario
    from rlbench.harness.metering.fates import Fates


class Times(Protocol):
    """Simulation times of environments; each environment has its own random generator."""

    def draw(self, envs: Sequence[int]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """The next block of these environments: seconds of each step and whether it ends its episode, both [E, B].

        Where C environments are stepped by one call (`InBatches`), `envs` are numbers of batches; the seconds are of
        calls, and what ends is of each environment, [E, B, C].
        """


@runtime_checkable
class Timed(Protocol):
    """Methods of a scenario whose times are known because a profile states them, beside `contract.Scenario`."""

    @property
    def reset_s(self) -> float:
        """Seconds of a reset."""

    def times(self, seeds: Sequence[int]) -> Times:
        """The simulation times of environments with these seeds, [E]; the same as in a real run."""


STAGES = ("simulator", "inference", "scheduling", "learner", "communication")
"""What may bound a run, as far as more of it can be had."""
MORE = 1.1
"""So many times as much of a stage is asked for, to learn what it would help."""


@runtime_checkable
class Profiled(Protocol):
    """Members of a scenario that `Timed` ones may have, for what other times would do to be asked."""

    @property
    def profile_document(self) -> Mapping[str, Any]:
        """Its profile as TOML has it: `about`, `assumed`, and tables of numbers by key."""

    def with_numbers(self, numbers: Mapping[str, float]) -> Scenario:
        """The scenario with other numbers at some dotted keys. Raises ValueError for one that breaks a rule."""

    def quicker(self, stage: str, factor: float) -> Scenario:
        """The scenario with one of `STAGES` so many times as quick."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """The predicted data of one run; times are seconds of the profile since the first iteration began."""

    rows: Sequence[Mapping[str, Any]]
    """One row for each iteration of each rank, as in the series of a run."""
    of_ranks: Mapping[str, npt.NDArray[np.int64]]
    """`learned`, `reused`, `discarded`, `in_flight`, `lag_sum`, `lag_max`, each [R]."""
    of_envs: Mapping[str, npt.NDArray[np.float64]]
    """`env_steps`, `episodes`, in seconds `step_s`, `reset_s`, `simulate`, `reset`, `wait:inference`, each [R, N]."""
    fates: Sequence[Fates]
    """What became of each environment's env steps, from each rank that learns; the model says nothing of lengths."""


@runtime_checkable
class Predictable(Protocol):
    """Methods of a system that has a model, beside `contract.System`."""

    def why_not_predicted(self, scenario: Scenario, limits: Limits) -> str | None:
        """None, or the part of such a run that the model does not cover, with what it does cover."""

    def predict(self, scenario: Scenario, num_ranks: int, seed: int, limits: Limits) -> Prediction:
        """Predicts a run on `num_ranks` emulated GPUs. Raises ValueError for a run that the model does not cover."""
