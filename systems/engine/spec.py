"""A system is five choices: this dataclass names one of each, and a system's folder holds little more than one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from harness.contract import Context, Scenario
from harness.settings import POLICIES, LearnSettings
from systems.engine.average import AllReduce
from systems.engine.collect import Lockstep
from systems.engine.overlap import Alternate
from systems.engine.preempt import Never, Threshold
from systems.engine.rollout import Fixed


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineSystem:
    """A system of ours; every field can be set from the command line (`ddppo:preempt.p=0.8`, `ddppo:preempt=never`)."""

    VARIANTS: ClassVar[Mapping[str, Mapping[str, type]]] = {
        "collect": {"lockstep": Lockstep},
        "rollout": {"fixed": Fixed},
        "overlap": {"alternate": Alternate},
        "preempt": {"never": Never, "threshold": Threshold},
        "average": {"allreduce": AllReduce},
    }

    name: str
    about: str
    collect: Lockstep
    rollout: Fixed
    overlap: Alternate
    preempt: Never | Threshold
    average: AllReduce
    learn: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `LearnSettings` that the system sets differently from the scenario."""

    def __post_init__(self) -> None:
        """Refuses learning settings that there are not."""
        replace(LearnSettings(), **self.learn)

    def check(self, scenario: Scenario) -> Scenario:
        """The scenario with this system's learning settings; raises ValueError when the two cannot go together."""
        if scenario.policy not in POLICIES:
            raise ValueError(f"{scenario.name}:policy={scenario.policy}: unknown; known: {', '.join(POLICIES)}")
        learn = replace(scenario.learn, **self.learn)
        if learn.num_minibatches > scenario.num_envs:
            raise ValueError(
                f"{self.name} on {scenario.name}: num_envs={scenario.num_envs} cannot fill "
                f"learn.num_minibatches={learn.num_minibatches}: mini-batches are split by environment"
            )
        steps = self.rollout.steps(scenario.rollout_steps)
        if isinstance(self.preempt, Threshold) and self.preempt.least * steps < 1:
            raise ValueError(
                f"{self.name} on {scenario.name}: preempt.least={self.preempt.least} of {steps} steps is less than "
                "one step: a preempted rank would have nothing to learn; raise it, or use preempt=never"
            )
        return replace(scenario, learn=learn)  # type: ignore[type-var]  # scenarios are dataclasses

    def run(self, context: Context) -> None:
        """Trains on this rank until the budget is spent."""
        from systems.engine.rank_loop import RankLoop

        loop = RankLoop(self, context)
        try:
            self.overlap.run(loop)
        except BaseException:
            loop.abort()
            raise
        loop.close()
