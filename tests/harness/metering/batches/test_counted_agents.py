from __future__ import annotations

import itertools
import math
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbench.harness.contract.envs import make_counted_agents
from rlbench.harness.metering.batches.counted_agents import CountedAgents
from rlbench.harness.metering.batches.steps import BatchStep
from rlbench.harness.metering.meter_file import MeterFile
from tests.harness.metering.batches.parallel_scenarios import ParallelScenario, RandomParallel, names
from tests.harness.metering.batches.test_counted_batch import flat, records, rows_of
from tests.harness.metering.batches.vector_scenarios import ACTIONS, meter, seats_of

Story = list[list[Any]]


def counted(folder: Path, scenario: ParallelScenario) -> tuple[CountedAgents, MeterFile]:
    """The environment of the seats after the first A of a rank with 3 * A, whose ranks have three environments each."""
    num = scenario.num_agents
    path, file = meter(folder, 3 * num)
    seats = [seat for seat in seats_of(3 * num - 2, before=0) if num <= seat.index < 2 * num]
    return make_counted_agents(scenario, seats, folder, path), file


def told_by_rows(agents: CountedAgents, actions: Any) -> Story:
    """What each agent was told, [A][...]: observations, and of each of its steps all that followed it."""
    story: Story = [[] for _ in range(actions.shape[1])]
    observation, there = rows_of(agents.reset()), None
    for row, own in enumerate(story):
        if any(observation[row]):
            own.append(("sees", observation[row], True))
    for of_step in actions:
        step: BatchStep = agents.step(of_step)
        if there is not None:
            assert (step.counts == there).all()
        now, final = rows_of(step.observation), None if step.final is None else rows_of(step.final)
        assert (step.final is None) == (not step.ended.any())
        assert (step.ended == (step.terminated | step.truncated)).all()
        there = np.array([any(row) for row in now])
        for row, own in enumerate(story):
            if step.counts[row]:
                own.append(("acted", step.rewards[row], step.terminated[row], step.truncated[row]))
            else:
                assert step.rewards[row] == 0
                assert not step.ended[row]
            if step.ended[row]:
                assert final is not None
                own.append(("ended", final[row], *map(repr, step.episodes[row].tolist())))
            if there[row]:
                own.append(("sees", now[row], step.starts[row]))
            else:
                assert not step.starts[row]
    return story


class Reference:
    """The same by a loop over dicts, which counts as plainly as can be."""

    def __init__(self, env: RandomParallel, seed: int) -> None:
        self.env, self.names = env, env.possible_agents
        self.story: Story = [[] for _ in self.names]
        self.steps, self.stays = np.zeros(len(self.names), int), np.zeros(len(self.names), int)
        self.joint_steps = self.frames = 0
        self.records: list[tuple[Any, ...]] = []
        self.sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0, 0])
        observations, _ = env.reset(seed=seed)
        self._see(observations, set())

    def _see(self, observations: dict[str, Any], stayed: set[str]) -> None:
        for agent in self.env.agents:
            self._own(agent).append(("sees", flat(observations[agent]), agent not in stayed))

    def _own(self, agent: str) -> list[Any]:
        return self.story[self.names.index(agent)]

    def step(self, actions: list[int]) -> None:
        """Has all who are there act."""
        chosen = {agent: actions[self.names.index(agent)] for agent in self.env.agents}
        observations, rewards, terminations, truncations, infos = self.env.step(chosen)
        frames = max((info["num_frames"] for info in infos.values() if "num_frames" in info), default=1)
        self.joint_steps, self.frames = self.joint_steps + 1, self.frames + frames
        stayed = set()
        for agent in chosen:
            row, info, sums = self.names.index(agent), infos.get(agent, {}), self.sums[agent]
            self.steps[row] += 1
            for i, amount in enumerate((info.get("raw_reward", rewards[agent]), 1, frames)):
                sums[i] += amount
            self._own(agent).append(("acted", rewards[agent], terminations[agent], truncations[agent]))
            if not (terminations[agent] or truncations[agent]):
                stayed.add(agent)
                continue
            self.stays[row] += 1
            success, spl = info.get("success", math.nan), info.get("spl", math.nan)
            of_episode = (sums[0], float(sums[1]), success, spl)
            self._own(agent).append(("ended", flat(observations[agent]), *map(repr, of_episode)))
            self.records.append((row, *sums, success, spl))
            del self.sums[agent]
        if not self.env.agents:
            observations, _ = self.env.reset()
        self._see(observations, stayed)


@settings(max_examples=60, deadline=None)
@given(
    num=st.integers(2, 5),
    most_steps=st.sampled_from([1, 2, 5]),
    comes=st.sampled_from([0.0, 0.2, 0.9]),
    num_calls=st.integers(1, 25),
    seed=st.integers(0, 99),
)
def test_agents_are_told_and_counted_as_by_a_plain_loop(
    num: int, most_steps: int, comes: float, num_calls: int, seed: int
) -> None:
    """Whoever leaves, comes again, or when all leave: observations, rewards, ends, counters and records are equal."""
    scenario = ParallelScenario(num, most_steps, comes)
    actions = np.random.default_rng(seed).integers(0, ACTIONS.n, (num_calls, num))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        agents, file = counted(folder, scenario)
        story = told_by_rows(agents, actions)
        agents.close()
        reference = Reference(RandomParallel(names(num), most_steps, comes), seats_of(3 * num, before=0)[num].seed)
        for of_step in actions.tolist():
            reference.step(of_step)
        assert story == reference.story
        own = range(1 + num, 1 + 2 * num)
        assert [file.count(block, "env_steps") for block in own] == reference.steps.tolist()
        assert [file.count(block, "episodes") for block in own] == reference.stays.tolist()
        for counter, number in (("joint_steps", num_calls), ("frames", reference.frames)):
            assert [file.count(block, counter) for block in own] == [number] + [0] * (num - 1)
        assert reference.joint_steps == num_calls
        for counter in ("pid", "env_steps", "joint_steps", "frames", "episodes"):
            assert not any(file.count(block, counter) for block in (*range(1, 1 + num), *range(1 + 2 * num, 3 * num)))
        first = (3 * num) + num  # rank 1
        left = sorted((first + row, *rest) for row, *rest in reference.records)
        assert repr(sorted(records(folder))) == repr(left)


def test_spans_and_seconds(tmp_path: Path) -> None:
    """Those that act simulate; the shares of all in the steps' times, and the resets', add up to these times."""
    agents, file = counted(tmp_path / "run", ParallelScenario(4, 3, 0.2))
    begin = time.perf_counter()
    agents.reset()
    steps = [agents.step(np.zeros(4, int)) for _ in range(40)]
    agents.used(0.5, 4.0)
    agents.close()
    took = time.perf_counter() - begin
    own = range(5, 9)
    acted = np.array([step.counts for step in steps])
    assert 0 < acted.mean() < 1
    for row, block in enumerate(own):
        spans = file.spans(block)
        assert sum(kind == "simulate" for *_, kind in spans) == acted[:, row].sum()
        assert sum(kind == "reset" for *_, kind in spans) == sum(kind == "reset" for *_, kind in file.spans(5)) > 1
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
        waited = file.seconds(block, "wait:inference")
        lasted = sum(end - at for at, end, _ in spans)
        assert waited + lasted < took
        assert file.cpu_seconds(block, "simulate")[0] == pytest.approx(1.0)
        assert file.cpu_seconds(block, "wait:inference")[0] == pytest.approx(0.125)
    simulated = {span for block in own for span in file.spans(block) if span[2] == "simulate"}
    reset = {span for span in file.spans(5) if span[2] == "reset"}
    assert len(simulated) == 40
    for counter, spans_of in (("step_s", simulated), ("reset_s", reset)):
        assert sum(file.seconds(block, counter) for block in own) == pytest.approx(
            sum(end - at for at, end, _ in spans_of)
        )
