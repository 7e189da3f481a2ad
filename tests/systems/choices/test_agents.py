from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from rlbench.harness.contract.budget import Limits
from rlbench.harness.contract.prediction import Times
from rlbench.harness.contract.settings import LearnSettings, learns_from_samples
from rlbench.harness.plan.registry import load_system
from rlbench.systems.choices.batches import why_not_in_agents
from rlbench.systems.choices.collect import ActorSide, Collector, DoubleBuffered, Dynamic, Lockstep
from rlbench.systems.choices.overlap import Alternate, Continuous, OneAhead
from rlbench.systems.choices.preempt import Never
from rlbench.systems.choices.rollout import Fixed, RolloutChoice, Trajectories, Variable
from rlbench.systems.ddppo.spec import SPEC as DDPPO
from rlbench.systems.external.command import Command
from rlbench.systems.external.document import Trainer
from rlbench.systems.model.predict import why_not
from rlbench.systems.sync.spec import SPEC as SYNC
from rlbench.systems.ver.spec import SPEC as VER
from tests.systems.engine.agents.crowds import NUM_AGENTS, NUM_ENVS, NUM_STEPS, CrowdScenario

AGENTS = 3
IN_LINE = LearnSettings(num_minibatches=2)
WHOLE = replace(VER, preempt=Never())


def why(collect: Collector, num_envs: int, rollout: RolloutChoice | None = None) -> str | None:
    """Of environments with `AGENTS` agents."""
    return why_not_in_agents(collect, rollout or Fixed(), Alternate(), num_envs, AGENTS)


@pytest.mark.parametrize("num_envs", [1, 2, 5])
@pytest.mark.parametrize("collect", [Lockstep(), Dynamic(), Dynamic(max_batch=6), Dynamic(min_batch=3)])
@pytest.mark.parametrize("rollout", [Fixed(), Variable()])
def test_whole_environments_will_do(collect: Collector, rollout: RolloutChoice, num_envs: int) -> None:
    """Any number of them, with any smallest inference, and a largest one of all agents of some."""
    assert why(collect, num_envs, rollout) is None


@pytest.mark.parametrize(
    ("collect", "num_envs", "reason"),
    [
        (ActorSide(), 4, "the policy acts in the workers, for one agent and not for the 3 agents of an environment"),
        (Dynamic(max_batch=4), 4, "collect.max_batch=4: counts agents, must be a multiple of 3, or 0 for all"),
        (Dynamic(min_batch=13), 4, "collect.min_batch=13: must be at most 12, the agents that may wait at once"),
        (DoubleBuffered(), 3, "num_envs=3: must be even, since double buffering steps two environments in turn"),
        (DoubleBuffered(min_batch=7), 4, "collect.min_batch=7: must be at most 6, the agents that may wait at once"),
        (
            DoubleBuffered(num_envs_per_worker=4),
            4,
            "collect.num_envs_per_worker=4: counts agents, must be a multiple of 6",
        ),
        (
            DoubleBuffered(num_envs_per_worker=18),
            4,
            "collect.num_envs_per_worker=18: must divide the 12 agents of a rank",
        ),
    ],
)
def test_what_will_not_do_is_said_in_a_line(collect: Collector, num_envs: int, reason: str) -> None:
    """With the setting, the rule and the value."""
    assert why(collect, num_envs) == reason


def test_trajectories_are_of_a_stream() -> None:
    """A quota has room for single agents; a stream takes any."""
    stream = Trajectories(num_steps=4, batch=32)
    assert why_not_in_agents(Dynamic(), stream, Continuous(), 4, AGENTS) is None
    for overlap in (Alternate(), OneAhead()):
        assert why_not_in_agents(Dynamic(), stream, overlap, 4, AGENTS) == (
            "a batch of trajectories has room for single agents, not for the 3 agents of an environment: "
            "use overlap=continuous"
        )


@pytest.mark.parametrize("num_envs", [2, 4, 6])
@pytest.mark.parametrize("per_worker", [0, 6])
def test_double_buffering_has_two_environments_of_each_worker(num_envs: int, per_worker: int) -> None:
    """What is accepted can be shared out to workers in whole pairs of environments."""
    collect = DoubleBuffered(num_envs_per_worker=per_worker)
    assert why(collect, num_envs) is None
    for num_cores in (1, 2, 3, 64):
        of_worker = collect.envs_per_worker(num_envs * AGENTS, num_cores, AGENTS)
        assert num_envs * AGENTS % of_worker == of_worker % (2 * AGENTS) == 0


def test_a_rollout_has_so_many_samples_at_least() -> None:
    """One of every environment in each step, where some agents may be away; so many mini-batches can be filled."""
    small = CrowdScenario(policy="small", rollout_steps=NUM_STEPS)

    def checked(system: Any, num_minibatches: int) -> CrowdScenario:
        return system.check(replace(small, learn=replace(IN_LINE, num_minibatches=num_minibatches)))  # type: ignore[no-any-return]

    assert SYNC.steps_each(small) is None
    assert WHOLE.steps_each(small) == NUM_ENVS * NUM_AGENTS * NUM_STEPS
    assert SYNC.check(replace(small, rollout_steps=1)) is not None
    for system, most in ((DDPPO, NUM_ENVS), (SYNC, NUM_ENVS if by_env(small) else NUM_ENVS * NUM_STEPS)):
        assert checked(system, most) is not None
        with pytest.raises(ValueError, match=rf"num_envs={NUM_ENVS} cannot fill learn.num_minibatches={most + 1}: "):
            checked(system, most + 1)


def by_env(scenario: CrowdScenario) -> bool:
    """Whether its mini-batches are of whole environments."""
    return not learns_from_samples(scenario.policy, scenario.learn)


def test_a_stream_counts_agents() -> None:
    """A batch has room for a sample of each agent of each environment."""
    with pytest.raises(ValueError, match=r"rollout.batch=8: must be at least num_envs=4 x 3 agents and .*batch=48"):
        load_system("appo", {"rollout.num_steps": "4", "rollout.batch": "8"}).check(CrowdScenario())  # type: ignore[attr-defined]


@dataclass(frozen=True, kw_only=True)
class Pooled(CrowdScenario):
    """With batches of another size than an environment has agents."""

    envs_per_batch: int = field(default=6)


def test_batches_are_the_agents_of_one_environment() -> None:
    """Anything else is a mistake of the scenario, which is told."""
    with pytest.raises(ValueError, match=r"envs_per_batch=6: must be agents_per_env=3, and no pool"):
        SYNC.check(Pooled())


@pytest.mark.parametrize("name", ["sb3-ppo", "rllib-impala", "rllib-appo", "sample-factory", "torchrl-ppo"])
def test_libraries_take_environments_with_one_agent(name: str) -> None:
    """They say so in one line when the run is planned."""
    with pytest.raises(ValueError, match=f"{name} on crowd: takes environments with one agent, not with 3") as refused:
        load_system(name, {}).check(CrowdScenario())  # type: ignore[attr-defined]
    assert "\n" not in str(refused.value)


def test_a_trainer_that_makes_our_environments_takes_one_agent() -> None:
    """One that makes its own is not asked how many agents those have."""
    told = {"command": "python train.py", "environment": "ours"}
    ours, own = (
        Command(name="mine", about="", trainer=Trainer.model_validate(told | {"environment": of}))
        for of in ("ours", "instrumented")
    )
    with pytest.raises(ValueError, match="mine on crowd: makes rlbench's environments with one agent each, not with 3"):
        ours.check(CrowdScenario())
    assert own.check(CrowdScenario()) == CrowdScenario()


@dataclass(frozen=True, kw_only=True)
class Timed(CrowdScenario):
    """With times, as of a profile."""

    reset_s: float = 0.0

    def times(self, seeds: Sequence[int]) -> Times:
        """None that anybody asks for."""
        raise NotImplementedError


def test_models_have_environments_with_one_agent() -> None:
    """Whatever times are known of others."""
    assert why_not(SYNC, Timed(), Limits(iterations=1)) == "a model steps environments with one agent, not with 3"
