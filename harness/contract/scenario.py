"""What a scenario is: the work of a cell, and the family that makes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from harness.contract.device import Seat
from harness.contract.settings import GpuCosts, LearnSettings

if TYPE_CHECKING:
    import gymnasium

WORKLOADS = ("homogeneous", "heterogeneous")


class Scenario(Protocol):
    """A cell's work: a frozen dataclass.

    May have `sleeps = True` (steps but wait), and the attributes that `harness.processes.shared_memory` describes.
    """

    @property
    def name(self) -> str:
        """`family` or `family/variant`."""

    @property
    def workload(self) -> str:
        """One of `WORKLOADS`."""

    @property
    def num_envs(self) -> int:
        """Environments of one rank."""

    @property
    def rollout_steps(self) -> int:
        """T: steps of each environment in one rollout."""

    @property
    def policy(self) -> str:
        """One of `small`, `conv`, `nature`, `resnet` (systems/learn)."""

    @property
    def learn(self) -> LearnSettings:
        """How every system learns on it."""

    @property
    def gpu_costs(self) -> GpuCosts:
        """What its work takes on an emulated GPU."""

    @property
    def preload(self) -> tuple[str, ...]:
        """Modules that workers need; imported once per rank, before the workers are forked."""

    @property
    def observation_space(self) -> gymnasium.spaces.Dict:
        """Box entries only. `pixels`: uint8 [C, H, W]; `depth`: float32 [1, H, W], metres; vectors: float32 [K]."""

    @property
    def num_actions(self) -> int:
        """Actions are 0 .. num_actions - 1."""

    def make_env(self, seat: Seat) -> gymnasium.Env[dict[str, Any], int]:
        """Makes one environment, in the process that will step it.

        `info` of `step` may hold `num_frames` (simulator frames, else 1), `raw_reward` (for returns, else the reward)
        and, at the end of an episode, `success` and `spl` (0 to 1). Time-limit ends are truncations. Rewards are real
        numbers that float32 holds, observations of their space's dtype: what is not ends the run.
        """


class ScenarioFamily(Protocol):
    """What an entry point of `rlbench.scenarios` names; `vizdoom/basic` is family `vizdoom`, variant `basic`."""

    about: str
    variants: tuple[str, ...]
    """Known variants, the default first; `()` if there are none."""

    def unavailable(self) -> str | None:
        """None, or why it cannot run here and the command that would change that, in one line."""

    def make(self, variant: str, workload: str) -> Scenario:
        """Makes the scenario; `variant` is '' for the default. Raises ValueError that lists the known variants."""
