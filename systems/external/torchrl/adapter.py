"""PPO made of torchrl's parts as a system: from a cell to its settings; see `systems.external.library`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from rlbench.systems.external.library import Departure, LibrarySystem, PipLibrary
from rlbench.systems.external.spaces import TORCHRL, Takes

if TYPE_CHECKING:
    from rlbench.harness.contract.scenario import Scenario
    from rlbench.harness.contract.settings import LearnSettings
    from rlbench.harness.contract.system import Context


@dataclass(frozen=True, kw_only=True)
class Torchrl(LibrarySystem):
    """PPO with torchrl's MultiSyncCollector, whose workers hold the policy."""

    library: ClassVar[PipLibrary] = PipLibrary(name="torchrl", distribution="torchrl", folder="torchrl")
    takes: ClassVar[Takes] = TORCHRL
    policies: ClassVar[Mapping[str, str]] = {"nature": "nature", "conv": "nature"}
    number_policies: ClassVar[Mapping[str, str]] = {"small": "two tanh layers of 64, shared by actions and values"}

    preemptive_threshold: float = 1.0
    """When this fraction of the workers have their share, the others hand over what they have; 1 waits for all."""

    def __post_init__(self) -> None:
        """Checks every field once."""
        super().__post_init__()
        if not 0 < self.preemptive_threshold <= 1:
            raise ValueError(f"preemptive_threshold={self.preemptive_threshold}: must be above 0 and at most 1")

    def learned_with(self, learn: LearnSettings) -> LearnSettings:
        """The clip range is [1 - clip, 1 + clip]."""
        return replace(learn, clip_low=0.0)

    def why_not_on(self, scenario: Scenario, learn: LearnSettings) -> str | None:
        """None, or why the library cannot run this scenario with these settings."""
        if learn.num_minibatches > scenario.num_envs:
            return f"learn.num_minibatches={learn.num_minibatches}: mini-batches are of whole environments"
        return super().why_not_on(scenario, learn)

    def settings(self, context: Context) -> dict[str, Any]:
        """Settings that `train.py` gets as JSON."""
        return {**super().settings(context), "preemptive_threshold": self.preemptive_threshold}

    def list_departures(self, scenario: Scenario) -> tuple[Departure, ...]:  # noqa: ARG002  on all alike
        """Departures of torchrl's parts; the loop around them is written as rlbench's own."""
        return (
            Departure(
                what="advantages", theirs="scaled with the sample's standard deviation, if at all", matters=False
            ),
            Departure(
                what="encoder", theirs="passed through once for the action and once for the value", matters=False
            ),
        )


SYSTEM = Torchrl(name="torchrl-ppo", about="torchrl 0.14.1: PPO of its parts and its MultiSyncCollector, no recurrence")
