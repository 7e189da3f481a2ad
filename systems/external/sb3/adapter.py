"""Stable-Baselines3's PPO as a system: from a cell to its settings; see `systems.external.library`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from systems.external.library import Departure, LibrarySystem, PipLibrary

if TYPE_CHECKING:
    from harness.contract.scenario import Scenario
    from harness.contract.settings import LearnSettings


@dataclass(frozen=True, kw_only=True)
class StableBaselines(LibrarySystem):
    """PPO with an environment in each worker process."""

    library: ClassVar[PipLibrary] = PipLibrary(name="sb3", distribution="stable-baselines3", folder="sb3")
    env_a_worker: ClassVar[bool] = True
    policies: ClassVar[Mapping[str, str]] = {"nature": "nature", "conv": "nature"}

    def learned_with(self, learn: LearnSettings) -> LearnSettings:
        """The clip range is [1 - clip, 1 + clip]."""
        return replace(learn, clip_low=0.0)

    def list_departures(self, scenario: Scenario) -> tuple[Departure, ...]:  # noqa: ARG002  on all alike
        """Departures that none of its arguments removes."""
        return (
            Departure(what="mini-batches hold", theirs="single env steps, shuffled anew in each epoch"),
            Departure(
                what="advantages", theirs="scaled with the sample's standard deviation, if at all", matters=False
            ),
        )


SYSTEM = StableBaselines(name="sb3-ppo", about="Stable-Baselines3 2.9.2: its PPO, without recurrence")
