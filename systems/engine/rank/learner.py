"""Learning of one rank: PPO on experience in the rank's table.

The thread that learns calls it, in the rank's process. It blocks on the device, and in `averager` on the other ranks.
"""

from __future__ import annotations

import time
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, cast

import numpy as np
import torch

from rlbench.harness.metering.fates import LEARNED
from rlbench.harness.metering.meter import LagSummary
from rlbench.systems.engine.workers.tables import episode_lengths
from rlbench.systems.learn.batch import Batch, make_batch
from rlbench.systems.learn.finite import Broken, NotFinite, Suspect, gather, most_likely
from rlbench.systems.learn.optimizers import make_optimizer
from rlbench.systems.learn.ppo import update
from rlbench.systems.learn.schedules import EntropyCoefficient, decayed
from rlbench.systems.learn.sequences import Packed, pack, singly, split_by_env, split_by_steps, split_samples
from rlbench.systems.policies.normalizing import RewardScale

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager

    from rlbench.harness.contract.device import Device
    from rlbench.harness.contract.settings import LearnSettings
    from rlbench.harness.metering.meter import RankMeter
    from rlbench.systems.choices.rollout import Split
    from rlbench.systems.engine.averaging.averager import Averager
    from rlbench.systems.engine.rollouts.rollout import Experience
    from rlbench.systems.engine.workers.acting_weights import Followed
    from rlbench.systems.engine.workers.tables import SharedTable
    from rlbench.systems.learn.ppo import SumMoments
    from rlbench.systems.policies.policy import Policy

MOST_COPIED = 4
"""A GPU is given a whole column if it has at most so many rows for each that is learned from, and picks them itself:
on the CPU, gathering images takes several times as long as copying them."""
LET_SPEAK_S = 10.0
"""Seconds that a rank waits which is not the likely cause: the first error of all ranks is the run's reason."""


class Learner:
    """Owns the optimiser; `version` counts its steps."""

    def __init__(
        self,
        policy: Policy,
        settings: LearnSettings,
        split: Split,
        device: Device,
        meter: RankMeter,
        averager: Averager,
        weights: Followed,
        generator: torch.Generator,
        *,
        steps_per_env: float,
        first_env: int = 0,
        agents: int = 1,
        others_learn: bool = False,
    ) -> None:
        """Begins with version 0.

        Args:
            policy: the one that learns.
            settings: how it learns.
            split: how mini-batches are made.
            device: where the policy is.
            meter: the rank's.
            averager: agrees with the other ranks.
            weights: hands what was learned to those that act.
            generator: shuffles samples into mini-batches.
            steps_per_env: T, the samples of a whole rollout over the environments that there are.
            first_env: the number, over all ranks, of environment 0 of the experience.
            agents: A, of each environment, where experience has a row for each agent.
            others_learn: whether gradients or weights come from other ranks too.
        """
        self.version = 0
        self.learn_s = 0.0
        """Seconds of the last learning phase, without communication; 0 before the first."""
        self._policy, self._settings, self._split = policy, settings, split
        self._device, self._meter = device, meter
        self._averager, self._weights = averager, weights
        self._generator = generator
        self._steps_per_env = steps_per_env
        self._first_env, self._agents, self._others_learn = first_env, agents, others_learn
        self._num_phases = 0
        self._learns_from_samples = policy.core is None and settings.correct != "vtrace"
        self._reward_scale = RewardScale(settings.discount) if settings.normalize_rewards else None
        self._optimizer = make_optimizer(policy.parameters(), settings)
        self._entropy = EntropyCoefficient(settings, device.torch_name)
        self._learning_rate = 0.0 if meter.still else settings.learning_rate
        self.spend(0.0)
        self._communication_s, self._updates_left = 0.0, 0
        self._changing: AbstractContextManager[None] = nullcontext()

    def spend(self, spent: float) -> None:
        """Has what follows schedules go on to where a part of the budget is spent, 0 to 1."""
        settings = self._settings
        self._optimizer.learning_rate = self._learning_rate * decayed(settings.schedule, spent, settings)
        self._entropy.spend(spent, self._optimizer.learning_rate)

    def learn(self, table: SharedTable, experience: Experience) -> dict[str, float]:
        """Learns all epochs on the experience; returns the means of losses and other statistics, by name.

        Raises NotFinite when a loss, a gradient norm or a weight is infinite or NaN afterwards.
        """
        began, self._communication_s = time.perf_counter(), 0.0
        settings, num_stale = self._settings, experience.num_stale
        fresh = np.concatenate(experience.fresh_runs)
        behind = self.version - table["version"][fresh]
        with self._device.busy("prepare", experience.num_samples):
            batch = self._batch(table, experience)
        stats = []
        self._updates_left = settings.epochs * settings.num_minibatches
        for epoch in range(settings.epochs):
            for packed in self._minibatches(batch):
                with self._device.busy("learn", len(packed.index)):
                    with self._communicating(), self._weights.changing():
                        self._averager.begin_update()
                    stats.append(self._update(batch, packed))
                    self._after_step()
            if epoch == 0:
                self._meter.learned(len(fresh), LagSummary(total=int(behind.sum()), largest=int(behind.max())))
                self._meter.settle(LEARNED, experience.fresh_envs, episode_lengths(table, fresh))
            self._meter.reused(num_stale if epoch == 0 else experience.num_samples)
        self.learn_s = time.perf_counter() - began - self._communication_s
        means, broken = gather(stats, self._policy.parameters())
        if broken is not None:
            raise self._not_finite(broken, len(stats), most_likely(batch, experience.runs, experience.envs))
        self._num_phases += 1
        if settings.schedule != "constant":
            means["learning_rate"] = self._optimizer.learning_rate
        if settings.entropy_schedule != "constant":
            means["entropy_coef"] = float(self._entropy.value)
        return means

    def _not_finite(self, broken: Broken, num_updates: int, suspect: Suspect) -> NotFinite:
        """The error to raise. A rank without a clear suspect waits, so that a rank that has one raises first."""
        where = f"iteration {self._num_phases}, update {broken.update + 1} of {num_updates}"
        what = f"{broken.what} {'are' if broken.what == 'weights' else 'is'} {broken.value}, it must be finite"
        env, reward = self._named(self._first_env + suspect.env), f"{suspect.reward:.4g}"
        if suspect.is_clear:
            return NotFinite(f"{where}: {what}; most likely for {env}, which gave the reward {reward}")
        why = f"the largest reward of the batch, {reward} of {env}, does not explain it"
        if self._others_learn:
            time.sleep(LET_SPEAK_S)
            why = f"{why}; what another rank sent may"
        return NotFinite(f"{where}: {what}; {why}")

    def _named(self, row: int) -> str:
        """A row of the run in words: agents are numbered from 0 in the order of `possible_agents`."""
        env, agent = divmod(row, self._agents)
        return f"environment {env}" if self._agents == 1 else f"environment {env}, agent number {agent}"

    def _minibatches(self, batch: Batch) -> Iterator[Packed]:
        num, generator = self._settings.num_minibatches, self._generator
        if self._learns_from_samples:
            device = batch.states.device
            for index in split_samples(len(batch.actions), num, generator):
                yield singly(index.to(device), batch.states)
            return
        if self._split == "envs":
            groups = split_by_env(batch.sequences, num, generator)
        else:
            groups = split_by_steps(batch.sequences, num, generator, batch.states)
        yield from map(pack, groups)

    def _update(self, batch: Batch, packed: Packed) -> dict[str, torch.Tensor]:
        sum_moments = self._sum_moments if self._others_learn else None
        rest = self._settings, self._before_step, sum_moments, self._entropy
        return update(self._policy, self._optimizer, batch, packed, *rest)

    @property
    def _sum(self) -> SumMoments | None:
        """Adds up over the ranks that learn together; None where this one learns alone."""
        return self._averager.sum_moments if self._others_learn else None

    def _sum_moments(self, moments: torch.Tensor) -> torch.Tensor:
        """Between the forward and the backward pass."""
        with self._communicating():
            return self._averager.sum_moments(moments)

    def _before_step(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Between the backward pass and the optimiser's step: from here on weights change."""
        with self._communicating():
            self._averager.average_gradients(parameters)
        self._changing = self._weights.changing()
        self._changing.__enter__()  # left in `_after_step`; if the step raises, the rank ends

    def _after_step(self) -> None:
        self._updates_left -= 1
        with self._communicating():
            if self._updates_left == 0 and self._policy.normalizer is not None:
                self._policy.normalizer.apply_observed(self._sum)
            self._averager.end_update()
        self.version += 1
        self._meter.updated()
        self._weights.publish(self.version)
        self._changing.__exit__(None, None, None)

    @contextmanager
    def _communicating(self) -> Iterator[None]:
        """Keeps the time inside out of the learning time that preemption plans with (VER section 2.3)."""
        began = time.perf_counter()
        yield
        self._communication_s += time.perf_counter() - began

    def _batch(self, table: SharedTable, experience: Experience) -> Batch:
        """The experience's rows on the device; sample i is row i of the runs laid end to end."""
        slots = torch.from_numpy(np.concatenate(experience.runs))
        ends = np.cumsum([len(run) for run in experience.runs])
        name = self._device.torch_name
        there = slots.to(name)

        def column(key: str) -> torch.Tensor:
            entries = torch.from_numpy(table[key])
            if name != "cpu" and len(entries) <= MOST_COPIED * len(slots):
                return entries.to(name, non_blocking=True)[there]
            return entries[slots].to(name)

        def observations(key: str) -> torch.Tensor:
            if name != "cpu":
                return column(key)
            return cast(
                "torch.Tensor", LazyRows(torch.from_numpy(table[key]), slots)
            )  # indexing is all that is done to it

        keys = [column.name[4:] for column in table.columns if column.name.startswith("obs/")]
        runs = np.split(np.arange(ends[-1]), ends[:-1])
        rewards, terminated, truncated = column("reward"), column("terminated"), column("truncated")
        if self._policy.normalizer is not None:
            fresh = torch.from_numpy(np.concatenate(experience.fresh_runs))
            self._policy.observe({key: torch.from_numpy(table[f"obs/{key}"])[fresh].to(name) for key in keys})
        if self._reward_scale is not None:
            of_fresh, envs = runs[experience.num_stale_runs :], experience.envs[experience.num_stale_runs :]
            with self._communicating():
                ended, starts = terminated | truncated, column("episode_start")
                rewards = self._reward_scale.scale(rewards, ended, of_fresh, envs, self._sum, starts)
        return make_batch(
            runs=runs,
            envs=experience.envs,
            states=column("state"),
            obs={key: observations(f"obs/{key}") for key in keys},
            actions=column("action"),
            prev_actions=column("prev_action"),
            starts=column("episode_start"),
            log_probs=column("log_prob"),
            values=column("value"),
            rewards=rewards,
            terminated=terminated,
            truncated=truncated,
            bootstrap=column("bootstrap"),
            steps_per_env=self._steps_per_env * self._agents,
            agents=self._agents,
            settings=self._settings,
            has_sequences=not self._learns_from_samples,
        )


class LazyRows:
    """Rows of a column, copied only when a mini-batch asks for them."""

    def __init__(self, column: torch.Tensor, rows: torch.Tensor) -> None:
        self._column, self._rows = column, rows

    def index_select(self, dim: int, index: torch.Tensor) -> torch.Tensor:
        """The rows at `index` [M]; called as torch's method is, with `dim` 0."""
        return self._column.index_select(dim, self._rows[index])
