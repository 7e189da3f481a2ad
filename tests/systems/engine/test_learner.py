from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from harness.contract import Work
from harness.meter import RankMeter
from harness.settings import LearnSettings
from systems.engine.learner import Learner
from systems.engine.rollout import Fixed, FixedRollout
from systems.engine.tables import Table, rollout_columns
from systems.learn.policy import build_policy
from systems.learn.ppo import ppo_loss
from systems.learn.sequences import pack
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

    def synchronize_ranks(self) -> None:
        """Takes no time."""


class Bench:
    """A learner with all that it needs, on a rollout of random experience of which `taken` steps are there."""

    def __init__(self, folder: Path, num_steps: int, taken: int) -> None:
        folder.mkdir()
        self.policy = build_policy("small", SPACE, 4, seed=0)
        self.rollout = FixedRollout(NUM_ENVS, num_steps)
        num_slots = Fixed().num_slots(NUM_ENVS, num_steps)
        self.table = Table(rollout_columns(SPACE, NUM_ENVS, num_slots, self.policy.state_size))
        for column in self.table.columns:  # what has not been collected may be anything
            self.table[column.name][...] = np.nan if column.dtype == "<f4" else 77 if column.dtype == "<i8" else 1
        self._play(taken)
        self.device, self.meter = Counting(), RankMeter(folder, 0, NUM_ENVS)
        self.learner = Learner(
            self.policy,
            SETTINGS,
            self.device,
            self.meter,
            lambda _: None,
            torch.Generator().manual_seed(3),
        )

    def _play(self, taken: int) -> None:
        """Random observations and rewards, actions of the policy, some ends of episodes; step t is always the same."""
        generator, acting = torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)
        table, envs = self.table, self.rollout.envs
        state = torch.randn(NUM_ENVS, self.policy.state_size, generator=generator).tanh()
        table["start_state"][:] = state
        previous = torch.tensor([-1, 0, 1, 2])
        for _ in range(taken):
            slots = self.rollout.slots(envs)
            obs = torch.randn(NUM_ENVS, 3, generator=generator)
            actions, log_probs, values, state = self.policy.act({"where": obs}, previous, state, acting)
            ended = torch.rand(2, NUM_ENVS, generator=generator) < 0.2
            step = {
                "obs/where": obs,
                "prev_action": previous,
                "action": actions,
                "log_prob": log_probs,
                "value": values,
                "reward": torch.randn(NUM_ENVS, generator=generator),
                "terminated": ended[0],
                "truncated": ended[1] & ~ended[0],
                "bootstrap": torch.randn(NUM_ENVS, generator=generator),
            }
            for name, row in step.items():
                table[name][slots] = row
            table["version"][slots] = 0
            previous = torch.where(ended.any(0), -1, actions)
            self.rollout.advance(envs)

    def learn(self) -> dict[str, float]:
        """One learning phase, the only one."""
        stats = self.learner.learn(self.table, self.rollout)
        self.meter.close()
        return stats

    def weights(self) -> list[bytes]:
        """To the bit."""
        return [parameter.detach().numpy().tobytes() for parameter in self.policy.parameters()]


def test_cut_rollout_is_a_short_one(tmp_path: Path) -> None:
    """Learning on t steps of a rollout of T equals, to the bit, learning on them as a rollout of t."""
    cut, short = Bench(tmp_path / "cut", NUM_STEPS, NUM_TAKEN), Bench(tmp_path / "short", NUM_TAKEN, NUM_TAKEN)
    assert not cut.rollout.is_full
    assert short.rollout.is_full
    assert cut.learn() == short.learn()
    assert cut.weights() == short.weights()
    assert all(np.isfinite(np.frombuffer(weight, np.float32)).all() for weight in cut.weights())


@pytest.mark.parametrize("taken", [NUM_TAKEN, NUM_STEPS])
def test_first_pass_is_on_policy(tmp_path: Path, taken: int) -> None:
    """The learner's batch gives, in whole sequences, the probabilities with which the actor chose step by step."""
    bench = Bench(tmp_path / "bench", NUM_STEPS, taken)
    batch = bench.learner._batch(bench.table, bench.rollout)
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
    bench.table["version"][:NUM_ENVS] = 4  # the first step of each environment; the others were chosen at 0
    bench.learn()
    meter = bench.meter._block
    assert meter.get("lag_sum") == NUM_ENVS * 3 + NUM_ENVS * (NUM_TAKEN - 1) * 7
    assert meter.get("lag_max") == 7
