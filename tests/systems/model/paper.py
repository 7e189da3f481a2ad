"""Lockstep systems on paper: the iterations of `sync` and `ddppo`, written down one step after the other.

It makes the draws of `scenarios.emulated.times`, one environment at a time, and adds up what the profile says; it knows
no events, no compiled code and no emulated GPU. Letters: R ranks, T steps, N environments.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rlbench.scenarios.emulated.times import StepTimes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rlbench.scenarios.emulated import EmulatedScenario

Step = list[tuple[float, bool]]
"""Seconds that each of N environments simulates, and whether its episode ends."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Iteration:
    """One iteration on paper."""

    seconds: float
    taken: list[int]
    """[R], steps of each environment of a rank."""
    waited_s: list[float]
    """[R], for the rank that collects longest."""


class Draws:
    """The steps of a rank's environments; what a cut rollout leaves over is used by the next one."""

    def __init__(self, scenario: EmulatedScenario, rank: int, seed: int) -> None:
        seeds = np.random.SeedSequence([seed, rank]).generate_state(2 + scenario.num_envs).tolist()[2:]
        self._envs = [StepTimes(scenario.profile, scenario.workload, env_seed) for env_seed in seeds]
        self._left: list[Step] = []

    def next_steps(self, num_steps: int) -> list[Step]:
        """T steps, which are only looked at."""
        while len(self._left) < num_steps:
            self._left.append([env.next_step() for env in self._envs])
        return self._left[:num_steps]

    def take(self, num_steps: int) -> None:
        """So many steps are over."""
        del self._left[:num_steps]


def step_s(scenario: EmulatedScenario, step: Step) -> float:
    """Seconds of a step: one inference, then all simulate, render one after the other, and some reset on a core."""
    costs = scenario.gpu_costs
    cores_free_at = [0.0] * (costs.cores or len(step))
    simulated: list[tuple[float, bool]] = []
    for seconds, ends in step:
        core = cores_free_at.index(min(cores_free_at))
        cores_free_at[core] += seconds
        simulated.append((cores_free_at[core], ends))
    gpu_free_at = last = 0.0
    for moment, ends in sorted(simulated):
        gpu_free_at = max(gpu_free_at, moment) + costs.render_s
        last = max(last, gpu_free_at)
        if ends:
            core = cores_free_at.index(min(cores_free_at))
            cores_free_at[core] = max(cores_free_at[core], gpu_free_at) + scenario.reset_s
            last = max(last, cores_free_at[core])
    return costs.infer_fixed_s + costs.infer_item_s * len(step) + last


def steps_until_cut(finishes: Sequence[Sequence[float]], p: float, least: float) -> list[int]:
    """How many steps each rank takes; `finishes`, [R, T + 1]: when it has 0, 1, ... T steps.

    It stops when strictly more than p of the ranks have finished, and it has `least` T steps itself (DD-PPO, Fig. 9).
    """
    num_steps, full = len(finishes[0]) - 1, [times[-1] for times in finishes]
    taken = []
    for times in finishes:
        steps = math.ceil(least * num_steps)
        while steps < num_steps and not sum(moment <= times[steps] for moment in full) > p * len(full) + 1e-9:
            steps += 1
        taken.append(steps)
    return taken


def learning_s(scenario: EmulatedScenario, taken: Sequence[int]) -> float:
    """Seconds from the moment at which all ranks begin to learn until the last has learned."""
    costs, learn, num_ranks = scenario.gpu_costs, scenario.learn, len(taken)
    at = [costs.prepare_s] * num_ranks
    for _ in range(learn.epochs * learn.num_minibatches):
        averaged = max(at) + costs.network.all_reduce_s(num_ranks)
        samples = [steps * scenario.num_envs / learn.num_minibatches for steps in taken]
        at = [max(averaged, begin + costs.learn_item_s * count) for begin, count in zip(at, samples, strict=True)]
    return max(at)


def write_down(
    scenario: EmulatedScenario, *, num_ranks: int, seed: int, p: float, least: float, num_iterations: int
) -> list[Iteration]:
    """The first iterations of a run of `ddppo` with this p; p = 1 is `sync`."""
    costs, num_steps = scenario.gpu_costs, scenario.rollout_steps
    ranks = [Draws(scenario, rank, seed) for rank in range(num_ranks)]
    iterations = []
    for _ in range(num_iterations):
        rollouts = [draws.next_steps(num_steps) for draws in ranks]
        finishes = [[0.0] for _ in ranks]
        for times, rollout in zip(finishes, rollouts, strict=True):
            for step in rollout:
                times.append(times[-1] + step_s(scenario, step))
        taken = steps_until_cut(finishes, p, least) if p < 1 else [num_steps] * num_ranks
        collected = []
        for draws, times, rollout, steps in zip(ranks, finishes, rollouts, taken, strict=True):
            num_running = sum(not ends for _, ends in rollout[steps - 1])  # the values that follow are estimated
            value_s = costs.infer_fixed_s + costs.infer_item_s * num_running if num_running else 0.0
            collected.append(times[steps] + value_s)
            draws.take(steps)
        synchronize_s = costs.network.synchronize_ranks_s(num_ranks)
        seconds = max(collected) + learning_s(scenario, taken) + synchronize_s
        waited_s = [max(collected) - moment for moment in collected]
        iterations.append(Iteration(seconds=seconds, taken=taken, waited_s=waited_s))
    return iterations
