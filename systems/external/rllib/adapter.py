"""RLlib's APPO and IMPALA as systems: from a cell to their settings; see `systems.external.library`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from rlbench.systems.external.library import Departure, LibrarySystem, PipLibrary, Rollout
from rlbench.systems.external.spaces import RLLIB, Takes

if TYPE_CHECKING:
    from rlbench.harness.contract.scenario import Scenario
    from rlbench.harness.contract.settings import LearnSettings
    from rlbench.harness.contract.system import Context

MOST_BATCHES_SENT = 3
"""RLlib's `max_requests_in_flight_per_learner`."""


@dataclass(frozen=True, kw_only=True)
class Rllib(LibrarySystem):
    """An algorithm of RLlib that learns while it collects."""

    library: ClassVar[PipLibrary] = PipLibrary(name="rllib", distribution="ray", folder="rllib")
    corrections: ClassVar[tuple[str, ...]] = ("vtrace",)
    takes: ClassVar[Takes] = RLLIB
    policies: ClassVar[Mapping[str, str]] = {"nature": "nature", "conv": "conv"}
    number_policies: ClassVar[Mapping[str, str]] = {"small": "two tanh layers of 64, shared by actions and values"}
    recurrent: ClassVar[frozenset[str]] = frozenset({"conv"})
    algorithm: ClassVar[str]

    poll_s: float = 0.0
    """Seconds that the main process waits for rollouts of all runners before it takes those that have come. With 0,
    RLlib's default, it never waits, and keeps a core busy."""

    def __post_init__(self) -> None:
        """Checks every field once."""
        super().__post_init__()
        if not 0 <= self.poll_s <= 1:
            raise ValueError(f"poll_s={self.poll_s}: must be from 0 to 1")

    def learned_with(self, learn: LearnSettings) -> LearnSettings:
        """Advantages are never normalised, and the clip range, where there is one, is [1 - clip, 1 + clip]."""
        return replace(learn, normalize_advantages="none", clip_low=0.0)

    def why_not_filled(self, batch: int, steps: int, num_envs: int) -> str | None:  # noqa: ARG002  of any runners
        """None: batches are made of a runner's rollouts, which `why_not_on` checks."""
        return None

    def why_not_on(self, scenario: Scenario, learn: LearnSettings) -> str | None:
        """None, or why the library cannot run this scenario with these settings."""
        if reason := super().why_not_on(scenario, learn):
            return reason
        batch, sample = self.batch_of(scenario), self._sample_of(scenario)
        rules = (
            (learn.c == 1, f"learn.c={learn.c:g}: V-trace's c is always 1"),
            (
                learn.num_minibatches == 1,
                f"learn.num_minibatches={learn.num_minibatches}: must be 1; it fills the last one with samples again",
            ),
            (batch % sample == 0, f"rollout.batch={batch}: must be a multiple of a runner's rollouts, {sample}"),
        )
        return next((why for holds, why in rules if not holds), None)

    def settings(self, context: Context) -> dict[str, Any]:
        """Settings that `train.py` gets as JSON."""
        return {**super().settings(context), "algorithm": self.algorithm, "poll_s": self.poll_s}

    def list_departures(self, scenario: Scenario) -> tuple[Departure, ...]:
        """Departures that no setting of its configuration removes."""
        sample, each = self._sample_of(scenario), scenario.num_envs // self.workers_of(scenario)
        more = self.batch_of(scenario) // sample * (each - 1)
        return (
            *self._departures_in_v_trace(scenario),
            *self._departures_of_loss(),
            Departure(what="initialisation", theirs="of both heads torch's own"),
            Departure(what="batch", theirs=f"up to {more} env steps more, where episodes end", matters=False),
            Departure(
                what="too many batches",
                theirs=f"dropped beyond {MOST_BATCHES_SENT} on their way to the learner",
                matters=False,
            ),
            Departure(what="weights while collecting", theirs="the newest before each rollout", matters=False),
            Departure(what="gradients that are not finite", theirs="zero, with a warning", matters=False),
        )

    def _departures_in_v_trace(self, scenario: Scenario) -> tuple[Departure, ...]:
        """Departures of V-trace: it also covers the step that RLlib adds to each rollout for the value after its end.

        At the added step discount and reward are 0, so its target is (1 - weight) times its value, and the correction
        carried back from it removes the value that the step before was given. Without recurrence RLlib cuts the batch,
        added steps included, into rows of T samples, so rows and rollouts drift apart; the value is kept where a row
        ends with the last step of a rollout.
        """
        if scenario.policy in self.recurrent:
            after = Departure(what="value after a rollout", theirs="multiplied by 1 - V-trace's weight, so about 0")
            return (after,)
        return (
            Departure(
                what="value after a rollout",
                theirs="multiplied by 1 - V-trace's weight, so about 0, where no row of V-trace ends there",
            ),
            Departure(
                what="V-trace's rows",
                theirs=f"every {self.steps_of(scenario)} samples of a batch, whatever rollouts they are of",
            ),
        )

    def _departures_of_loss(self) -> tuple[Departure, ...]:
        """Departures of the policy loss; the value loss and the entropy loss are as ours."""
        raise NotImplementedError

    def _sample_of(self, scenario: Scenario) -> int:
        """Env steps of one rollout of all of a runner's environments."""
        return self.steps_of(scenario) * (scenario.num_envs // self.workers_of(scenario))


@dataclass(frozen=True, kw_only=True)
class Appo(Rllib):
    """APPO, with a target network (Luo et al. 2020, IMPACT)."""

    algorithm: ClassVar[str] = "APPO"

    target_every: int = 32
    """About how many batches pass until the target network is a new copy of the policy. RLlib's defaults give 32:
    `target_network_update_freq` x `circular_buffer_num_batches` x `circular_buffer_iterations_per_batch`, 2 x 8 x 2."""

    def __post_init__(self) -> None:
        """Checks every field once."""
        super().__post_init__()
        if self.target_every < 1:
            raise ValueError(f"target_every={self.target_every}: must be at least 1")

    def settings(self, context: Context) -> dict[str, Any]:
        """Settings that `train.py` gets as JSON."""
        return {**super().settings(context), "target_every": self.target_every}

    def _departures_of_loss(self) -> tuple[Departure, ...]:
        """The clipped ratio is pi / target, while mu / target is at most 2; mu is the policy that acted."""
        every = f"about every {self.target_every} batches"
        return (
            Departure(
                what="probability ratio",
                theirs=f"to a target network, a copy of the policy {every}; so are V-trace's weights",
            ),
            Departure(what="advantages", theirs="weighted with V-trace's weight beside the ratio"),
        )


@dataclass(frozen=True, kw_only=True)
class Impala(Rllib):
    """IMPALA (Espeholt et al. 2018)."""

    algorithm: ClassVar[str] = "IMPALA"

    def _departures_of_loss(self) -> tuple[Departure, ...]:
        """RLlib has the loss of the paper's section 4.2; rlbench's own impala has PPO's."""
        return (Departure(what="policy loss", theirs="V-trace's policy gradient, without a clip range"),)


STREAM = Rollout(num_steps=32, batch=2048)
ONCE = {"correct": "vtrace", "epochs": 1, "num_minibatches": 1}
APPO = Appo(
    name="rllib-appo",
    about="RLlib 2.60.0: its APPO",
    rollout=STREAM,
    learn=ONCE | {"clip": 0.1, "adam_eps": 1e-6, "entropy_coef": 0.003, "max_grad_norm": 4.0},
)
IMPALA = Impala(name="rllib-impala", about="RLlib 2.60.0: its IMPALA", rollout=STREAM, learn=ONCE)
