"""One rank of a system: joins the five choices with the processes and tensors that they work on.

    environment workers --(replies through one pipe, data in the table)--> collect --> rollout --> learn
          ^------------- (commands through a pipe each, actions in the table) ---┘         |   average

One thread does it all. Where the overlap is concurrent there are two: one samples and writes actions; the main thread
learns, writes weights (`workers/acting_weights.py`) and alone waits for other ranks. They block on workers
(`workers/pool.py`), on the device, on each other (`rollouts/trajectories.py`, `systems/choices/overlap.py`) and on
other ranks (`averaging/averager.py`); those files say what frees them. Any exception ends the rank: `abort` ends the
workers, and the keeper ends the other ranks unless the system survives a lost rank. With `Central` averaging rank 0
does all of this, and the other ranks run `own_device`.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from rlbench.harness.contract.agents import agents_per_env, num_rows
from rlbench.harness.contract.device import Place
from rlbench.harness.contract.envs import envs_per_batch, envs_per_recv
from rlbench.harness.metering.fates import DISCARDED
from rlbench.systems.choices.average import Central
from rlbench.systems.choices.collect import Lockstep
from rlbench.systems.choices.overlap import Continuous
from rlbench.systems.engine.averaging.opening import open_averager
from rlbench.systems.engine.rank.agreed_progress import RunProgress
from rlbench.systems.engine.rank.assembly import (
    actor_seed_of,
    connect_servers,
    make_policy,
    make_rollout,
    open_following,
    open_stale_fill,
    seats_of,
    send_weights,
    start_server,
    start_workers,
)
from rlbench.systems.engine.rank.means import REAL, Means
from rlbench.systems.engine.rank.placing import machines_of, stay_on_a_core
from rlbench.systems.engine.rollouts.monitors import open_monitor
from rlbench.systems.engine.rollouts.rollout import Experience, FixedRollout, runs_of
from rlbench.systems.engine.rollouts.sampler import Sampler
from rlbench.systems.engine.rollouts.trajectories import StreamRollout
from rlbench.systems.engine.wire.group import Group
from rlbench.systems.engine.workers import fork_server
from rlbench.systems.engine.workers.inference import Actor, close_runs
from rlbench.systems.engine.workers.tables import SharedTable, episode_lengths, rollout_columns
from rlbench.systems.engine.workers.worker import error_path
from rlbench.systems.learn.finite import check_weights
from rlbench.systems.policies.graphed import lock_for_gpu

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from rlbench.harness.contract.system import Context
    from rlbench.harness.processes.told import StopRequests
    from rlbench.systems.choices.choices import Choices
    from rlbench.systems.engine.workers.background import Background

POLICY_FILE = "policy.pt"
"""The weights at the end of the run, as `torch.save` writes a state dict."""
RANK_POLICY_FILE = "policy-rank{}.pt"
"""The rank that leaves `POLICY_FILE` leaves here the weights it had before ranks agreed, if they were not in step."""
ALONE = Place(rank=0, num_ranks=1, local_rank=0)


def run_rank(system: Choices, context: Context, means: Means = REAL) -> None:
    """Trains on this rank until the budget is spent; tests replace `means`."""
    if not isinstance(system.average, Central) or context.place.rank == 0:
        fork_server.begin(context.scenario.preload)
    requests = means.requests()
    requests.listen()
    if context.device.torch_name != "cpu":
        torch.cuda.set_device(context.device.torch_name)
    stay_on_a_core(context.place, context.device, is_concurrent=system.overlap.is_concurrent)
    if isinstance(system.average, Central) and context.place.rank > 0:
        own_device(system, context, requests, means)
        return
    loop = RankLoop(system, context, requests, means)
    try:
        system.overlap.run(loop)
        loop.stop_actors()
    except BaseException:
        loop.abort()
        raise
    loop.close()


def own_device(system: Choices, context: Context, requests: StopRequests, means: Means) -> None:
    """Runs a rank that rank 0 acts and learns for: it counts the iterations, and waits.

    The first rank of every machine but rank 0's also serves the environments of its machine meanwhile.
    """
    rank = context.place.rank
    group = Group(context.place, context.device, means.links)
    machine = next(ranks for ranks in machines_of(group, context.place) if rank in ranks)
    server = start_server(system, context, means, machine) if rank == machine.start else None
    if server is not None:
        server.address(rank).publish(group)
    averager = open_averager(system.average, group, context.meter, torch.nn.Module(), np.random.default_rng())
    progress = RunProgress(context, averager, requests, all_learn=False)
    group.sum(np.zeros(1))
    context.meter.begin()
    while not progress.end_iteration({}):
        if server is not None:
            server.check()
    if server is not None:
        server.join()
    averager.close()


class RankLoop:
    """The parts of one rank, and the operations that an overlap puts in order."""

    def __init__(self, system: Choices, context: Context, requests: StopRequests, means: Means = REAL) -> None:
        self._context, self._system, self._requests, self._means = context, system, requests, means
        # The threads of one operation wait for each other, for long if one finds no core. So inference leaves half of
        # the cores to workers that step meanwhile, and learning leaves half to a thread that samples meanwhile.
        half = max(1, context.device.num_threads // 2)
        self._threads_collecting = context.device.num_threads if isinstance(system.collect, Lockstep) else half
        self._threads_learning = half if system.overlap.is_concurrent else context.device.num_threads
        self._experience: Experience | None = None
        self._is_ahead = False
        self._is_out_of_time = self._lacks_batch = False
        self._deadline = means.deadline(None, self._out_of_time)
        self._statistics: dict[str, float] = {}
        scenario, place = context.scenario, context.place
        self._group = Group(place, context.device, means.links)
        central = isinstance(system.average, Central)
        here, *elsewhere = machines_of(self._group, place) if central else (range(place.rank, place.rank + 1),)
        num_envs = num_rows(scenario) * (place.num_ranks if central else 1)
        self._num_steps = system.rollout.steps(scenario.rollout_steps)
        self._steps_per_env = system.rollout.target(num_envs, self._num_steps) / num_envs
        self._is_off_policy = isinstance(system.overlap, Continuous) and scenario.learn.correct == "vtrace"
        self._stale = open_stale_fill(system, context, num_envs)
        self._rollout = make_rollout(system, context, num_envs)
        if isinstance(self._rollout, StreamRollout):
            self._rollout.on_room, self._rollout.changed = self.wake, means.condition()
            self._rollout.on_discard = self._discard
        self._policy = make_policy(context)
        space, actions, num_slots = scenario.observation_space, self._policy.actions, len(self._rollout.acted)
        self._table = SharedTable(rollout_columns(space, actions, num_envs, num_slots, self._policy.state_size))
        if context.device.torch_name != "cpu":
            lock_for_gpu(self._table.memory)
        actor_seed, learner_seed = actor_seed_of(context)
        generator = torch.Generator(context.device.torch_name).manual_seed(actor_seed)
        self._critic = Actor(self._policy, self._table, context.device, generator)
        self._following = open_following(system, context, self._critic, generator)
        shared = self._following.shared
        seats = seats_of(system, context, here)
        self._pool = start_workers(system, context, means, self._table, seats, shared, actor_seed)
        try:
            servers = connect_servers(
                context, self._group, self._table, elsewhere, self._pool, acted=shared is not None
            )
            self._sender = send_weights(context, servers, self._following, self._free_main_thread)
            self._join_ranks(learner_seed)
        except BaseException:
            self.abort()
            raise

    def _join_ranks(self, learner_seed: int) -> None:
        """Makes the parts that need the other ranks; all ranks begin together, with equal weights."""
        system, context, meter = self._system, self._context, self._context.meter
        if not isinstance(system.average, Central):
            self._group.broadcast(self._policy.parameters())
        stream = np.random.default_rng([context.seed, context.place.rank, 0x67])
        self._averager = open_averager(system.average, self._group, meter, self._policy, stream)
        # Ranks that do not wait for each other have no stragglers to cut: each plans for itself.
        watched = self._group if self._averager.is_synchronous else Group(ALONE, context.device)
        self._monitor = open_monitor(
            system.preempt, watched, self._rollout, self._num_steps, hides_learning=system.overlap.is_concurrent
        )
        all_learn = not isinstance(system.average, Central)
        self._progress = RunProgress(context, self._averager, self._requests, all_learn=all_learn)
        first_env = 0 if isinstance(system.average, Central) else context.place.rank * num_rows(context.scenario)
        self._learner = self._means.learner(
            self._policy,
            context.scenario.learn,
            system.rollout.split,
            context.device,
            meter,
            self._averager,
            self._following.weights,
            torch.Generator().manual_seed(learner_seed),
            steps_per_env=self._steps_per_env,
            first_env=first_env,
            agents=agents_per_env(context.scenario),
            others_learn=context.place.num_ranks > 1 and not isinstance(system.average, Central),
        )
        with self._following.weights.changing():
            self._following.weights.publish(0)
        refreshes = isinstance(system.overlap, Continuous)
        of_batch = envs_per_batch(context.scenario)  # which may have to be reset within a rollout
        self._sampler = Sampler(
            self._rollout,
            self._following.actor,
            self._pool,
            self._monitor,
            meter.open_lane() if system.overlap.is_concurrent else meter,
            self._following.weights.refresh if refreshes else lambda: None,
            plays=self._following.shared is not None,
            of_recv=envs_per_recv(context.scenario),
        )
        meter.open_fates(
            self._rollout.num_envs,
            first_env=first_env,
            steps_due=self._num_steps if isinstance(self._rollout, FixedRollout) and of_batch == 1 else 0,
        )
        self._pool.begin(self._rollout.at)
        with meter.span("wait:straggler"):
            self._group.sum(np.zeros(1))  # iteration 0 begins when the slowest rank is ready
        meter.begin()
        self._deadline = self._means.deadline(context.budget.breaks_off_s, self._out_of_time)

    @property
    def has_deadline(self) -> bool:
        """Whether rollouts are broken off when there is no time left."""
        return self._context.budget.breaks_off_s is not None

    def _out_of_time(self) -> None:
        """Ends the collecting that is under way; called in the deadline's thread."""
        self._is_out_of_time = True
        if isinstance(self._rollout, StreamRollout):
            self._rollout.stop()
        else:
            self._sampler.is_out_of_time = True
        self._pool.wake()

    @property
    def _stream(self) -> StreamRollout:
        """The rollout of a continuous overlap."""
        assert isinstance(self._rollout, StreamRollout)
        return self._rollout

    def stop_stream(self) -> None:
        """Stops the stream and wakes the thread that samples, which then ends."""
        self._stream.stop()
        self.wake()

    def plan(self) -> None:
        """Agrees with the other ranks on how much to collect."""
        with self._context.meter.span("communicate"):
            self._monitor.begin(self._sampler.step_times_s, self._learner.learn_s)

    def collect(self) -> None:
        """Fills the rollout, or stops early because the other ranks wait for it or the time is up."""
        torch.set_num_threads(self._threads_collecting)
        self._sampler.begin()
        with self._sampler.timeline.span("schedule"):
            self._system.collect.collect(self._sampler)
        self._monitor.finished(self._rollout)

    def collect_ahead(self) -> None:
        """Collects; the time from then until the next call counts as the sampler's wait for the learner."""
        waiting = self._sampler.timeline.span("wait:learner")
        if self._is_ahead:
            waiting.__exit__(None, None, None)
        self.collect()
        waiting.__enter__()
        self._is_ahead = True

    def take(self) -> Experience:
        """Returns what was collected and begins the next rollout; nothing if it was broken off: it stays in flight."""
        if self._sampler.broke_off:
            return Experience(runs=[], envs=[])
        with self._context.meter.span("schedule"):
            is_whole, steps = self._rollout.is_full, self._rollout.take()
            if self._stale is None:
                runs, envs = runs_of(steps)
                experience = Experience(runs=runs, envs=envs)
            else:
                experience, freed = self._stale.fill(steps, is_whole=is_whole)
                self._rollout.release(freed)
        return self._hold(experience)

    def take_batch(self, max_lag: int) -> Experience | None:
        """Waits for the next batch of the stream and returns it; None when the stream was stopped."""
        meter = self._context.meter
        with meter.span("wait:rollout"):
            experience, num_discarded = self._stream.take_batch(self._table["version"], self._learner.version - max_lag)
        if num_discarded:
            meter.discarded(num_discarded)
        self._lacks_batch = experience is None and self._is_out_of_time
        return experience if experience is None else self._hold(experience)

    def _discard(self, env: int, slots: npt.NDArray[np.int64]) -> None:
        self._context.meter.settle(DISCARDED, np.full(len(slots), env), episode_lengths(self._table, slots))

    def _hold(self, experience: Experience) -> Experience:
        """Adds the value that follows each run; the experience counts as in flight until it is learned."""
        with self._context.meter.span("infer"):
            close_runs(
                experience.fresh_runs,
                self._rollout.follow,
                self._rollout.acted,
                self._critic,
                afresh=self._is_off_policy,
            )
        self._experience = experience
        return experience

    def take_newest_weights(self) -> None:
        """Has the sampler act with what was learned so far."""
        self._following.weights.refresh()

    def wait_for_ranks(self) -> bool:
        """Waits for the slowest rank, where ranks are in step; returns whether it or another broke its rollout off."""
        return self._averager.wait_for_ranks(broke_off=self._sampler.broke_off or self._lacks_batch)

    def break_off(self) -> None:
        """Gives up the iteration that is under way, with which the run ends; tells other ranks that do not know yet."""
        self._progress.break_off()

    def learn(self, experience: Experience) -> None:
        """Learns from the experience; gives its slots back, unless a stale fill keeps them."""
        torch.set_num_threads(self._threads_learning)
        with self._context.meter.span("learn"):
            self._learner.spend(self._progress.spent)
            self._statistics = {"collected": float(experience.num_samples - experience.num_stale)}
            self._statistics |= self._learner.learn(self._table, experience)
        with self._context.meter.span("schedule"):
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
        return self._means.background("sampler", work, self._free_main_thread, error_path(self._folder, self._label))

    def _free_main_thread(self) -> None:
        if isinstance(self._rollout, StreamRollout):
            self._rollout.stop()

    def wait_for(self, collecting: Background) -> None:
        """Waits until the thread that samples has ended; raises its exception if it raised one."""
        with self._context.meter.span("wait:rollout"):
            collecting.join()

    def wake(self) -> None:
        """Has the thread that samples look again at what it may do."""
        self._pool.wake()

    @property
    def _folder(self) -> Path:
        return Path(self._context.folder)

    @property
    def _label(self) -> str:
        return f"rank{self._context.place.rank}"

    def stop_actors(self) -> None:
        """Has workers that hold the policy end their trajectories; raises what the thread that sends weights raised."""
        if self._following.shared is not None:
            self._following.shared["stop"][0] = True
        if self._sender is not None:
            self._sender.close()

    def close(self) -> None:
        """Ends a run that went well: one rank leaves the weights, the workers end, and the rank leaves the group."""
        self._deadline.end()
        self._sampler.drain()
        self._pool.close()
        unlearned = self._rollout.waiting
        if self._experience is not None:
            unlearned += np.bincount(self._experience.fresh_envs, minlength=len(unlearned))
        self._context.meter.in_flight(int(unlearned.sum()))
        self._context.meter.left(unlearned)
        place, own = self._context.place, None
        if place.num_ranks > 1 and not self._averager.is_synchronous:
            own = copy.deepcopy(self._policy.state_dict())
        if self._averager.final_policy():
            check_weights(self._policy.parameters())  # weights of other ranks are in them too
            torch.save(self._policy.state_dict(), self._folder / POLICY_FILE)
            if own is not None:
                torch.save(own, self._folder / RANK_POLICY_FILE.format(place.rank))
        self._averager.close()

    def abort(self) -> None:
        """Ends the workers at once."""
        self._deadline.end()
        self._pool.close(grace_s=0)
