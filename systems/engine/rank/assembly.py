"""Makes the parts of a rank that a system's five choices ask for; `rank_loop.py` joins them.

Only `connect_servers` and `send_weights` may block for long: until the servers on other machines have come up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from rlbench.harness.contract.agents import agents_per_env, num_rows
from rlbench.harness.contract.device import Place
from rlbench.harness.contract.envs import envs_per_batch, envs_per_recv
from rlbench.harness.devices.emulated_gpu import EmulatedGpu
from rlbench.harness.devices.kinds import sibling
from rlbench.systems.choices.average import Central, rendering_rank
from rlbench.systems.choices.collect import ActorSide, DoubleBuffered
from rlbench.systems.choices.overlap import Continuous
from rlbench.systems.choices.preempt import Optimal
from rlbench.systems.choices.rollout import Trajectories
from rlbench.systems.engine.rank.placing import worker_cores
from rlbench.systems.engine.rollouts.opening import open_rollout, open_stream
from rlbench.systems.engine.rollouts.stale import StaleFill
from rlbench.systems.engine.workers.acting_weights import (
    BroadcastWeights,
    CopiedWeights,
    Followed,
    SameWeights,
    weight_columns,
)
from rlbench.systems.engine.workers.env_client import Address, EnvClient, WeightsSender
from rlbench.systems.engine.workers.env_server import EnvServer, rows_of
from rlbench.systems.engine.workers.inference import Actor
from rlbench.systems.engine.workers.tables import SharedTable, rollout_columns
from rlbench.systems.engine.workers.worker import error_path
from rlbench.systems.policies.policy import Policy, policy_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rlbench.harness.contract.device import Seat
    from rlbench.harness.contract.system import Context
    from rlbench.systems.choices.choices import Choices
    from rlbench.systems.engine.rank.means import Means
    from rlbench.systems.engine.rollouts.rollout import Rollout
    from rlbench.systems.engine.wire.group import Group
    from rlbench.systems.engine.workers.pool import WorkerPool


@dataclass(frozen=True, slots=True)
class Following:
    """What acts, and how its weights follow those that learn."""

    weights: Followed
    actor: Actor
    """The actor of the thread that samples."""
    shared: SharedTable | None
    """Table of `weight_columns` where the workers hold the policy; else None."""


def seats_of(system: Choices, context: Context, ranks: range) -> list[Seat]:
    """The environments that this rank steps: its own, or with `Central` averaging those of all ranks of its machine."""
    if not isinstance(system.average, Central):
        return [context.seat(index, context.env_seed(index)) for index in range(num_rows(context.scenario))]
    num_ranks, of_batch = context.place.num_ranks, envs_per_batch(context.scenario)
    seats: list[Seat] = []
    for local_rank, rank in enumerate(ranks):
        of_rank = replace(context, place=Place(rank=rank, num_ranks=num_ranks, local_rank=local_rank))
        for index in range(num_rows(context.scenario)):
            # Those of a batch render on one device, so what is dealt to the devices is batches.
            renders = rendering_rank(len(seats) // of_batch, rank, ranks, system.average.placement)
            seat = of_rank.seat(index, of_rank.env_seed(index))
            seats.append(replace(seat, device=sibling(context.device, renders - ranks.start)))
    return seats


def _fills_stale(system: Choices) -> bool:
    return isinstance(system.preempt, Optimal) and system.preempt.fill_stale


def open_stale_fill(system: Choices, context: Context, num_envs: int) -> StaleFill | None:
    """The buffer of steps that fill preempted rollouts; None where the system does not fill them."""
    if not _fills_stale(system):
        return None
    return StaleFill(system.rollout.target(num_envs, system.rollout.steps(context.scenario.rollout_steps)))


def make_rollout(system: Choices, context: Context, num_envs: int) -> Rollout:
    """The rollout of a rank, with room for what is held beside the one that is being filled."""
    choice, learn = system.rollout, context.scenario.learn
    num_steps = choice.steps(context.scenario.rollout_steps)
    if not isinstance(system.overlap, Continuous):
        ahead, agents = system.overlap.ahead + _fills_stale(system), agents_per_env(context.scenario)
        return open_rollout(choice, num_envs, num_steps, ahead=ahead, agents=agents)
    assert isinstance(choice, Trajectories), "the spec refuses all else"
    return open_stream(
        choice,
        num_envs,
        num_steps,
        max_lag=system.overlap.max_lag,
        updates_per_batch=learn.epochs * learn.num_minibatches,
    )


def make_policy(context: Context) -> Policy:
    """The policy on the rank's device, with the weights that all ranks begin with."""
    return policy_of(context.scenario, context.seed).to(context.device.torch_name)


def open_following(system: Choices, context: Context, critic: Actor, generator: torch.Generator) -> Following:
    """Chooses which weights act: the learner's own, a copy of them in a second thread, or copies in the workers."""
    if isinstance(system.collect, ActorSide):
        shared = SharedTable(weight_columns(sum(parameter.numel() for parameter in critic.policy.parameters())))
        return Following(BroadcastWeights(critic.policy, shared), critic, shared)
    if not system.overlap.is_concurrent:
        return Following(SameWeights(critic), critic, None)
    acting = make_policy(context)
    actor = Actor(acting, critic.table, context.device, generator, beside_learner=True)
    return Following(CopiedWeights(critic.policy, acting, actor), actor, None)


def start_workers(
    system: Choices,
    context: Context,
    means: Means,
    table: SharedTable,
    seats: list[Seat],
    shared: SharedTable | None,
    seed: int,
) -> WorkerPool:
    """Starts the processes that step the environments of `seats`; `shared` has the weights if they hold the policy."""
    collect, emulated = system.collect, isinstance(context.device, EmulatedGpu)
    acting = None
    if shared is not None:
        from rlbench.systems.engine.workers.acting_worker import Acting

        seeds = np.random.SeedSequence(seed).generate_state(len(seats)).tolist()
        acting = Acting(scenario=context.scenario, weights=shared, seeds=dict(enumerate(seeds)))
    scenario = context.scenario
    num_cores = worker_cores(context.place, context.device, scenario.gpu_costs, len(seats), num_rows(scenario))
    of_batch = envs_per_batch(scenario)
    envs_per_worker = collect.envs_per_worker(len(seats), num_cores, of_batch)
    # Workers whose steps sleep instead of computing can be threads that share an interpreter and a core.
    share_process = acting is None and bool(getattr(scenario, "sleeps", False))
    return means.pool(
        context,
        table,
        seats,
        envs_per_worker=envs_per_worker,
        workers_per_process=max(1, num_rows(scenario) // envs_per_worker) if share_process else 1,
        envs_per_batch=of_batch,
        priority=collect.priority if isinstance(collect, DoubleBuffered) and not emulated else None,
        acting=acting,
    )


def actor_seed_of(context: Context) -> tuple[int, int]:
    """The two seeds of this rank: one for acting, one for learning."""
    acts, learns = np.random.SeedSequence([context.seed, context.place.rank]).generate_state(2).tolist()
    return acts, learns


def start_server(system: Choices, context: Context, means: Means, ranks: range) -> EnvServer:
    """Starts this machine's workers, and the server through which rank 0 acts for their environments."""
    scenario = context.scenario
    seats = seats_of(system, context, ranks)
    policy = policy_of(scenario, context.seed)
    shared = None
    if isinstance(system.collect, ActorSide):
        shared = SharedTable(weight_columns(sum(parameter.numel() for parameter in policy.parameters())))
    num_slots = rows_of(system.rollout.steps(scenario.rollout_steps), acted=shared is not None) * len(seats)
    space, actions = scenario.observation_space, policy.actions
    table = SharedTable(rollout_columns(space, actions, len(seats), num_slots, policy.state_size))
    pool = start_workers(system, context, means, table, seats, shared, actor_seed_of(context)[0])
    return EnvServer(pool, table, shared, context.stall_s, _error_path(context))


def connect_servers(
    context: Context, group: Group, table: SharedTable, machines: Sequence[range], pool: WorkerPool, *, acted: bool
) -> list[Address]:
    """Adds the environments of other machines to rank 0's; returns the addresses of their servers."""
    addresses = [Address.read(group, ranks.start) for ranks in machines]
    for address, ranks in zip(addresses, machines, strict=True):
        first = pool.num_envs
        envs = range(first, first + len(ranks) * num_rows(context.scenario))
        of_recv = envs_per_recv(context.scenario)
        pool.add_server(EnvClient(address, table, envs, context.stall_s, acted=acted, of_recv=of_recv))
    return addresses


def send_weights(
    context: Context, servers: Sequence[Address], following: Following, on_failure: Callable[[], None]
) -> WeightsSender | None:
    """Starts to send the learner's weights to actors on other machines; None where there are none."""
    if following.shared is None or not servers:
        return None
    assert isinstance(following.weights, BroadcastWeights)
    sender = WeightsSender(servers, following.shared, context.stall_s, on_failure, _error_path(context))
    following.weights.on_publish = sender.wake
    return sender


def _error_path(context: Context) -> Path:
    """Where this rank leaves an error that its main thread cannot raise."""
    return error_path(Path(context.folder), f"rank{context.place.rank}")
