"""Inference by CUDA graphs computes what the policy computes on the CPU."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import numpy as np
import pytest
import torch

from rlbench.harness.contract.scenario import Scenario
from rlbench.harness.devices.kinds import CpuDevice, CudaDevice
from rlbench.harness.plan.registry import load_scenario
from rlbench.systems.engine.workers.acting_weights import CopiedWeights
from rlbench.systems.engine.workers.inference import Actor
from rlbench.systems.engine.workers.tables import SharedTable, rollout_columns
from rlbench.systems.policies.graphed import lock_for_gpu
from rlbench.systems.policies.policy import Policy, policy_of

SCENARIOS = {
    "pointnav": {},
    "pointnav-resnet": {"policy": "resnet"},
    "vizdoom": {},
    "atari": {"policy": "nature"},
    "gym/CartPole-v1": {},
    "gym/Pendulum-v1": {},
}
NUM_ROWS = 20


def table_of(scenario: Scenario, policy: Policy) -> SharedTable:
    """Observations, states and previous actions of NUM_ROWS environments, drawn at random."""
    columns = rollout_columns(scenario.observation_space, policy.actions, NUM_ROWS, 2 * NUM_ROWS, policy.state_size)
    table = SharedTable(columns)
    rng = np.random.default_rng(1)
    scenario.observation_space.seed(2)
    for column in columns:
        entries = table[column.name]
        if column.name == "prev_action" and entries.dtype == np.int64:
            entries[:] = 0
        elif column.name == "episode_start":
            entries[:] = rng.random(entries.shape) < 0.3
        elif entries.dtype == np.uint8:
            entries[:] = rng.integers(0, 255, entries.shape)
        elif entries.dtype.kind == "f":
            entries[:] = rng.random(entries.shape)
    return table


class Both:
    """An actor on the GPU and one on the CPU with the same weights, each with its table of the same rows."""

    made: ClassVar[list[Both]] = []

    def __init__(self, name: str) -> None:
        self.made.append(self)
        scenario = load_scenario(name.removesuffix("-resnet"), "homogeneous", SCENARIOS[name])
        self.on_cpu, self.on_gpu = (policy_of(scenario, 0) for _ in range(2))
        self.on_gpu.to("cuda:0")
        self.cpu_table, self.gpu_table = (table_of(scenario, self.on_cpu) for _ in range(2))
        self.cpu = Actor(self.on_cpu, self.cpu_table, CpuDevice(1), torch.Generator().manual_seed(3))
        generator = torch.Generator("cuda:0").manual_seed(3)
        self.gpu = Actor(self.on_gpu, self.gpu_table, CudaDevice(0), generator)

    def act(self, slots: np.ndarray) -> None:
        """Both act on the same slots; the states that follow are NUM_ROWS further."""
        for actor in (self.cpu, self.gpu):
            actor.act(slots, slots + NUM_ROWS)

    def log_probs(self, slots: np.ndarray) -> np.ndarray:
        """Of the actions that the GPU has chosen, by the policy on the CPU."""
        table = self.gpu_table
        obs = {name[4:]: torch.from_numpy(table[name][slots]) for name in names_of(table) if name.startswith("obs/")}
        previous, starts, states, actions = (
            torch.from_numpy(table[name][slots]) for name in ("prev_action", "episode_start", "state", "action")
        )
        states = states.masked_fill(starts.unsqueeze(1), 0.0)
        sizes = torch.tensor([len(slots)])
        with torch.no_grad():
            of_actions: np.ndarray = self.on_cpu.evaluate(obs, previous, starts, sizes, states, actions)[0].numpy()
        return of_actions


@pytest.fixture(autouse=True)
def _tables_are_closed() -> Iterator[None]:
    yield
    while Both.made:
        both = Both.made.pop()
        both.cpu_table.close()
        both.gpu_table.close()


def names_of(table: SharedTable) -> list[str]:
    """The columns' names."""
    return [column.name for column in table.columns]


def same(mine: np.ndarray, theirs: np.ndarray) -> None:
    """But for rounding, which TF32 makes coarse in convolutions."""
    np.testing.assert_allclose(mine, theirs, rtol=2e-2, atol=5e-3)


@pytest.mark.parametrize("name", SCENARIOS)
def check_a_step_is_the_cpus(name: str) -> None:
    """Values, states and log-probabilities, whatever the number of rows and the graph that they fall into."""
    both = Both(name)
    for num in (1, 2, 5, 7, 8, 13, NUM_ROWS):
        slots = np.random.default_rng(num).permutation(NUM_ROWS)[:num]
        both.act(slots)
        same(both.gpu_table["value"][slots], both.cpu_table["value"][slots])
        same(both.gpu_table["state"][slots + NUM_ROWS], both.cpu_table["state"][slots + NUM_ROWS])
        same(both.gpu_table["log_prob"][slots], both.log_probs(slots))


@pytest.mark.parametrize("name", ["pointnav", "gym/Pendulum-v1"])
def check_values_of_next_and_final_observations_are_the_cpus(name: str) -> None:
    """As rollouts need them where they are cut, and where episodes are truncated."""
    both = Both(name)
    slots = np.arange(NUM_ROWS)
    both.act(slots)
    both.cpu_table["action"][:] = both.gpu_table["action"]
    for actor in (both.cpu, both.gpu):
        actor.value_next(slots[:5], slots[5:10])
        actor.value_final(slots[10:13], slots[10:13], slots[10:13] + NUM_ROWS)
    same(both.gpu_table["bootstrap"][:NUM_ROWS], both.cpu_table["bootstrap"][:NUM_ROWS])
    assert both.gpu_table["bootstrap"][:13].any()


def check_weights_that_change_in_place_are_read() -> None:
    """A graph has the weights' addresses, not their values."""
    both = Both("pointnav")
    slots = np.arange(8)
    both.act(slots)
    before = both.gpu_table["value"][slots].copy()
    for policy in (both.on_cpu, both.on_gpu):
        with torch.no_grad():
            for parameter in policy.parameters():
                parameter.mul_(1.5)
    both.act(slots)
    assert not np.allclose(both.gpu_table["value"][slots], before)
    same(both.gpu_table["value"][slots], both.cpu_table["value"][slots])


def check_actions_are_drawn_anew_and_as_often_as_they_are_likely() -> None:
    """A graph that is launched again draws other numbers."""
    both = Both("pointnav")
    slots = np.zeros(16, np.int64)  # the same state
    drawn = []
    for _ in range(500):
        both.gpu.act(slots[:1], slots[:1] + NUM_ROWS)
        drawn.append((int(both.gpu_table["action"][0, 0]), float(np.exp(both.gpu_table["log_prob"][0]))))
    actions = np.array([action for action, _ in drawn])
    for action, likely in {(action, round(likely, 4)) for action, likely in drawn}:
        assert abs((actions == action).mean() - likely) < 0.1
    assert len(set(actions.tolist())) > 1


def check_garbage_that_holds_graphs_does_not_spoil_a_capture() -> None:
    """Actors refer to themselves, so only the collector frees their graphs."""
    slots = np.arange(8)
    threshold = gc.get_threshold()
    gc.set_threshold(20)
    try:
        for _ in range(6):
            both = Both("pointnav")
            both.act(slots)
            same(both.gpu_table["value"][slots], both.cpu_table["value"][slots])
    finally:
        gc.set_threshold(*threshold)


def check_graphs_are_captured_while_another_thread_learns() -> None:
    """It allocates, computes and copies meanwhile, and neither disturbs the other."""
    with learning() as has_failed:
        for seed in range(3):
            both = Both("pointnav")
            for num in range(1, NUM_ROWS + 1):
                slots = np.random.default_rng(seed).permutation(NUM_ROWS)[:num]
                both.act(slots)
                same(both.gpu_table["value"][slots], both.cpu_table["value"][slots])
        assert not has_failed.is_set()


def check_weights_are_copied_whole_between_streams() -> None:
    """What acts on a stream of its own never has weights of two versions."""
    both = Both("vizdoom")
    learned, acting = both.on_gpu, policy_of(load_scenario("vizdoom", "homogeneous", {}), 0).to("cuda:0")
    actor = Actor(acting, both.gpu_table, CudaDevice(0), torch.Generator("cuda:0").manual_seed(1), beside_learner=True)
    weights = CopiedWeights(learned, acting, actor)
    ends = threading.Event()

    def learn() -> None:
        version = 0
        while not ends.is_set():
            version += 1
            with weights.changing(), torch.no_grad():
                for parameter in learned.parameters():
                    parameter.fill_(version)
                weights.publish(version)
            time.sleep(1e-4)

    thread = threading.Thread(target=learn)
    thread.start()
    try:
        seen: set[float] = set()
        for number in range(200):
            weights.refresh()
            actor.act(np.arange(3), np.arange(3) + NUM_ROWS)
            values = {float(parameter.detach().min()) for parameter in acting.parameters()}
            values |= {float(parameter.detach().max()) for parameter in acting.parameters()}
            assert len(values) == 1 or not seen, f"refresh {number}: weights of {values}"
            seen |= values if len(values) == 1 else set()
    finally:
        ends.set()
        thread.join()
    assert len(seen) > 10


def check_a_table_is_locked_for_the_gpu() -> None:
    """CUDA knows the pages of the shared memory."""
    table = Both("pointnav").gpu_table
    lock_for_gpu(table.memory)
    assert torch.from_numpy(table["value"]).is_pinned()


@contextmanager
def learning() -> Iterator[threading.Event]:
    """Another thread that allocates, computes, copies and waits on the GPU; tells whether it has failed."""
    ends, has_failed = threading.Event(), threading.Event()

    def learn() -> None:
        convolution = torch.nn.Conv2d(4, 16, 8).to("cuda:0")
        size = 1
        while not ends.is_set():
            size = size % 50 + 1
            try:
                loss = convolution(torch.ones(size, 4, 84, 84).pin_memory().to("cuda:0", non_blocking=True)).sum()
                loss.backward()
                float(loss.detach())
                torch.empty(size << 20, device="cuda:0")
            except RuntimeError:
                has_failed.set()
                raise

    thread = threading.Thread(target=learn)
    thread.start()
    try:
        yield has_failed
    finally:
        ends.set()
        thread.join()
