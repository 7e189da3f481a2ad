"""VER and DD-PPO of habitat-baselines as systems: from a cell to their settings; see `systems.external.library`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from rlbench.systems.external.library import CondaLibrary, Departure, LibrarySystem
from rlbench.systems.external.spaces import why_not_actions
from rlbench_client.flat import leaves_of

if TYPE_CHECKING:
    from rlbench.harness.contract.scenario import Scenario
    from rlbench.harness.contract.settings import LearnSettings
    from rlbench.harness.contract.system import Context

HABITAT = CondaLibrary(
    name="habitat-baselines",
    distribution="habitat-baselines",
    folder="habitat_baselines",
    needs="habitat-sim",
    module="habitat_sim",
    words="headless -c conda-forge -c aihabitat-nightly",  # the release channel has no build for our Python
)


@dataclass(frozen=True, kw_only=True)
class HabitatBaselines(LibrarySystem):
    """A trainer of habitat-baselines, with a process for each environment."""

    library: ClassVar[CondaLibrary] = HABITAT
    observations: ClassVar[tuple[frozenset[str], ...]] = (frozenset({"pixels"}), frozenset({"depth", "goal"}))
    """Names of the observations that a scenario may have; each set is one alternative."""
    env_a_worker: ClassVar[bool] = True
    policies: ClassVar[Mapping[str, str]] = {"resnet": "resnet"}
    number_policies: ClassVar[Mapping[str, str]] = policies
    trainer: ClassVar[str]
    """Its name in habitat-baselines."""

    def why_not_spaces(self, observation_space: Any, action_space: Any, image_order: str = "auto") -> str | None:  # noqa: ARG002  by name
        """None, or why the library does not take these spaces and what it takes."""
        names = tuple(leaf.key for leaf in leaves_of(observation_space))
        if frozenset(names) not in self.observations:
            known = " or ".join(f"{' and '.join(sorted(known))} alone" for known in self.observations)
            return f"observations {', '.join(names)}: its adapter takes {known}"
        return why_not_actions(self.takes, action_space)

    def learned_with(self, learn: LearnSettings) -> LearnSettings:
        """The clip range is [1 - clip, 1 + clip]."""
        return replace(learn, clip_low=0.0)

    def settings(self, context: Context) -> dict[str, Any]:
        """Settings that `train.py` gets as JSON."""
        return {**super().settings(context), "trainer": self.trainer}

    def list_departures(self, scenario: Scenario) -> tuple[Departure, ...]:
        """Departures that no setting of its configuration removes."""
        of_rollout = Departure(what="advantages", theirs="normalised over the rollout, not over each mini-batch")
        return (
            Departure(what="value after a truncated episode", theirs="0, as after one that has ended"),
            Departure(
                what="initialisation",
                theirs="of convolutions and fully connected layers torch's own; of the LSTM over its gates together",
            ),
            *((of_rollout,) if scenario.learn.normalize_advantages != "none" else ()),
        )


@dataclass(frozen=True, kw_only=True)
class Ddppo(HabitatBaselines):
    """DD-PPO's trainer (Wijmans et al. 2020)."""

    trainer: ClassVar[str] = "ddppo"

    def why_not_on(self, scenario: Scenario, learn: LearnSettings) -> str | None:
        """None, or why the library cannot run this scenario with these settings."""
        if scenario.num_envs % learn.num_minibatches:
            return (
                f"learn.num_minibatches={learn.num_minibatches}: must divide num_envs={scenario.num_envs}; "
                "mini-batches are of whole environments"
            )
        return super().why_not_on(scenario, learn)


@dataclass(frozen=True, kw_only=True)
class Ver(HabitatBaselines):
    """VER's trainer (Wijmans et al. 2022), which collects and learns in turn."""

    corrections: ClassVar[tuple[str, ...]] = ("truncated_is",)
    trainer: ClassVar[str] = "ver"

    num_inference_workers: int = 2
    """Processes that choose actions, the learner's among them; 2 is habitat-baselines' default."""

    def __post_init__(self) -> None:
        """Checks every field once."""
        super().__post_init__()
        if not 1 <= self.num_inference_workers <= 64:
            raise ValueError(f"num_inference_workers={self.num_inference_workers}: must be from 1 to 64")

    def why_not_on(self, scenario: Scenario, learn: LearnSettings) -> str | None:
        """None, or why the library cannot run this scenario with these settings."""
        if reason := super().why_not_on(scenario, learn):
            return reason
        return None if learn.rho == 1 else f"learn.rho={learn.rho:g}: its weights are always truncated at 1"

    def settings(self, context: Context) -> dict[str, Any]:
        """Settings that `train.py` gets as JSON."""
        return {**super().settings(context), "num_inference_workers": self.num_inference_workers}

    def list_departures(self, scenario: Scenario) -> tuple[Departure, ...]:
        """The departures of both trainers, then VER's own."""
        return (
            *super().list_departures(scenario),
            Departure(
                what="sampling weights", theirs="count the step after each rollout of an environment too", matters=False
            ),
            Departure(
                what="steps under way when a rollout ends",
                theirs="discarded if they are over when the next one begins",
                matters=False,
            ),
            Departure(what="rewards that are not finite", theirs="-1", matters=False),
            Departure(what="environments' processes", theirs="give way to the others (nice 10)", matters=False),
        )


DDPPO = Ddppo(name="habitat-ddppo", about="habitat-baselines 0.3.320260507: its DD-PPO, on one GPU")
VER = Ver(
    name="habitat-ver",
    about="habitat-baselines 0.3.320260507: its VER, on one GPU",
    learn={"correct": "truncated_is"},
)
