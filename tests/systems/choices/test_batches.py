from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from rlbench.harness.contract.settings import LearnSettings
from rlbench.systems.choices.batches import ALONE, why_not_in_batches
from rlbench.systems.choices.collect import ActorSide, Collector, DoubleBuffered, Dynamic, Lockstep
from rlbench.systems.choices.overlap import Alternate, Continuous, OneAhead
from rlbench.systems.choices.rollout import Fixed, RolloutChoice, Trajectories, Variable
from rlbench.systems.nover.spec import SPEC as NOVER
from rlbench.systems.sync.spec import SPEC as SYNC
from rlbench.systems.ver.spec import SPEC as VER
from tests.systems.engine.batched import BatchedScenario

SIZE = 4


def why(collect: Collector, num_envs: int, rollout: RolloutChoice | None = None) -> str | None:
    """Of batches of `SIZE`."""
    return why_not_in_batches(collect, rollout or Fixed(), Alternate(), num_envs, SIZE, num_steps=8)


@pytest.mark.parametrize("num_envs", [4, 8, 20])
@pytest.mark.parametrize("collect", [Lockstep(), Dynamic(), Dynamic(max_batch=8), Dynamic(min_batch=3)])
@pytest.mark.parametrize("rollout", [Fixed(), Variable()])
def test_whole_batches_will_do(collect: Collector, rollout: RolloutChoice, num_envs: int) -> None:
    """Any number of them, with any smallest inference, and a largest one of whole batches."""
    assert why(collect, num_envs, rollout) is None


@pytest.mark.parametrize(
    ("collect", "num_envs", "reason"),
    [
        (ActorSide(), 8, f"the policy acts in the workers, for single environments: {ALONE}"),
        (Lockstep(), 6, "num_envs=6: must be a multiple of 4"),
        (Lockstep(), 2, "num_envs=2: must be a multiple of 4"),
        (Dynamic(max_batch=6), 8, "collect.max_batch=6: must be a multiple of 4, or 0 for all"),
        (Dynamic(min_batch=9), 8, "collect.min_batch=9: must be at most num_envs=8; nearest: min_batch=8"),
        (
            DoubleBuffered(),
            12,
            "num_envs=12: must be a multiple of 8, since double buffering steps two batches in turn",
        ),
        (
            DoubleBuffered(num_envs_per_worker=4),
            16,
            "collect.num_envs_per_worker=4: must be a multiple of 8, since double buffering steps two batches in turn",
        ),
        (DoubleBuffered(max_batch=2), 8, "collect.max_batch=2: must be a multiple of 4, or 0 for all"),
    ],
)
def test_what_will_not_do_is_said_in_a_line(collect: Collector, num_envs: int, reason: str) -> None:
    """With the setting, the rule and the value."""
    assert why(collect, num_envs) == reason


@pytest.mark.parametrize("num_envs", [8, 16, 24])
@pytest.mark.parametrize("per_worker", [0, 8])
def test_double_buffering_has_two_batches_of_each_worker(num_envs: int, per_worker: int) -> None:
    """What is accepted can be shared out to workers in whole pairs of batches."""
    collect = DoubleBuffered(num_envs_per_worker=per_worker)
    assert why(collect, num_envs) is None
    for num_cores in (1, 2, 3, 64):
        of_worker = collect.envs_per_worker(num_envs, num_cores, SIZE)
        assert num_envs % of_worker == of_worker % (2 * SIZE) == 0


def test_trajectories_are_of_a_stream() -> None:
    """A quota has room for single environments; a stream takes any."""
    stream = Trajectories(num_steps=4, batch=32)
    assert why_not_in_batches(Dynamic(), stream, Continuous(), 8, SIZE, num_steps=4) is None
    for overlap in (Alternate(), OneAhead()):
        reason = why_not_in_batches(Dynamic(), stream, overlap, 8, SIZE, num_steps=4)
        assert reason == (f"a batch of trajectories has room for single environments: {ALONE}, or overlap=continuous")


@dataclass(frozen=True, kw_only=True)
class Short(BatchedScenario):
    """With rollouts of one step."""

    rollout_steps: int = 1
    learn: LearnSettings = field(default_factory=LearnSettings)


def test_a_rollout_has_a_step_that_is_learned() -> None:
    """One step of each environment may be no env step at all; of any environments it is, and of single ones."""
    for system in (SYNC, NOVER):
        with pytest.raises(ValueError, match="of at least 2, since one step may only reset") as refused:
            system.check(Short())
        assert "\n" not in str(refused.value)
    assert VER.check(Short()) is not None
    assert SYNC.check(Short(kind="alone")) is not None
    assert SYNC.steps_each(Short()) is None
    assert SYNC.steps_each(Short(kind="alone")) == 4
