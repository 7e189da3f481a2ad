"""Sample Factory as a system: from a cell to its settings; see `systems.external.library`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from rlbench.systems.external.library import Departure, LibrarySystem, PipLibrary, Rollout, scales_observations
from rlbench.systems.external.spaces import SAMPLE_FACTORY, Takes

if TYPE_CHECKING:
    from rlbench.harness.contract.scenario import Scenario
    from rlbench.harness.contract.settings import LearnSettings


@dataclass(frozen=True, kw_only=True)
class SampleFactory(LibrarySystem):
    """APPO as Sample Factory 2 has it."""

    library: ClassVar[PipLibrary] = PipLibrary(
        name="sample-factory", distribution="sample-factory", folder="sample_factory"
    )
    corrections: ClassVar[tuple[str, ...]] = ("none", "vtrace")
    envs_of_group: ClassVar[int] = 2
    """Double-buffered sampling: a worker's environments are in two groups."""
    takes: ClassVar[Takes] = SAMPLE_FACTORY
    policies: ClassVar[Mapping[str, str]] = {"nature": "nature", "conv": "conv"}
    number_policies: ClassVar[Mapping[str, str]] = {"small": "two tanh layers of 64, shared by actions and values"}
    normalizes: ClassVar[frozenset[str]] = frozenset({"observations"})

    def learned_with(self, learn: LearnSettings) -> LearnSettings:
        """Advantages are always normalised, and the clip range is [1 / (1 + clip), 1 + clip]."""
        return replace(learn, normalize_advantages="rank", clip_low=1 / (1 + learn.clip))

    def why_not_filled(self, batch: int, steps: int, num_envs: int) -> str | None:  # noqa: ARG002  of any environment
        """None, or why rollouts do not fill a batch: it is made of whole rollouts of single environments."""
        return None if batch % steps == 0 else f"rollout.batch={batch}: must be a multiple of rollout.num_steps={steps}"

    def why_not_on(self, scenario: Scenario, learn: LearnSettings) -> str | None:
        """None, or why the library cannot run this scenario with these settings."""
        if reason := super().why_not_on(scenario, learn):
            return reason
        each, steps = scenario.num_envs // self.workers_of(scenario), self.steps_of(scenario)
        if each % self.envs_of_group:
            return f"num_envs={scenario.num_envs}: each of {self.workers_of(scenario)} workers must have an even number"
        if (self.batch_of(scenario) // learn.num_minibatches) % steps:
            return f"learn.num_minibatches={learn.num_minibatches}: mini-batches are of whole rollouts of {steps} steps"
        return None

    def list_departures(self, scenario: Scenario) -> tuple[Departure, ...]:
        """Departures that no option of its command line removes."""
        scaled = Departure(
            what="running moments",
            theirs="change with a batch before it is learned from, not after; what is scaled is cut at 5, not at 10",
        )
        return (
            *((scaled,) if scales_observations(scenario) else ()),
            Departure(what="initialisation", theirs="orthogonal with gain 1, of its LSTM torch's own"),
            Departure(what="truncated episodes", theirs="bootstrap from the step before the last"),
            Departure(what="probability ratio", theirs="kept within 0.05 and 20", matters=False),
        )


SYSTEM = SampleFactory(
    name="sample-factory",
    about="Sample Factory 2.1.1: its APPO",
    rollout=Rollout(num_steps=32, batch=2048),
    learn={
        "epochs": 1,
        "num_minibatches": 1,
        "clip": 0.1,
        "adam_eps": 1e-6,
        "entropy_coef": 0.003,
        "max_grad_norm": 4.0,
    },
)
