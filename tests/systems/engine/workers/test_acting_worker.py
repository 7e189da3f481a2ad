from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from rlbench.harness.contract.budget import Limits
from rlbench.harness.contract.device import Place
from rlbench.harness.contract.system import Context
from rlbench.harness.devices.kinds import CpuDevice
from rlbench.harness.metering.meter import RankMeter
from rlbench.systems.engine.workers.acting_weights import BroadcastWeights, weight_columns
from rlbench.systems.engine.workers.acting_worker import Acting, Player
from rlbench.systems.engine.workers.pool import WorkerPool
from rlbench.systems.engine.workers.tables import SharedTable, rollout_columns
from rlbench.systems.policies.policy import Policy, build_policy
from tests.scenarios.seats import seat_of
from tests.systems.actions import choices
from tests.systems.engine.counting import LENGTHS, SPACE, CountingScenario
from tests.systems.engine.ranks import run_ranks

NUM_ENVS = len(LENGTHS)
NUM_STEPS = 6
NUM_SLOTS = NUM_ENVS * (NUM_STEPS + 1) * 2
SEEDS = {env: 10 + env for env in range(NUM_ENVS)}


def new_policy(seed: int = 3) -> Policy:
    """A policy for the counting scenario."""
    return build_policy("small", SPACE, choices(4), seed=seed)


def tables_for(policy: Policy) -> tuple[SharedTable, SharedTable]:
    """What rank and workers share: the steps, and the weights."""
    steps = SharedTable(rollout_columns(SPACE, choices(4), NUM_ENVS, NUM_SLOTS, policy.state_size))
    return steps, SharedTable(weight_columns(sum(parameter.numel() for parameter in policy.parameters())))


def assert_chosen_by(
    policy: Policy, table: dict[str, np.ndarray] | SharedTable, slots: list[int], follow: list[int]
) -> None:
    """Values and states of the steps in these slots are those that a policy gives, from the states stored there."""

    def at(name: str, rows: list[int]) -> torch.Tensor:
        return torch.from_numpy(table[name][rows])

    obs = {"where": at("obs/where", slots)}
    previous, starts, before = (at(name, slots) for name in ("prev_action", "episode_start", "state"))
    _, _, values, states = policy.act(obs, previous, starts, before, torch.Generator())
    torch.testing.assert_close(values, at("value", slots))
    torch.testing.assert_close(states, at("state", follow))


class Bench:
    """A player of one environment, whose steps are noted; it is stopped after some of them."""

    def __init__(self, stop_after: int = 1000) -> None:
        self.policy = new_policy()
        self.table, self.weights = tables_for(self.policy)
        self.broadcast = BroadcastWeights(self.policy, self.weights)
        self.broadcast.publish(0)
        self.steps: list[tuple[int, int, int]] = []
        self._stop_after = stop_after
        acting = Acting(scenario=CountingScenario(), weights=self.weights, seeds=SEEDS)
        seats = {env: seat_of(index=env, num_envs=NUM_ENVS) for env in SEEDS}
        self.player = acting.open(self.table, seats, self._step)

    def _step(self, env: int, slot: int, slot_next: int) -> None:
        self.steps.append((env, slot, slot_next))
        self.table["obs/where"][slot_next] = [len(self.steps), 0, 1]
        self.table["prev_action"][slot_next] = self.table["action"][slot]
        if len(self.steps) == self._stop_after:
            self.weights["stop"][0] = True


@pytest.fixture
def one_thread() -> Iterator[None]:
    """A player works on one thread; other tests have what they had."""
    num_threads = torch.get_num_threads()
    yield
    torch.set_num_threads(num_threads)


@pytest.mark.usefixtures("one_thread")
def test_plays_through_its_slots() -> None:
    """T steps, each from its slot to the next, chosen by the learner's weights and with their version."""
    bench = Bench()
    slots = [4, 9, 2, 7]
    assert isinstance(bench.player, Player)
    assert bench.player.play(2, np.array(slots, np.int32)) == 3
    assert bench.steps == [(2, 4, 9), (2, 9, 2), (2, 2, 7)]
    assert_chosen_by(bench.policy, bench.table, slots[:-1], slots[1:])
    assert bench.table["version"][slots[:-1]].tolist() == [0, 0, 0]


@pytest.mark.usefixtures("one_thread")
def test_takes_the_newest_weights_for_each_trajectory() -> None:
    """What was published last acts from the next trajectory on, and its version is noted with each step."""
    bench = Bench()
    bench.player.play(0, np.array([0, 1, 2], np.int32))
    for version in (1, 2):
        with torch.no_grad():
            for parameter in bench.policy.parameters():
                parameter.mul_(1.5)
        bench.broadcast.publish(version)
    bench.player.play(0, np.array([2, 3, 4], np.int32))
    assert bench.table["version"][:4].tolist() == [0, 0, 2, 2]
    assert_chosen_by(bench.policy, bench.table, [2, 3], [3, 4])


@pytest.mark.usefixtures("one_thread")
def test_stops_within_a_trajectory() -> None:
    """When the rank sets `stop`, a player takes no further step, and says how many it took."""
    bench = Bench(stop_after=2)
    assert bench.player.play(0, np.arange(6, dtype=np.int32)) == 2
    assert len(bench.steps) == 2
    assert bench.player.play(1, np.arange(6, 12, dtype=np.int32)) == 0


@pytest.mark.usefixtures("one_thread")
def test_environments_sample_with_streams_of_their_own() -> None:
    """Environments of one worker choose different actions on the same observations."""
    bench = Bench()
    chosen = []
    for env in (0, 1):
        bench.table["obs/where"][:] = 0
        bench.table["episode_start"][:] = True
        bench.table["state"][:] = 0
        bench.steps.clear()
        bench.player.play(env, np.arange(NUM_SLOTS, dtype=np.int32))
        chosen.append(bench.table["action"][: NUM_SLOTS - 1].tolist())
    assert chosen[0] != chosen[1]


def play_in_workers(folder: Path) -> None:
    """On one rank: workers that hold the policy play, with weights of two versions, and are stopped."""
    scenario = CountingScenario()
    meter = RankMeter(folder, 0, NUM_ENVS)
    context = Context(
        place=Place.from_environment(),
        scenario=scenario,
        device=CpuDevice(1),
        seed=0,
        budget=Limits(iterations=1),
        meter=meter,
        folder=str(folder),
        stall_s=60,
    )
    policy = new_policy()
    table, weights = tables_for(policy)
    broadcast = BroadcastWeights(policy, weights)
    broadcast.publish(0)
    seats = [context.seat(env, context.env_seed(env)) for env in range(NUM_ENVS)]
    acting = Acting(scenario=scenario, weights=weights, seeds=SEEDS)
    pool = WorkerPool(context, table, seats, envs_per_worker=2, acting=acting)
    pool.begin(np.arange(NUM_ENVS))
    slots = np.arange((NUM_STEPS + 1) * NUM_ENVS).reshape(NUM_STEPS + 1, NUM_ENVS)
    said = []
    for version, first in ((0, 0), (7, NUM_STEPS)):
        if version:
            with torch.no_grad():
                for parameter in policy.parameters():
                    parameter.mul_(1.5)
            broadcast.publish(version)
        for env in range(NUM_ENVS):
            pool.play(env, slots[:, env] + first * NUM_ENVS)
        said.append([part.tolist() for part in pool.receive(NUM_ENVS)])
        torch.save(policy.state_dict(), folder / f"{version}.pt")
    weights["stop"][0] = True
    pool.play(1, slots[:, 1])
    said.append([part.tolist() for part in pool.receive(1)])
    has_torch = ["/torch/" in Path(f"/proc/{pid}/maps").read_text() for pid in pool.pids]
    pool.close()
    meter.close()
    (folder / "said.json").write_text(json.dumps([said, has_torch]))
    np.savez(folder / "table.npz", **{column.name.replace("/", "."): table[column.name] for column in table.columns})  # type: ignore[arg-type]  # numpy's stub


def test_workers_that_hold_the_policy(tmp_path: Path) -> None:
    """Real workers, two environments each, play whole trajectories by themselves with the newest weights, and stop."""
    run_ranks(play_in_workers, 1, tmp_path)
    said, has_torch = json.loads((tmp_path / "said.json").read_text())
    for envs, played in said[:2]:
        assert sorted(envs) == list(range(NUM_ENVS))
        assert played == [NUM_STEPS] * NUM_ENVS
    assert said[2] == [[1], [0]], "stopped before its first step"
    assert has_torch == [True, True]
    with np.load(tmp_path / "table.npz") as columns:
        table = {key.replace(".", "/"): array for key, array in columns.items()}
    slots = np.arange((2 * NUM_STEPS + 1) * NUM_ENVS).reshape(-1, NUM_ENVS)
    for version, first in ((0, 0), (7, NUM_STEPS)):
        policy = new_policy()
        policy.load_state_dict(torch.load(tmp_path / f"{version}.pt"))
        for env in range(NUM_ENVS):
            here = slots[first : first + NUM_STEPS, env].tolist()
            there = slots[first + 1 : first + NUM_STEPS + 1, env].tolist()
            assert table["version"][here].tolist() == [version] * NUM_STEPS
            assert_chosen_by(policy, table, here, there)
    cut = slots[LENGTHS[0] - 1, 0]
    assert table["truncated"][cut]
    assert table["bootstrap"][cut] != 0, "the value of the final observation"
    assert table["episode_start"][slots[LENGTHS[0], 0]]
