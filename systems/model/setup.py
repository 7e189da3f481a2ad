"""From a system's choices and a scenario's costs to the model's rules and first state."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from harness.contract.prediction import Timed
from systems.choices.average import Central, rendering_rank
from systems.choices.collect import ActorSide, DoubleBuffered, Dynamic, emulated_cores, group_of
from systems.choices.overlap import Continuous
from systems.choices.preempt import Optimal, Threshold
from systems.choices.rollout import Trajectories, Variable, stream_limit
from systems.model import state as names
from systems.model.state import Rules, State, make_state

if TYPE_CHECKING:
    from harness.contract.scenario import Scenario
    from systems.choices.choices import Choices

COLLECT = {Dynamic: names.DYNAMIC, DoubleBuffered: names.DOUBLE_BUFFERED, ActorSide: names.ACTOR_SIDE}
ROLLOUT = {Variable: names.VARIABLE, Trajectories: names.STREAM}
PREEMPT = {Threshold: names.THRESHOLD, Optimal: names.OPTIMAL}
DRAWN_AHEAD = 768
"""Draws of each environment that there is room for at first: a rollout's, and a block or two."""


def make_rules(system: Choices, scenario: Scenario, num_ranks: int) -> Rules:
    """Makes what never changes; `scenario` already has the system's learning settings."""
    assert isinstance(scenario, Timed)
    costs, collect, preempt = scenario.gpu_costs, system.collect, system.preempt
    num_steps = system.rollout.steps(scenario.rollout_steps)
    num_envs = _num_envs(system, scenario, num_ranks)
    target = system.rollout.target(num_envs, num_steps)
    limit, cores = 0, costs.shared_cores(scenario.num_envs)
    if isinstance(system.overlap, Continuous):
        updates = scenario.learn.epochs * scenario.learn.num_minibatches
        limit = stream_limit(target, num_envs, num_steps, system.overlap.max_lag, updates)
    return Rules(
        collect=COLLECT.get(type(collect), names.LOCKSTEP),
        min_batch=getattr(collect, "min_batch", 1),
        max_batch=getattr(collect, "max_batch", 0),
        rollout=ROLLOUT.get(type(system.rollout), names.FIXED),
        num_steps=num_steps,
        target=target,
        limit=limit,
        preempt=PREEMPT.get(type(preempt), names.NEVER),
        p=getattr(preempt, "p", 1.0),
        least_steps=math.ceil(getattr(preempt, "least", 0.0) * num_steps),
        num_ranks=num_ranks if system.in_step else 1,
        render_s=costs.render_s,
        infer_fixed_s=costs.infer_fixed_s,
        infer_item_s=costs.infer_item_s,
        render_factor=costs.render_while_learning_factor,
        learn_factor=costs.learn_while_rendering_factor,
        reset_s=scenario.reset_s,
        cores=cores,
        actor_infer_s=costs.actor_infer_s if isinstance(collect, ActorSide) else 0.0,
        envs_per_worker=collect.envs_per_worker(num_envs, emulated_cores(costs, num_envs, scenario.num_envs)),
        infer_cores=min(1, costs.learn_cores, cores),
        learn_cores=min(costs.learn_cores, cores),
        schedule_s=costs.schedule_s,
        answer_s=0.0 if isinstance(collect, ActorSide) else costs.answer_s,
    )


def _num_envs(system: Choices, scenario: Scenario, num_ranks: int) -> int:
    """Number of environments of one sampler."""
    return scenario.num_envs * (num_ranks if isinstance(system.average, Central) else 1)


def make_fleet_state(system: Choices, scenario: Scenario, num_ranks: int, rules: Rules) -> State:
    """Makes the first state: all environments wait for their first actions."""
    num_envs = _num_envs(system, scenario, num_ranks)
    if not isinstance(system.average, Central):
        state = make_state(num_ranks, num_envs, 1, rules, num_drawn=DRAWN_AHEAD)
    else:
        state = make_state(1, num_envs, num_ranks, rules, num_drawn=DRAWN_AHEAD)
        ranks = np.arange(num_envs) // scenario.num_envs
        placement = system.average.placement
        state.envs["cores_of"][0] = ranks
        numbered = enumerate(ranks.tolist())
        state.envs["gpu_of"][0] = [rendering_rank(env, rank, range(num_ranks), placement) for env, rank in numbered]
    state.group_of[:] = group_of(num_envs, rules.envs_per_worker)
    return state
