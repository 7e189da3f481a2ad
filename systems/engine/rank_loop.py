"""One rank of a system: joins the five choices with the processes and tensors that they work on.

    environment workers --(replies through one pipe, data in the table)--> collect --> rollout --> learn
          ^------------- (commands through a pipe each, actions in the table) ---┘         |   average

One thread does it all, or, where the overlap is concurrent, two: one samples and writes actions, the main one learns
and writes weights (`following.py`) and alone speaks with other ranks. They block on workers (`pool.py`), on the device,
on each other (`trajectories.py`, `overlap.py`), and on other ranks (`average.py`); each says there what frees it.
Whatever is raised ends the rank: `abort` ends the workers, and the keeper of the run the other ranks, unless the
system survives that. With `Central` averaging rank 0 does all of this, and the others are `OwnerOfDevice`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from harness.contract import Place
from harness.devices import sibling
from harness.emulated_gpu import EmulatedGpu
from systems.engine.actor import Actor, close_runs
from systems.engine.actor_side import ActorSide
from systems.engine.background import Background
from systems.engine.continuous import Continuous
from systems.engine.double_buffered import DoubleBuffered
from systems.engine.following import BroadcastWeights, CopiedWeights, SameWeights, weight_columns
from systems.engine.group import Group
from systems.engine.learner import Learner
from systems.engine.one_learner import Central, rendering_rank
from systems.engine.optimal import Optimal
from systems.engine.pool import WorkerPool
from systems.engine.progress import RunProgress
from systems.engine.rollout import Experience, runs_of
from systems.engine.sampler import Sampler
from systems.engine.stale import StaleFill
from systems.engine.tables import Table, rollout_columns
from systems.engine.trajectories import StreamRollout, Trajectories
from systems.engine.worker import error_path
from systems.learn.policy import build_policy

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.contract import Context, Seat
    from systems.engine.rollout import Rollout
    from systems.engine.spec import EngineSystem

POLICY_FILE = "policy.pt"
"""The weights at the end of the run, as `torch.save` writes a state dict."""
ALONE = Place(rank=0, num_ranks=1, local_rank=0)


def run_rank(system: EngineSystem, context: Context) -> None:
    """Trains on this rank until the budget is spent."""
    torch.set_num_threads(context.device.num_threads)
    if context.device.torch_name != "cpu":
        torch.cuda.set_device(context.device.torch_name)
    if isinstance(system.average, Central) and context.place.rank > 0:
        own_device(system, context)
        return
    loop = RankLoop(system, context)
    try:
        system.overlap.run(loop)
    except BaseException:
        loop.abort()
        raise
    loop.close()


def own_device(system: EngineSystem, context: Context) -> None:
    """What a rank does whose environments run in rank 0's workers: it keeps count of the iterations, and waits."""
    group = Group(context.place)
    averager = system.average.open(group, context.meter, torch.nn.Module(), np.random.default_rng())
    progress = RunProgress(context, averager, all_learn=False)
    group.sum(np.zeros(1))
    context.meter.begin()
    while not progress.end_iteration({}):
        pass
    averager.close()


class RankLoop:
    """The parts of one rank, and the acts that an overlap puts in order."""

    def __init__(self, system: EngineSystem, context: Context) -> None:
        self._context = context
        self._system = system
        self._collector = system.collect
        self._experience: Experience | None = None
        self._statistics: dict[str, float] = {}
        scenario, place = context.scenario, context.place
        seats = _seats(system, context)
        self._build_rollout(system, len(seats))
        policy = build_policy(scenario.policy, scenario.observation_space, scenario.num_actions, context.seed)
        self._policy = policy.to(context.device.torch_name)
        self._table = Table(
            rollout_columns(scenario.observation_space, len(seats), len(self._rollout.acted), policy.state_size)
        )
        actor_seed, learner_seed = np.random.SeedSequence([context.seed, place.rank]).generate_state(2).tolist()
        self._build_weights(actor_seed)
        self._pool = self._start_workers(seats, actor_seed)
        try:
            self._join_ranks(learner_seed)
        except BaseException:
            self.abort()
            raise

    def _build_rollout(self, system: EngineSystem, num_envs: int) -> None:
        scenario, choice = self._context.scenario, system.rollout
        num_steps = choice.steps(scenario.rollout_steps)
        self._num_steps = num_steps
        fills = isinstance(system.preempt, Optimal) and system.preempt.fill_stale
        self._stale = StaleFill(choice.target(num_envs, num_steps)) if fills else None
        if isinstance(system.overlap, Continuous):
            assert isinstance(choice, Trajectories), "the spec refuses all else"
            updates = scenario.learn.epochs * scenario.learn.num_minibatches
            self._rollout: Rollout = choice.open_stream(
                num_envs, num_steps, max_lag=system.overlap.max_lag, updates_per_batch=updates
            )
            self.stream.on_room = self.wake
        else:
            self._rollout = choice.open(num_envs, num_steps, ahead=system.overlap.ahead + fills)

    def _build_weights(self, seed: int) -> None:
        """The actors of both threads, and how weights get from one to the other."""
        system, device, scenario = self._system, self._context.device, self._context.scenario
        generator = torch.Generator(device.torch_name).manual_seed(seed)
        self._actor = Actor(self._policy, self._table, device, generator)
        self._critic = self._actor
        self._shared_weights: Table | None = None
        if isinstance(system.collect, ActorSide):
            self._shared_weights = Table(weight_columns(sum(p.numel() for p in self._policy.parameters())))
            self._weights: SameWeights | CopiedWeights | BroadcastWeights = BroadcastWeights(
                self._policy, self._shared_weights
            )
        elif system.overlap.is_concurrent:
            acting = build_policy(scenario.policy, scenario.observation_space, scenario.num_actions, self._context.seed)
            acting.to(device.torch_name)
            self._actor = Actor(acting, self._table, device, generator)
            self._weights = CopiedWeights(self._policy, acting, self._actor)
        else:
            self._weights = SameWeights(self._actor)

    def _start_workers(self, seats: list[Seat], seed: int) -> WorkerPool:
        context, collect = self._context, self._collector
        acting = None
        if self._shared_weights is not None:
            from systems.engine.acting import Acting

            seeds = np.random.SeedSequence(seed).generate_state(len(seats)).tolist()
            acting = Acting(scenario=context.scenario, weights=self._shared_weights, seeds=dict(enumerate(seeds)))
        num_cores = len(seats) if isinstance(context.device, EmulatedGpu) else context.device.num_threads
        priority = None
        if isinstance(collect, DoubleBuffered) and not isinstance(context.device, EmulatedGpu):
            priority = collect.priority
        return WorkerPool(
            context,
            self._table,
            seats,
            envs_per_worker=collect.envs_per_worker(len(seats), num_cores),
            priority=priority,
            acting=acting,
        )

    def _join_ranks(self, learner_seed: int) -> None:
        """All ranks begin together, with equal weights."""
        system, context, meter = self._system, self._context, self._context.meter
        self._group = Group(context.place)
        if not isinstance(system.average, Central):
            self._group.broadcast(self._policy.parameters())
        stream = np.random.default_rng([context.seed, context.place.rank, 0x67])
        self._averager = system.average.open(self._group, meter, self._policy, stream)
        # Ranks that do not wait for each other have no stragglers to cut: each plans for itself.
        watched = self._group if self._averager.is_synchronous else Group(ALONE)
        self._monitor = system.preempt.open(watched, self._rollout, self._num_steps)
        self._progress = RunProgress(context, self._averager, all_learn=not isinstance(system.average, Central))
        self._learner = Learner(
            self._policy,
            context.scenario.learn,
            system.rollout.split,
            context.device,
            meter,
            self._averager,
            self._weights,
            torch.Generator().manual_seed(learner_seed),
        )
        with self._weights.changing():
            self._weights.publish(0)
        self._weights.refresh()
        refreshes = isinstance(system.overlap, Continuous)
        self._sampler = Sampler(
            self._rollout,
            self._actor,
            self._pool,
            self._monitor,
            meter.open_lane() if system.overlap.is_concurrent else meter,
            self._weights.refresh if refreshes else lambda: None,
            plays=self._shared_weights is not None,
        )
        self._pool.begin(self._rollout.at)
        with meter.span("wait:straggler"):
            self._group.sum(np.zeros(1))  # iteration 0 begins when the slowest rank is ready
        meter.begin()

    @property
    def stream(self) -> StreamRollout:
        """The rollout of a continuous overlap."""
        assert isinstance(self._rollout, StreamRollout)
        return self._rollout

    def plan(self) -> None:
        """Agrees with the other ranks on how much to collect."""
        with self._context.meter.span("communicate"):
            self._monitor.begin(self._sampler.step_times_s, self._learner.learn_s)

    def collect(self) -> None:
        """Fills the rollout, or as much of it as the other ranks wait for."""
        self._sampler.begin()
        self._collector.collect(self._sampler)
        self._monitor.finished(self._rollout)

    def take(self) -> Experience:
        """What was collected; the next rollout begins."""
        steps = self._rollout.take()
        if self._stale is None:
            runs, envs = runs_of(steps)
            experience = Experience(runs=runs, envs=envs)
        else:
            experience, freed = self._stale.fill(steps)
            self._rollout.release(freed)
        return self._hold(experience)

    def take_batch(self, max_lag: int) -> Experience | None:
        """The next batch of the stream, when it is there; None when the stream was stopped."""
        meter = self._context.meter
        with meter.span("wait:rollout"):
            experience, num_discarded = self.stream.take_batch(self._table["version"], self._learner.version - max_lag)
        if num_discarded:
            meter.discarded(num_discarded)
        return experience if experience is None else self._hold(experience)

    def _hold(self, experience: Experience) -> Experience:
        """Makes the experience complete; it counts as in flight until it is learned."""
        with self._context.meter.span("infer"):
            close_runs(experience.fresh_runs, self._rollout.follow, self._rollout.acted, self._critic)
        self._experience = experience
        return experience

    def take_newest_weights(self) -> None:
        """The sampler acts with what was learned so far."""
        self._weights.refresh()

    def wait_for_ranks(self) -> None:
        """Waits for the slowest rank, where ranks do."""
        self._averager.wait_for_ranks()

    def learn(self, experience: Experience) -> None:
        """Learns on the experience, and gives its slots back."""
        with self._context.meter.span("learn"):
            self._statistics = {"collected": float(experience.num_samples - experience.num_stale)}
            self._statistics |= self._learner.learn(self._table, experience)
        steps = np.concatenate(experience.fresh_runs)
        ended = steps[self._table["terminated"][steps] | self._table["truncated"][steps]]
        self._progress.note_episodes(self._table["episode"][ended])
        self._experience = None
        if self._stale is None:
            self._rollout.release(steps.tolist())

    def end_iteration(self) -> bool:
        """Agrees with the other ranks on how far the run is; True when it is over."""
        return self._progress.end_iteration({**self._statistics, **self._monitor.statistics()})

    def in_background(self, work: Callable[[], None]) -> Background:
        """Runs something in the thread that samples."""
        return Background("sampler", work, self._free_main_thread, error_path(self._folder, self._label))

    def _free_main_thread(self) -> None:
        if isinstance(self._rollout, StreamRollout):
            self._rollout.stop()

    def wait_for(self, collecting: Background) -> None:
        """Waits until the thread that samples has ended; raises what it has raised."""
        with self._context.meter.span("wait:rollout"):
            collecting.join()

    def wake(self) -> None:
        """Makes the thread that samples look again."""
        self._pool.wake()

    @property
    def _folder(self) -> Path:
        return Path(self._context.folder)

    @property
    def _label(self) -> str:
        return f"rank{self._context.place.rank}"

    def close(self) -> None:
        """Ends a run that went well: one rank leaves the weights, the workers end, and the rank leaves the group."""
        if self._shared_weights is not None:
            self._shared_weights["stop"][0] = True
        self._sampler.drain()
        self._pool.close()
        held = 0 if self._experience is None else self._experience.num_samples - self._experience.num_stale
        self._context.meter.in_flight(self._rollout.num_samples + held)
        if self._averager.final_policy():
            torch.save(self._policy.state_dict(), self._folder / POLICY_FILE)
        self._averager.close()

    def abort(self) -> None:
        """Ends the workers at once."""
        self._pool.close(grace_s=0)


def _seats(system: EngineSystem, context: Context) -> list[Seat]:
    """The environments that this rank steps: its own, or with `Central` averaging those of all ranks."""
    if not isinstance(system.average, Central):
        return [context.seat(index, context.env_seed(index)) for index in range(context.scenario.num_envs)]
    num_ranks = context.place.num_ranks
    seats: list[Seat] = []
    for rank in range(num_ranks):
        of_rank = replace(context, place=Place(rank=rank, num_ranks=num_ranks, local_rank=rank))
        for index in range(context.scenario.num_envs):
            renders = rendering_rank(len(seats), rank, num_ranks, system.average.placement)
            seat = of_rank.seat(index, of_rank.env_seed(index))
            seats.append(replace(seat, device=sibling(context.device, renders)))
    return seats
