"""Stable-Baselines3's PPO as a system: from a cell to its settings; see `systems.external.library`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from rlbench.systems.external.library import Departure, LibrarySystem, PipLibrary, image_order_of, scales_observations
from rlbench.systems.external.spaces import SB3, Takes, seen_as

if TYPE_CHECKING:
    from rlbench.harness.contract.scenario import Scenario
    from rlbench.harness.contract.settings import LearnSettings


@dataclass(frozen=True, kw_only=True)
class StableBaselines(LibrarySystem):
    """PPO with an environment in each worker process."""

    library: ClassVar[PipLibrary] = PipLibrary(name="sb3", distribution="stable-baselines3", folder="sb3")
    env_a_worker: ClassVar[bool] = True
    takes: ClassVar[Takes] = SB3
    policies: ClassVar[Mapping[str, str]] = {"nature": "nature", "conv": "nature"}
    number_policies: ClassVar[Mapping[str, str]] = {"small": "its MlpPolicy: two tanh layers of 64, for each head"}
    normalizes: ClassVar[frozenset[str]] = frozenset({"observations", "rewards"})

    def learned_with(self, learn: LearnSettings) -> LearnSettings:
        """The clip range is [1 - clip, 1 + clip]."""
        return replace(learn, clip_low=0.0)

    def list_departures(self, scenario: Scenario) -> tuple[Departure, ...]:
        """Departures that none of its arguments removes."""
        seen = seen_as(scenario.observation_space, image_order_of(scenario))
        several = Departure(
            what="network", theirs="of each image one encoder; numbers go to the heads beside their features"
        )
        scaled = Departure(
            what="running moments", theirs="of VecNormalize, which change at each env step, not after each rollout"
        )
        is_scaled = scales_observations(scenario) or scenario.learn.normalize_rewards
        return (
            *((scaled,) if is_scaled else ()),
            *((several,) if seen in {"several images", "images and numbers"} else ()),
            Departure(what="mini-batches hold", theirs="single env steps, shuffled anew in each epoch"),
            Departure(
                what="advantages", theirs="scaled with the sample's standard deviation, if at all", matters=False
            ),
        )


SYSTEM = StableBaselines(name="sb3-ppo", about="Stable-Baselines3 2.9.2: its PPO, without recurrence")
