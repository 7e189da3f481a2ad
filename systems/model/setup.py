"""From a system's choices and a scenario's costs to the model's rules and first state.

Where environments are stepped in batches, a batch is one environment of the model. C environments that one call steps
have one action to apply, or none, at every moment, and whatever is decided, such as whom to act for and when a rank is
cut, is decided for all of them (`systems/choices/batches.py`). So a batch is an environment whose step takes the call's
time and which counts C times: there are N / C for N. What is counted in environments or env steps, such as sizes of
batches, targets and limits of queues, is divided by C; what costs something for each of them (inference, rendering,
scheduling, answering) is multiplied by C. What is learned and reported is multiplied back (`loops.py`, `ledger.py`).
Sizes of mini-batches and ends of episodes are of single environments all the time.

One thing is not exact: where a stream's batch is no multiple of C T, or its samples get too old, the engine takes whole
trajectories of some environments of a batch, and the model the first steps of all.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from rlbench.harness.contract.envs import env_seeds, envs_per_batch
from rlbench.harness.contract.prediction import Timed
from rlbench.systems.choices.average import Central, rendering_rank
from rlbench.systems.choices.collect import ActorSide, DoubleBuffered, Dynamic, emulated_cores, group_of
from rlbench.systems.choices.overlap import Continuous
from rlbench.systems.choices.preempt import Optimal, Threshold
from rlbench.systems.choices.rollout import Trajectories, Variable, stream_limit
from rlbench.systems.model import state as names
from rlbench.systems.model.state import Rules, State, make_state

if TYPE_CHECKING:
    from rlbench.harness.contract.scenario import Scenario
    from rlbench.systems.choices.choices import Choices

COLLECT = {Dynamic: names.DYNAMIC, DoubleBuffered: names.DOUBLE_BUFFERED, ActorSide: names.ACTOR_SIDE}
ROLLOUT = {Variable: names.VARIABLE, Trajectories: names.STREAM}
PREEMPT = {Threshold: names.THRESHOLD, Optimal: names.OPTIMAL}
DRAWN_AHEAD = 768
"""Draws of each environment that there is room for at first: a rollout's, and a block or two."""


def make_rules(system: Choices, scenario: Scenario, num_ranks: int) -> Rules:
    """Makes what never changes; `scenario` already has the system's learning settings.

    See above on environments in batches.
    """
    assert isinstance(scenario, Timed)
    costs, collect, preempt = scenario.gpu_costs, system.collect, system.preempt
    num_steps, of_batch = system.rollout.steps(scenario.rollout_steps), envs_per_batch(scenario)
    num_envs = _num_envs(system, scenario, num_ranks)
    target = system.rollout.target(num_envs, num_steps)
    limit, cores = 0, costs.shared_cores(scenario.num_envs // of_batch)
    num_cores = emulated_cores(costs, num_envs, scenario.num_envs)
    if isinstance(system.overlap, Continuous):
        updates = scenario.learn.epochs * scenario.learn.num_minibatches
        limit = stream_limit(target, num_envs, num_steps, system.overlap.max_lag, updates)
    return Rules(
        collect=COLLECT.get(type(collect), names.LOCKSTEP),
        min_batch=-(-getattr(collect, "min_batch", 1) // of_batch),
        max_batch=getattr(collect, "max_batch", 0) // of_batch,
        rollout=ROLLOUT.get(type(system.rollout), names.FIXED),
        num_steps=num_steps,
        target=target // of_batch,
        limit=limit // of_batch,
        preempt=PREEMPT.get(type(preempt), names.NEVER),
        p=getattr(preempt, "p", 1.0),
        least_steps=math.ceil(getattr(preempt, "least", 0.0) * num_steps),
        num_ranks=num_ranks if system.in_step else 1,
        render_s=costs.render_s * of_batch,
        infer_fixed_s=costs.infer_fixed_s,
        infer_item_s=costs.infer_item_s * of_batch,
        render_factor=costs.render_while_learning_factor,
        learn_factor=costs.learn_while_rendering_factor,
        reset_s=scenario.reset_s,
        cores=cores,
        actor_infer_s=costs.actor_infer_s if isinstance(collect, ActorSide) else 0.0,
        envs_per_worker=collect.envs_per_worker(num_envs, num_cores, of_batch) // of_batch,
        infer_cores=min(1, costs.learn_cores, cores),
        learn_cores=min(costs.learn_cores, cores),
        schedule_s=costs.schedule_s * of_batch,
        answer_s=0.0 if isinstance(collect, ActorSide) else costs.answer_s * of_batch,
        of_batch=of_batch,
    )


def seeds_of(scenario: Scenario, num_ranks: int, seed: int) -> list[int]:
    """The seeds of all environments of a run, rank after rank."""
    return [of_env for rank in range(num_ranks) for of_env in env_seeds(seed, rank, scenario.num_envs)]


def _num_envs(system: Choices, scenario: Scenario, num_ranks: int) -> int:
    """Number of environments of one sampler."""
    return scenario.num_envs * (num_ranks if isinstance(system.average, Central) else 1)


def make_fleet_state(system: Choices, scenario: Scenario, num_ranks: int, rules: Rules) -> State:
    """Makes the first state: all environments wait for their first actions."""
    num_envs = _num_envs(system, scenario, num_ranks) // rules.of_batch
    if not isinstance(system.average, Central):
        state = make_state(num_ranks, num_envs, 1, rules, num_drawn=DRAWN_AHEAD)
    else:
        state = make_state(1, num_envs, num_ranks, rules, num_drawn=DRAWN_AHEAD)
        ranks = np.arange(num_envs) // (scenario.num_envs // rules.of_batch)
        placement = system.average.placement
        state.envs["cores_of"][0] = ranks
        numbered = enumerate(ranks.tolist())
        state.envs["gpu_of"][0] = [rendering_rank(env, rank, range(num_ranks), placement) for env, rank in numbered]
    state.group_of[:] = group_of(num_envs, rules.envs_per_worker)
    return state
