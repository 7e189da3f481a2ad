from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from rlbench.harness.contract.settings import LearnSettings, Message, Work
from rlbench.harness.metering.meter import RankMeter
from rlbench.systems.choices.rollout import Split
from rlbench.systems.engine.rank import learner
from rlbench.systems.engine.rank.learner import Learner
from rlbench.systems.engine.rollouts.rollout import Experience, FixedRollout, runs_of
from rlbench.systems.engine.workers.tables import SharedTable, rollout_columns
from rlbench.systems.learn.ppo import ppo_loss
from rlbench.systems.learn.sequences import pack
from rlbench.systems.policies.policy import build_policy
from tests.systems.actions import choices
from tests.systems.engine.counting import SPACE

NUM_ENVS, NUM_STEPS, NUM_TAKEN = 4, 12, 5
SETTINGS = LearnSettings(epochs=3, num_minibatches=2)


class Counting:
    """A device that notes what it was asked to do."""

    torch_name = "cpu"
    num_threads = 1

    def __init__(self) -> None:
        self.done: list[tuple[Work, int]] = []

    @contextmanager
    def busy(self, work: Work, num_items: int) -> Iterator[None]:
        """Notes it."""
        self.done.append((work, num_items))
        yield

    def communicate(self, message: Message, peer: int = 0) -> None:
        """Takes no time."""


class Averaging:
    """Of a rank alone; notes in which order it was asked."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.took_s = 0.0
        """How far its clock goes on in each call."""
        self.now_s = 0.0

    def _note(self, name: str) -> None:
        self.calls.append(name)
        self.now_s += self.took_s

    def begin_update(self) -> None:
        """Notes it."""
        self._note("begin")

    def average_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Notes it."""
        assert all(parameter.grad is not None for parameter in parameters)
        self._note("average")

    def end_update(self) -> None:
        """Notes it."""
        self._note("end")


class Publishing:
    """Notes versions, and whether they were published while weights could change."""

    def __init__(self) -> None:
        self.published: list[int] = []
        self.is_changing = False

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Notes begin and end."""
        assert not self.is_changing
        self.is_changing = True
        yield
        self.is_changing = False

    def publish(self, version: int) -> None:
        """Notes it."""
        assert self.is_changing
        self.published.append(version)

    def refresh(self) -> None:
        """Nobody acts."""


class Bench:
    """A learner with all that it needs, on a rollout of random experience of which `taken` steps are there."""

    def __init__(
        self, folder: Path, num_steps: int, taken: int, *, split: Split = "envs", settings: LearnSettings = SETTINGS
    ) -> None:
        folder.mkdir()
        self.policy = build_policy("small", SPACE, choices(4), seed=0)
        self.rollout = FixedRollout(NUM_ENVS, num_steps)
        num_slots = len(self.rollout.acted)
        self.table = SharedTable(rollout_columns(SPACE, choices(4), NUM_ENVS, num_slots, self.policy.state_size))
        for column in self.table.columns:  # what has not been collected may be anything
            self.table[column.name][...] = np.nan if column.dtype == "<f4" else 77 if column.dtype == "<i8" else 1
        self._play(taken)
        runs, envs = runs_of(self.rollout.take())
        self.experience = Experience(runs=runs, envs=envs)
        self.device, self.meter = Counting(), RankMeter(folder, 0, NUM_ENVS)
        self.averager = Averaging()
        self.following = Publishing()
        self.learner = Learner(
            self.policy,
            settings,
            split,
            self.device,
            self.meter,
            self.averager,  # type: ignore[arg-type]  # a learner needs no more of it
            self.following,
            torch.Generator().manual_seed(3),
            steps_per_env=num_steps,
        )

    def _play(self, taken: int) -> None:
        """Random observations and rewards, actions of the policy, some ends of episodes; step t is always the same."""
        generator, acting = torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)
        table, envs = self.table, self.rollout.envs
        state = torch.randn(NUM_ENVS, self.policy.state_size, generator=generator).tanh()
        previous, starts = torch.tensor([[0], [0], [1], [2]]), torch.tensor([True, False, False, False])
        for _ in range(taken):
            slots = self.rollout.at.copy()
            obs = torch.randn(NUM_ENVS, 3, generator=generator)
            actions, log_probs, values, next_state = self.policy.act({"where": obs}, previous, starts, state, acting)
            ended = torch.rand(2, NUM_ENVS, generator=generator) < 0.2
            step = {
                "obs/where": obs,
                "prev_action": previous,
                "episode_start": starts,
                "state": state,
                "action": actions,
                "log_prob": log_probs,
                "value": values,
                "reward": torch.randn(NUM_ENVS, generator=generator),
                "terminated": ended[0],
                "truncated": ended[1] & ~ended[0],
                "bootstrap": torch.randn(NUM_ENVS, generator=generator),
                "episode": torch.ones(NUM_ENVS, 4),
            }
            for name, row in step.items():
                table[name][slots] = row
            table["version"][slots] = 0
            previous, starts, state = actions, ended.any(0), next_state
            self.rollout.start(envs)
            self.rollout.finish(envs)

    def learn(self) -> dict[str, float]:
        """One learning phase, the only one."""
        stats = self.learner.learn(self.table, self.experience)
        self.meter.close()
        return stats

    def weights(self) -> list[bytes]:
        """To the bit."""
        return [parameter.detach().numpy().tobytes() for parameter in self.policy.parameters()]


def test_cut_rollout_is_a_short_one(tmp_path: Path) -> None:
    """Learning on t steps of a rollout of T equals, to the bit, learning on them as a rollout of t."""
    cut, short = Bench(tmp_path / "cut", NUM_STEPS, NUM_TAKEN), Bench(tmp_path / "short", NUM_TAKEN, NUM_TAKEN)
    assert cut.learn() == short.learn()
    assert cut.weights() == short.weights()
    assert all(np.isfinite(np.frombuffer(weight, np.float32)).all() for weight in cut.weights())


@pytest.mark.parametrize("taken", [NUM_TAKEN, NUM_STEPS])
def test_first_pass_is_on_policy(tmp_path: Path, taken: int) -> None:
    """The learner's batch gives, in whole sequences, the probabilities with which the actor chose step by step."""
    bench = Bench(tmp_path / "bench", NUM_STEPS, taken)
    batch = bench.learner._batch(bench.table, bench.experience)
    assert len(batch.sequences) > NUM_ENVS, "episodes end within the rollout"
    with torch.no_grad():
        _, stats = ppo_loss(bench.policy, batch, pack(batch.sequences), SETTINGS)
    bench.meter.close()
    assert abs(float(stats["approx_kl"])) < 1e-6
    assert float(stats["clip_fraction"]) == 0


def test_counts(tmp_path: Path) -> None:
    """Samples are learned once and reused in further epochs; the device learns all of them in each, in mini-batches."""
    bench = Bench(tmp_path / "bench", NUM_STEPS, NUM_TAKEN)
    samples = NUM_ENVS * NUM_TAKEN
    bench.learn()
    meter = bench.meter._block
    assert (meter.get("learned"), meter.get("reused"), meter.get("discarded")) == (samples, 2 * samples, 0)
    assert bench.learner.version == SETTINGS.epochs * SETTINGS.num_minibatches
    assert bench.device.done[0] == ("prepare", samples)
    assert bench.device.done[1:] == [("learn", samples // 2)] * 6


def test_lag_is_versions_behind(tmp_path: Path) -> None:
    """The lag of a sample is how many optimiser steps the learner is ahead of the weights that chose the action."""
    bench = Bench(tmp_path / "bench", NUM_STEPS, NUM_TAKEN)
    bench.learner.version = 7
    first = [run[0] for run in bench.experience.runs]
    bench.table["version"][first] = 4  # the first step of each environment; the others were chosen at 0
    bench.learn()
    meter = bench.meter._block
    assert meter.get("lag_sum") == NUM_ENVS * 3 + NUM_ENVS * (NUM_TAKEN - 1) * 7
    assert meter.get("lag_max") == 7


def test_stale_samples_are_reused_and_not_learned(tmp_path: Path) -> None:
    """Stale runs are learned from in every epoch, but count as reused, and their lag counts nowhere."""
    bench = Bench(tmp_path / "bench", NUM_STEPS, NUM_TAKEN)
    experience = bench.experience
    bench.table["version"][np.concatenate(experience.runs[:2])] = -50
    bench.experience = Experience(runs=experience.runs, envs=experience.envs, num_stale_runs=2)
    bench.learn()
    meter = bench.meter._block
    fresh, stale = 2 * NUM_TAKEN, 2 * NUM_TAKEN
    assert (meter.get("learned"), meter.get("reused")) == (fresh, stale + 2 * (fresh + stale))
    assert (meter.get("lag_sum"), meter.get("lag_max")) == (0, 0)
    assert bench.device.done[0] == ("prepare", fresh + stale)


def test_minibatches_of_steps_are_equally_long(tmp_path: Path) -> None:
    """Rollouts that are split by steps give mini-batches of as many samples each, whatever the environments have."""
    settings = LearnSettings(epochs=1, num_minibatches=3)
    bench = Bench(tmp_path / "bench", NUM_STEPS, NUM_STEPS, split="steps", settings=settings)
    runs = [run[: 3 * (number + 1)] for number, run in enumerate(bench.experience.runs)]
    bench.experience = Experience(runs=runs, envs=bench.experience.envs)
    bench.learn()
    assert bench.device.done[1:] == [("learn", (3 + 6 + 9 + 12) // 3)] * 3


def test_every_version_is_published_while_weights_may_change(tmp_path: Path) -> None:
    """Around each optimiser step others are kept from the weights, until the version that follows is published."""
    bench = Bench(tmp_path / "bench", NUM_STEPS, NUM_TAKEN)
    bench.learn()
    assert bench.following.published == [1, 2, 3, 4, 5, 6]
    assert not bench.following.is_changing
    assert bench.averager.calls == ["begin", "average", "end"] * 6


def test_learning_time_is_without_communication(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LT, with which preemption plans, leaves out what averaging took (VER section 2.3)."""
    bench = Bench(tmp_path / "bench", NUM_STEPS, NUM_TAKEN)
    bench.averager.took_s = 1000.0
    began = time.perf_counter()
    with monkeypatch.context() as patched:
        real = time.perf_counter
        patched.setattr(time, "perf_counter", lambda: real() + bench.averager.now_s)
        bench.learn()
    assert bench.averager.now_s == 3 * 6 * 1000.0
    assert 0 < bench.learner.learn_s <= time.perf_counter() - began


def test_rows_are_those_of_the_column() -> None:
    """Indexing rows of a column lazily gives what indexing a copy of them would."""
    column, rows = torch.arange(40.0).view(10, 4), torch.tensor([7, 2, 2, 9])
    index = torch.tensor([3, 0, 1])
    assert torch.equal(learner.LazyRows(column, rows).index_select(0, index), column[rows].index_select(0, index))
