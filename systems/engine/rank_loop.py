"""One rank of a system: joins the five choices with the processes and tensors that they work on.

    environment workers --(replies through one pipe, data in the table)--> collect --> rollout --> learn
          ^------------- (commands through a pipe each, actions in the table) ---┘         |   average

This process alone writes actions and weights. It blocks in three places: on workers (`pool.py`), on the device, and
on the other ranks (`group.py`); each says there what frees it. Whatever is raised ends the run: `close` ends the
workers, and the keeper of the run ends the other ranks. SIGTERM asks all ranks to stop after the iteration that is
under way.
"""

from __future__ import annotations

import signal
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from harness.budget import Progress
from harness.contract import Context
from systems.engine.actor import Actor
from systems.engine.group import Group
from systems.engine.learner import Learner
from systems.engine.pool import WorkerPool
from systems.engine.tables import Table, rollout_columns
from systems.learn.policy import build_policy

if TYPE_CHECKING:
    from systems.engine.spec import EngineSystem

EPISODE_METRICS = ("return", "length", "success", "spl")
POLICY_FILE = "policy.pt"
"""The weights at the end of the run, as `torch.save` writes a state dict."""
NUM_RECENT_EPISODES = 100
"""Metrics are means over the last episodes of all ranks together, once there are so many."""


class RankLoop:
    """The parts of one rank, and the three acts that an overlap puts in order: `collect`, `learn`, `end_iteration`."""

    def __init__(self, system: EngineSystem, context: Context) -> None:
        scenario, place = context.scenario, context.place
        torch.set_num_threads(context.device.num_threads)
        if context.device.torch_name != "cpu":
            torch.cuda.set_device(context.device.torch_name)
        actor_seed, learner_seed = np.random.SeedSequence([context.seed, place.rank]).generate_state(2).tolist()
        self._context = context
        self._settings = scenario.learn
        self._progress = Progress()
        self._stop_requested = False
        signal.signal(signal.SIGTERM, self._request_stop)
        policy = build_policy(scenario.policy, scenario.observation_space, scenario.num_actions, context.seed)
        policy.to(context.device.torch_name)
        self._policy = policy
        num_steps = system.rollout.steps(scenario.rollout_steps)
        self._table = Table(
            rollout_columns(
                scenario.observation_space,
                scenario.num_envs,
                system.rollout.num_slots(scenario.num_envs, num_steps),
                policy.state_size,
            )
        )
        self._rollout = system.rollout.open(scenario.num_envs, num_steps)
        self._pool = WorkerPool(context, self._table, map(context.env_seed, range(scenario.num_envs)))
        try:
            self._group = Group(place)
            self._group.broadcast(policy.parameters())
            self._monitor = system.preempt.open(self._group, num_steps)
            self._collector = system.collect
            device, meter = context.device, context.meter
            generator = torch.Generator(device.torch_name).manual_seed(actor_seed)
            self._actor = Actor(policy, self._table, device, generator, scenario.num_envs)
            average = system.average.open(self._group, meter)
            shuffle = torch.Generator().manual_seed(learner_seed)
            self._learner = Learner(policy, scenario.learn, device, meter, average, shuffle)
            self._episodes: deque[tuple[float, ...]] = deque(maxlen=-(-NUM_RECENT_EPISODES // place.num_ranks))
            self._statistics: dict[str, float] = {}
            self._pool.begin(self._rollout.slots(self._rollout.envs))
            with meter.span("wait:straggler"):
                self._group.sum(np.zeros(1))  # iteration 0 begins when the slowest rank is ready
            meter.begin()
        except BaseException:
            self.abort()
            raise

    def _request_stop(self, *_: object) -> None:
        self._stop_requested = True

    def collect(self) -> None:
        """Fills the rollout, or as much of it as the other ranks wait for, then waits for the slowest rank."""
        rollout, meter, actor = self._rollout, self._context.meter, self._actor
        actor.version = self._learner.version
        actor.begin_rollout()
        self._collector.collect(rollout, actor, self._pool, self._monitor, meter)
        self._monitor.finished()
        with meter.span("infer"):
            slots = rollout.slots(rollout.envs)
            actor.value_next(rollout.envs, slots, slots - rollout.num_envs)
        with meter.span("wait:straggler"):
            self._group.sum(np.zeros(1))

    def learn(self) -> None:
        """Learns on the rollout, then makes room for the next one."""
        meter = self._context.meter
        self._statistics = {"collected": float(self._rollout.num_samples)}
        with meter.span("learn"):
            self._statistics |= self._learner.learn(self._table, self._rollout)
        self._note_episodes()
        self._rollout.begin(self._table)

    def _note_episodes(self) -> None:
        """Keeps the metrics of the episodes that ended in this rollout."""
        steps = np.concatenate(self._rollout.runs())
        ended = steps[self._table["terminated"][steps] | self._table["truncated"][steps]]
        self._episodes.extend(map(tuple, self._table["episode"][ended].tolist()))

    def end_iteration(self) -> bool:
        """Agrees with the other ranks on how far the run is; True when it is over."""
        context, meter = self._context, self._context.meter
        with meter.span("communicate"):
            context.device.synchronize_ranks()
            self._progress = self._agree()
        meter.end_iteration(self._statistics)
        return context.budget.is_spent(self._progress)

    def _agree(self) -> Progress:
        """Sums what each rank knows; every rank gets the same. Training statistics become means over the ranks."""
        place, meter = self._context.place, self._context.meter
        episodes = np.array(self._episodes, dtype=np.float64).reshape(-1, len(EPISODE_METRICS))
        known = np.isfinite(episodes)
        own = [
            meter.num_learned,
            meter.elapsed_s if place.rank == 0 else 0.0,
            self._stop_requested,
            *known.sum(0),
            *np.where(known, episodes, 0.0).sum(0),
            *self._statistics.values(),
        ]
        learned, seconds, stop, *rest = self._group.sum(np.array(own, dtype=np.float64)).tolist()
        counts, rest = rest[: len(EPISODE_METRICS)], rest[len(EPISODE_METRICS) :]
        sums, statistics = rest[: len(EPISODE_METRICS)], rest[len(EPISODE_METRICS) :]
        means = {
            name: total / count
            for name, total, count in zip(EPISODE_METRICS, sums, counts, strict=True)
            if count >= NUM_RECENT_EPISODES
        }
        names = list(self._statistics)
        self._statistics = {
            name: value / place.num_ranks for name, value in zip(names, statistics, strict=True)
        } | means
        return Progress(
            iterations=self._progress.iterations + 1,
            env_steps=int(learned),
            seconds=seconds,
            stop_requested=stop > 0,
            metrics=means,
        )

    def close(self) -> None:
        """Ends a run that went well: rank 0 leaves the weights, the workers end, and the rank leaves the group."""
        if self._context.place.rank == 0:
            torch.save(self._policy.state_dict(), Path(self._context.folder) / POLICY_FILE)
        self._pool.close()
        self._context.meter.in_flight(self._rollout.num_samples)
        self._group.close()

    def abort(self) -> None:
        """Ends the workers at once."""
        self._pool.close(grace_s=0)
