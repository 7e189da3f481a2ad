from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlbench.harness.contract.budget import Limits
from rlbench.harness.contract.device import Place
from rlbench.harness.contract.system import Context
from rlbench.harness.devices.kinds import CpuDevice
from rlbench.harness.metering.meter import RankMeter
from rlbench.harness.processes.told import StopRequests
from rlbench.systems.engine.rank.rank_loop import RankLoop
from rlbench.systems.engine.rollouts.monitors import NeverMonitor
from rlbench.systems.engine.rollouts.rollout import Experience, Rollout
from rlbench.systems.engine.workers.inference import Actor, close_runs
from rlbench.systems.engine.workers.tables import SharedTable, rollout_columns
from rlbench.systems.policies.policy import Policy, build_policy
from rlbench.systems.sync.spec import SPEC as SYNC
from tests.systems.actions import choices
from tests.systems.engine.counting import LENGTHS, NUM_STEPS, SPACE, CountingScenario
from tests.systems.engine.ranks import run_ranks

NUM_ENVS = len(LENGTHS)
CUT_STEPS = 5
STEPS_OF = {"first": NUM_STEPS, "second": NUM_STEPS, "cut": CUT_STEPS}


class StopAtFive(NeverMonitor):
    """A monitor whose other ranks have always finished."""

    def should_stop(self, rollout: Rollout) -> bool:
        return rollout.num_steps >= CUT_STEPS


def context_of(folder: Path) -> Context:
    """The context of a rank."""
    place = Place.from_environment()
    scenario = CountingScenario()
    return Context(
        place=place,
        scenario=scenario,
        device=CpuDevice(place.num_ranks),
        seed=0,
        budget=Limits(iterations=3),
        meter=RankMeter(folder, place.rank, scenario.num_envs),
        folder=str(folder),
        stall_s=60,
    )


def save(loop: RankLoop, folder: Path, name: str, experience: Experience) -> None:
    """Leaves the table, the slots of each run, and the policy that acts."""
    columns = {column.name.replace("/", "."): loop._table[column.name] for column in loop._table.columns}
    runs = {f"run.{number}": run for number, run in enumerate(experience.runs)}
    rank = loop._context.place.rank
    np.savez(
        folder / f"{name}-{rank}.npz",
        **columns,  # type: ignore[arg-type]  # numpy's stub
        **runs,  # type: ignore[arg-type]
        follow=loop._rollout.follow,
        envs=np.array(experience.envs),
        num_stale_runs=np.array(experience.num_stale_runs),
    )
    torch.save(loop._policy.state_dict(), folder / f"{name}-{rank}.pt")


def collect(folder: Path) -> None:
    """On each rank: three iterations, the last one cut; leaves the table and the weights of each."""
    context = context_of(folder)
    loop = RankLoop(SYNC, context, StopRequests())
    for name in STEPS_OF:
        if name == "cut":
            loop._monitor = loop._sampler._monitor = StopAtFive()
        loop.plan()
        loop.collect()
        experience = loop.take()
        save(loop, folder, name, experience)
        loop.learn(experience)
        loop.end_iteration()
    loop.close()
    context.meter.close()


@dataclass(frozen=True, slots=True)
class Collected:
    """What a rank had in its table after it had collected, and the policy that acted."""

    columns: dict[str, NDArray[Any]]
    policy: Policy
    num_steps: int
    slots: NDArray[np.int64]
    """[T + 1, N], where environments stood before each step and after the last."""

    @classmethod
    def load(cls, folder: Path, name: str, rank: int = 0) -> Collected:
        """Reads what `collect` left."""
        with np.load(folder / f"{name}-{rank}.npz") as columns:
            policy = build_policy("small", SPACE, choices(4), seed=1)
            policy.load_state_dict(torch.load(folder / f"{name}-{rank}.pt"))
            slots = np.stack([columns[f"run.{env}"] for env in range(NUM_ENVS)], 1)
            assert columns["envs"].tolist() == list(range(NUM_ENVS))
            slots = np.concatenate((slots, columns["follow"][slots[-1:]]))
            assert (columns["follow"][slots[:-1]] == slots[1:]).all()
            read = {key.replace(".", "/"): array for key, array in columns.items()}
            return cls(read, policy, STEPS_OF[name], slots)

    def at(self, name: str, step: int) -> Tensor:
        """The rows of one step, [N, ...]."""
        return torch.from_numpy(self.columns[name][self.slots[step]])

    def states(self) -> list[Tensor]:
        """Recurrent states before step 0, 1, ... and after the last, worked out again from the first that is stored."""
        states = [self.at("state", 0)]
        for step in range(self.num_steps):
            obs, previous = {"where": self.at("obs/where", step)}, self.at("prev_action", step)
            starts = self.at("episode_start", step)
            _, _, values, state = self.policy.act(obs, previous, starts, states[-1], torch.Generator())
            torch.testing.assert_close(values, self.at("value", step))
            torch.testing.assert_close(state, self.at("state", step + 1))
            states.append(state)
        return states

    def ends(self, name: str) -> list[list[int]]:
        """For each environment the steps at which it was `terminated` or `truncated`."""
        return [
            [step for step in range(self.num_steps) if self.columns[name][self.slots[step, env]]]
            for env in range(NUM_ENVS)
        ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two ranks have collected."""
    folder = tmp_path_factory.mktemp("collected")
    run_ranks(collect, 2, folder)
    return folder


def test_episodes_end_where_they_should(folder: Path) -> None:
    """Time limits are truncations, final states terminations; the next step shows a new episode's first observation."""
    rollout = Collected.load(folder, "first")
    assert rollout.ends("truncated") == [[3, 7, 11], [4, 9], [], []]
    assert rollout.ends("terminated") == [[], [], [], [5, 11]]
    for env, ends in enumerate([[3, 7, 11], [4, 9], [], [5, 11]]):
        starts = {0} | {end + 1 for end in ends}
        for step in range(NUM_STEPS + 1):
            began = max(start for start in starts if start <= step)
            previous = -1 if step in starts else int(rollout.at("action", step - 1)[env])
            assert rollout.at("obs/where", step)[env].tolist() == [step - began, previous, 1]
            assert rollout.at("prev_action", step)[env].tolist() == [max(previous, 0)]
            assert bool(rollout.at("episode_start", step)[env]) == (step in starts)
    assert rollout.columns["final/where"][0].tolist() == [4, float(rollout.at("action", 11)[0]), 1]
    assert torch.equal(rollout.at("reward", 6), rollout.at("action", 6)[:, 0].float())


@pytest.mark.parametrize("name", ["first", "second", "cut"])
def test_values_follow_from_the_stored_state(folder: Path, name: str) -> None:
    """From the state stored at the rollout's start, the policy gives the values that were stored with every step."""
    rollout = Collected.load(folder, name)
    assert len(rollout.states()) == rollout.num_steps + 1
    if name != "first":
        assert rollout.at("state", 0).any(dim=1).all(), "episodes go on from one rollout to the next"


def test_truncation_bootstraps_from_the_final_observation(folder: Path) -> None:
    """In the middle and at the last step: the final observation's value, with the recurrent state after the step."""
    rollout = Collected.load(folder, "first")
    states = rollout.states()
    for env, step in ((0, 3), (0, 7), (0, 11), (1, 4), (1, 9)):
        action = rollout.at("action", step)[env]
        final = torch.tensor([[LENGTHS[env], float(action), 1.0]])
        goes_on = torch.tensor([False])
        value = rollout.policy.value({"where": final}, action[None], goes_on, states[step + 1][env : env + 1])
        torch.testing.assert_close(rollout.at("bootstrap", step)[env : env + 1], value)
        stale = rollout.policy.value({"where": final}, action[None], goes_on, states[step][env : env + 1])
        assert not torch.allclose(value, stale), "the state before the step would give another value"


@pytest.mark.parametrize(("name", "running"), [("first", [1, 2]), ("cut", [0, 1, 2, 3])])
def test_running_episodes_bootstrap_from_the_next_observation(folder: Path, name: str, running: list[int]) -> None:
    """At the end of a rollout, a cut one too: the value of the observation at which the environment stands."""
    rollout = Collected.load(folder, name)
    end = rollout.num_steps
    going_on = [env for env in running if end - 1 not in rollout.ends("truncated")[env]]
    assert len(going_on) >= 2
    values = rollout.policy.value(
        {"where": rollout.at("obs/where", end)[going_on]},
        rollout.at("prev_action", end)[going_on],
        rollout.at("episode_start", end)[going_on],
        rollout.states()[-1][going_on],
    )
    torch.testing.assert_close(rollout.at("bootstrap", end - 1)[going_on], values)


@pytest.mark.parametrize("afresh", [False, True])
def test_values_after_runs_are_those_of_who_acted_or_of_the_learner(afresh: bool) -> None:
    """Where an action was chosen a value is known, under the weights of then; V-trace wants the learner's."""
    policy = build_policy("small", SPACE, choices(4), seed=0)
    table = SharedTable(rollout_columns(SPACE, choices(4), 2, 4, policy.state_size))
    table["obs/where"][...] = np.arange(12).reshape(4, 3)
    table["prev_action"][...] = 1
    table["state"][...] = 0.1
    table["value"][2] = 7.0
    ends, follow, acted = np.array([0, 1]), np.array([2, 3, 0, 0]), np.array([True, True, True, False])
    actor = Actor(policy, table, CpuDevice(1), torch.Generator())
    close_runs([ends[:1], ends[1:]], follow, acted, actor, afresh=afresh)
    at = follow[ends]
    obs = {"where": torch.from_numpy(table["obs/where"][at])}
    before = (torch.from_numpy(table[name][at]) for name in ("prev_action", "episode_start", "state"))
    values = policy.value(obs, *before)
    expected = values.tolist() if afresh else [7.0, values[1].item()]
    assert table["bootstrap"][ends].tolist() == pytest.approx(expected)


def test_versions_count_optimiser_steps(folder: Path) -> None:
    """Every step carries the version that chose it: 2 epochs of 2 mini-batches later the version is 4 higher."""
    rollouts = [Collected.load(folder, name) for name in STEPS_OF]
    versions = [rollout.columns["version"][rollout.slots[:-1]] for rollout in rollouts]
    assert [set(of_rollout.ravel().tolist()) for of_rollout in versions] == [{0}, {4}, {8}]


def test_ranks_agree_on_weights_and_not_on_actions(folder: Path) -> None:
    """All ranks have the same weights, to the bit, but sample actions with streams of their own."""
    for name in STEPS_OF:
        ours, theirs = Collected.load(folder, name, rank=0), Collected.load(folder, name, rank=1)
        for weight, other in zip(ours.policy.parameters(), theirs.policy.parameters(), strict=True):
            assert torch.equal(weight, other)
        differ = ours.columns["action"][ours.slots[:-1]] != theirs.columns["action"][theirs.slots[:-1]]
        assert 0.4 < differ.mean() <= 1, "of 4 actions, nearly uniform, 3/4 should differ"
    first = Collected.load(folder, "first")
    actions = first.columns["action"][first.slots[:-1]][..., 0]
    assert len(set(map(tuple, actions.T.tolist()))) == NUM_ENVS
