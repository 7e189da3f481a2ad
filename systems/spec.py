"""A system is five choices: this dataclass names one of each, and a system's folder holds little more than that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rlbench.harness.contract.agents import agents_per_env, num_rows
from rlbench.harness.contract.device import Device
from rlbench.harness.contract.envs import envs_per_batch, envs_per_recv
from rlbench.harness.contract.scenario import Scenario
from rlbench.harness.contract.settings import POLICIES, LearnSettings, learns_from_samples
from rlbench.harness.contract.system import Context
from rlbench.results.reading.names import known_names
from rlbench.systems.choices.average import AllReduce, AverageChoice, Central, Elastic, Gossip, ParameterServer
from rlbench.systems.choices.batches import why_not_in_agents, why_not_in_batches, why_not_in_pools
from rlbench.systems.choices.collect import ActorSide, Collector, DoubleBuffered, Dynamic, Lockstep
from rlbench.systems.choices.mixes import why_impossible
from rlbench.systems.choices.overlap import Alternate, Continuous, OneAhead, OverlapChoice
from rlbench.systems.choices.preempt import Never, Optimal, PreemptChoice, Threshold
from rlbench.systems.choices.rollout import Fixed, RolloutChoice, Trajectories, Variable

if TYPE_CHECKING:
    from rlbench.harness.contract.budget import Limits
    from rlbench.harness.contract.prediction import Prediction
    from rlbench.systems.engine.rank.evaluate import Evaluation


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineSystem:
    """A system of ours; every field can be set from the command line (`ddppo:preempt.p=0.8`, `ddppo:preempt=never`)."""

    VARIANTS: ClassVar[Mapping[str, Mapping[str, type]]] = {
        "collect": {"lockstep": Lockstep, "dynamic": Dynamic, "doublebuffered": DoubleBuffered, "actorside": ActorSide},
        "rollout": {"fixed": Fixed, "variable": Variable, "trajectories": Trajectories},
        "overlap": {"alternate": Alternate, "oneahead": OneAhead, "continuous": Continuous},
        "preempt": {"never": Never, "threshold": Threshold, "optimal": Optimal},
        "average": {
            "allreduce": AllReduce,
            "gossip": Gossip,
            "elastic": Elastic,
            "parameterserver": ParameterServer,
            "central": Central,
        },
    }

    name: str
    about: str
    collect: Collector
    rollout: RolloutChoice
    overlap: OverlapChoice
    preempt: PreemptChoice
    average: AverageChoice
    learn: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `LearnSettings` that the system sets differently from the scenario."""

    def __post_init__(self) -> None:
        """Refuses impossible mixes and unknown learning settings."""
        replace(LearnSettings(), **self.learn)
        mix = {choice: type(getattr(self, choice)).__name__.lower() for choice in self.VARIANTS}
        if reason := why_impossible(mix, self.VARIANTS):
            raise ValueError(reason)

    @property
    def preload(self) -> tuple[str, ...]:
        """Modules that a rank imports to run."""
        return ("rlbench.systems.engine.rank.rank_loop",)

    @property
    def survives_lost_rank(self) -> bool:
        """Whether the other ranks go on when one is gone."""
        return self.average.survives_lost_rank

    @property
    def in_step(self) -> bool:
        """Whether all ranks end each iteration together."""
        return isinstance(self.average, AllReduce | Central)

    @property
    def one_learner(self) -> bool:
        """Whether rank 0 learns for all."""
        return isinstance(self.average, Central)

    def check(self, scenario: Scenario) -> Scenario:
        """The scenario with this system's learning settings; raises ValueError when the two do not go together."""
        from rlbench.systems.spaces.played import why_not_played  # gymnasium, which naming systems does not need

        if scenario.policy not in POLICIES:
            raise ValueError(
                f"{scenario.name}:policy={scenario.policy}: unknown; {known_names(scenario.policy, POLICIES)}"
            )
        learn = replace(scenario.learn, **self.learn)
        if reason := why_not_played(scenario) or self._why_not_on(scenario, learn):
            raise ValueError(f"{self.name} on {scenario.name}: {reason}")
        return replace(scenario, learn=learn)  # type: ignore[type-var]  # scenarios are dataclasses

    def why_not_spaces(self, observation_space: Any, action_space: Any, image_order: str = "auto") -> str | None:
        """None, or why no policy of ours reads these observations or chooses these actions."""
        from rlbench.systems.spaces.played import why_not_spaces

        return why_not_spaces(observation_space, action_space, image_order)

    def steps_each(self, scenario: Scenario) -> int | None:
        """Samples that a rank learns from in an iteration; None where rollouts may be cut, or have places without."""
        return None if self._may_be_short(scenario) else self._target(scenario)

    def _target(self, scenario: Scenario) -> int:
        """Samples of a whole rollout."""
        return self.rollout.target(num_rows(scenario), self.rollout.steps(scenario.rollout_steps))

    def _may_be_short(self, scenario: Scenario) -> bool:
        """Whether rollouts may have fewer samples than they are to have.

        They may be cut, and resets, or agents that are away, take places.
        """
        may_lack_steps = isinstance(self.rollout, Fixed) and envs_per_batch(scenario) > 1
        return may_lack_steps or not isinstance(self.preempt, Never)

    def _fewest(self, scenario: Scenario) -> int:
        """Samples that a rollout which may be short surely has: one of each environment.

        An environment with several agents always has one that steps, so a whole rollout has T.
        """
        is_whole = isinstance(self.preempt, Never) and agents_per_env(scenario) > 1
        return scenario.num_envs * (self.rollout.steps(scenario.rollout_steps) if is_whole else 1)

    def _why_not_on(self, scenario: Scenario, learn: LearnSettings) -> str | None:
        num_envs, steps = scenario.num_envs, self.rollout.steps(scenario.rollout_steps)
        by_env = self.rollout.split == "envs" and not learns_from_samples(scenario.policy, learn)
        fewest = num_envs if by_env else self._fewest(scenario)
        if learn.num_minibatches > fewest and (by_env or self._may_be_short(scenario)):
            few = "rollouts may be cut, or hold resets" if agents_per_env(scenario) == 1 else "agents may be away"
            why = "mini-batches are split by environment" if by_env else few
            return f"num_envs={num_envs} cannot fill learn.num_minibatches={learn.num_minibatches}: {why}"
        if isinstance(self.preempt, Threshold) and self.preempt.least * steps < 1:
            return (
                f"preempt.least={self.preempt.least} of {steps} steps is less than one step: a preempted rank would "
                "have nothing to learn; raise it, or use preempt=never"
            )
        target, rows, agents = self._target(scenario), num_rows(scenario), agents_per_env(scenario)
        if target < max(learn.num_minibatches, rows):
            return (
                f"rollout.batch={target}: must be at least num_envs={num_envs}{f' x {agents} agents' * (agents > 1)} "
                f"and learn.num_minibatches={learn.num_minibatches}; nearest: rollout.batch={rows * steps}"
            )
        if isinstance(self.average, ParameterServer) and (learn.schedule != "constant" or learn.weight_decay):
            return (
                f"learn.schedule={learn.schedule} and learn.weight_decay={learn.weight_decay}: must be constant and 0: "
                "the server steps, at average.learning_rate"
            )
        updates = learn.epochs * learn.num_minibatches
        if isinstance(self.overlap, Continuous) and self.overlap.max_lag < updates:
            return (
                f"overlap.max_lag={self.overlap.max_lag} optimiser steps: must be at least the {updates} of a batch "
                f"(learn.epochs={learn.epochs} x learn.num_minibatches={learn.num_minibatches}), or nearly all that is "
                "collected while one is learned is discarded"
            )
        return self._why_not_stepped(scenario, steps)

    def _why_not_stepped(self, scenario: Scenario, steps: int) -> str | None:
        num_envs, of_batch, agents = scenario.num_envs, envs_per_batch(scenario), agents_per_env(scenario)
        choices = self.collect, self.rollout, self.overlap
        if agents > 1:
            if of_batch != agents or envs_per_recv(scenario):
                return f"envs_per_batch={of_batch}: must be agents_per_env={agents}, and no pool"
            return why_not_in_agents(*choices, num_envs, agents)
        if of_recv := envs_per_recv(scenario):
            return why_not_in_pools(*choices, num_envs, of_batch, of_recv)
        if of_batch > 1:
            return why_not_in_batches(*choices, num_envs, of_batch, steps)
        return self.collect.check(num_envs)

    def run(self, context: Context) -> None:
        """Trains on this rank until the budget is spent."""
        from rlbench.systems.engine.rank.rank_loop import run_rank

        run_rank(self, context)

    def policies(self, ranks: Sequence[int]) -> dict[str, str]:
        """Says whose weights each policy file of a run holds; `ranks` are those that lasted to its end, ascending."""
        from rlbench.systems.engine.rank.rank_loop import POLICY_FILE, RANK_POLICY_FILE

        is_mean = isinstance(self.average, Gossip) and len(ranks) > 1
        return {
            POLICY_FILE: f"mean of {len(ranks)} ranks" if is_mean else "final",
            RANK_POLICY_FILE.format(ranks[0]): f"rank {ranks[0]} alone",
        }

    def evaluate(self, scenario: Scenario, seed: int, weights: Path, num_episodes: int, device: Device) -> Evaluation:
        """Plays episodes with the weights that a run left; see `systems.engine.rank.evaluate`."""
        from rlbench.systems.engine.rank.evaluate import evaluate

        return evaluate(scenario, seed, weights, num_episodes, device)

    def why_not_predicted(self, scenario: Scenario, limits: Limits) -> str | None:
        """None if the model covers such a run; else what it does not cover, and what it does."""
        from rlbench.systems.model.predict import why_not

        return why_not(self, scenario, limits)

    def predict(self, scenario: Scenario, num_ranks: int, seed: int, limits: Limits) -> Prediction:
        """Predicts a run on `num_ranks` emulated GPUs; see `systems.model`."""
        from rlbench.systems.model.predict import predict

        return predict(self, scenario, num_ranks, seed, limits)
