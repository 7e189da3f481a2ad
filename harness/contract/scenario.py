"""The interface of a scenario, which is the work of a cell, and of the family that makes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from rlbench.harness.contract.device import Seat
from rlbench.harness.contract.settings import GpuCosts, LearnSettings

if TYPE_CHECKING:
    import gymnasium

WORKLOADS = ("homogeneous", "heterogeneous")


class Scenario(Protocol):
    """A cell's work, a frozen dataclass; it, and its family, may have more: `contract.extras`, `envs`, `prediction`."""

    @property
    def name(self) -> str:
        """`family` or `family/variant`."""

    @property
    def workload(self) -> str:
        """One of `WORKLOADS`."""

    @property
    def num_envs(self) -> int:
        """Number of environments of one rank."""

    @property
    def rollout_steps(self) -> int:
        """T: steps of each environment in one rollout."""

    @property
    def policy(self) -> str:
        """One of `auto`, `small`, `conv`, `nature`, `resnet` (systems/policies)."""

    @property
    def learn(self) -> LearnSettings:
        """The learning settings of every system on this scenario."""

    @property
    def gpu_costs(self) -> GpuCosts:
        """Times of its work on an emulated GPU."""

    @property
    def preload(self) -> tuple[str, ...]:
        """Modules that environment workers need; imported once per rank, before its workers are forked."""

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """Box, Discrete, MultiDiscrete, MultiBinary, or Dict and Tuple of these; see `contract.extras`."""

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        """Of the same kinds."""

    def make_env(self, seat: Seat) -> gymnasium.Env[Any, Any]:
        """Makes one environment, in the process that will step it.

        The `info` of `step` may hold `num_frames` (simulator frames, 1 if absent), `raw_reward` (used for returns, the
        reward if absent) and, at the end of an episode, `success` and `spl` (0 to 1). An end by time limit is a
        truncation. Rewards must be real numbers within float32, observations must be of their space, floats rounded
        to its dtype; anything else ends the run.
        """


class ScenarioFamily(Protocol):
    """The object of an entry point of `rlbench.scenarios`; `vizdoom/basic` is family `vizdoom`, variant `basic`."""

    about: str
    variants: tuple[str, ...]
    """Known variants, the default first; `()` if there are none."""

    def unavailable(self) -> str | None:
        """None, or one line: why it cannot run here and the command that would change that."""

    def make(self, variant: str, workload: str) -> Scenario:
        """Makes the scenario; `variant` is '' for the default. Raises ValueError listing the known variants."""
