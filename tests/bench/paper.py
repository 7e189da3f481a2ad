"""What a lockstep system takes on an emulated profile, on paper: the iterations of a run, from the profile alone.

It makes the draws of `scenarios.emulated.times` with the seeds that the engine gives its environments, adds up what
the profile says of the GPU, and has no overhead: no pipes, no processes, no all-reduce. So a real run of the same cell
takes a little longer, and by how much is the engine's overhead. `python -m tests.bench.paper` prints what it gives.

Letters: R ranks, T steps, N environments.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING

import numpy as np

from harness.emulated_gpu import cost_s
from scenarios.emulated import FAMILY, EmulatedScenario
from scenarios.emulated.times import StepTimes
from systems.engine.preempt import Threshold, is_preempted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

LEAST = Threshold().least


@dataclass(frozen=True, kw_only=True, slots=True)
class Iteration:
    """One iteration on paper; times are in seconds of the profile."""

    seconds: float
    taken: tuple[int, ...]
    """[R], steps of each environment of a rank."""
    collect_s: tuple[float, ...]
    """[R], from the iteration's begin to the end of the rank's rollout."""
    num_envs: int

    @property
    def learned(self) -> int:
        """Env steps."""
        return sum(self.taken) * self.num_envs


def env_seeds(seed: int, rank: int, num_envs: int) -> list[int]:
    """As `harness.contract.Context.env_seed` gives them; a test holds this."""
    seeds: list[int] = np.random.SeedSequence([seed, rank]).generate_state(num_envs + 2).tolist()
    return seeds[2:]


class Draws:
    """The next T steps of a rank's environments; what a cut rollout leaves over is used by the next one."""

    def __init__(self, scenario: EmulatedScenario, rank: int, seed: int) -> None:
        seeds = env_seeds(seed, rank, scenario.num_envs)
        self._envs = [StepTimes(scenario.profile, scenario.workload, seed) for seed in seeds]
        empty = np.empty((0, scenario.num_envs))
        self.simulation_s, self.ends = empty, empty.astype(np.bool_)  # [T, N]

    def fill(self, num_steps: int) -> None:
        """Draws until there are T steps."""
        rows = [[self._draw(env) for env in self._envs] for _ in range(num_steps - len(self.ends))]
        if rows:
            drawn = np.array(rows)  # [missing, N, 2]
            self.simulation_s = np.concatenate((self.simulation_s, drawn[:, :, 0]))
            self.ends = np.concatenate((self.ends, drawn[:, :, 1] > 0))

    @staticmethod
    def _draw(env: StepTimes) -> tuple[float, bool]:
        simulation_s, ends = env.next_step()
        if ends:
            env.begin_episode()
        return simulation_s, ends

    def drop(self, num_steps: int) -> None:
        """Forgets the steps that were taken."""
        self.simulation_s, self.ends = self.simulation_s[num_steps:], self.ends[num_steps:]


def lockstep_s(
    scenario: EmulatedScenario, simulation_s: NDArray[np.float64], ends: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Seconds of each step [T]: inference, then the slowest of N environments, which render one after the other."""
    costs = scenario.gpu_costs
    reset_s = scenario.profile.episode.reset_ms / 1e3 * scenario.time_scale
    order = np.argsort(simulation_s, axis=1)
    arrivals = np.take_along_axis(simulation_s, order, 1) * scenario.time_scale
    resets = np.take_along_axis(ends, order, 1) * reset_s
    rendered, slowest = np.zeros(len(ends)), np.zeros(len(ends))
    for arrival, reset in zip(arrivals.T, resets.T, strict=True):
        rendered = np.maximum(rendered, arrival) + cost_s(costs, "render", 1)
        slowest = np.maximum(slowest, rendered + reset)
    return slowest + cost_s(costs, "infer", scenario.num_envs)


def steps_until_cut(finishes: NDArray[np.float64], p: float, least: float) -> list[int]:
    """How many steps each rank takes when it may be cut; `finishes` [R, T + 1]: when it has 0, 1, ... T steps."""
    num_ranks, num_steps = finishes.shape[0], finishes.shape[1] - 1
    full = np.sort(finishes[:, -1])
    taken = []
    for times in finishes:
        # Ranks that are cut count as finished too, but only when enough have finished anyway.
        finished = np.searchsorted(full, times, side="right").tolist()
        stops = (
            step
            for step in range(num_steps)
            if is_preempted(finished[step], num_ranks, p, step, int(np.ceil(least * num_steps)))
        )
        taken.append(next(stops, num_steps))
    return taken


def predict(
    scenario: EmulatedScenario, *, num_ranks: int, seed: int, p: float, num_iterations: int, least: float = LEAST
) -> list[Iteration]:
    """The first iterations of a run of `ddppo` with this p; p = 1 is `sync`."""
    costs, learn, num_envs, num_steps = scenario.gpu_costs, scenario.learn, scenario.num_envs, scenario.rollout_steps
    ranks = [Draws(scenario, rank, seed) for rank in range(num_ranks)]
    iterations = []
    for _ in range(num_iterations):
        for draws in ranks:
            draws.fill(num_steps)
        steps_s = np.stack([lockstep_s(scenario, draws.simulation_s, draws.ends) for draws in ranks])  # [R, T]
        finishes = np.concatenate((np.zeros((num_ranks, 1)), steps_s.cumsum(1)), 1)
        taken = steps_until_cut(finishes, p, least)
        collect_s = []
        for draws, finish, steps in zip(ranks, finishes, taken, strict=True):
            running = int((~draws.ends[steps - 1]).sum())
            collect_s.append(float(finish[steps]) + (cost_s(costs, "infer", running) if running else 0.0))
            draws.drop(steps)
        # All ranks learn in step, at the pace of the one with the longest rollout.
        samples = learn.epochs * max(taken) * num_envs
        learn_s = cost_s(costs, "prepare", 1) + cost_s(costs, "learn", samples)
        seconds = max(collect_s) + learn_s + (costs.synchronize_s if num_ranks > 1 else 0.0)
        iterations.append(
            Iteration(
                seconds=seconds / scenario.time_scale,
                taken=tuple(taken),
                collect_s=tuple(time / scenario.time_scale for time in collect_s),
                num_envs=num_envs,
            )
        )
    return iterations


def steps_per_s(iterations: Sequence[Iteration]) -> float:
    """Fresh env steps learned per second."""
    return sum(part.learned for part in iterations) / sum(part.seconds for part in iterations)


def main() -> None:
    """Prints what `open-fridge` gives on paper: one rank, and eight with and without preemption."""
    seeds, num_iterations = range(16), 10
    for workload in ("homogeneous", "heterogeneous"):
        scenario = FAMILY.make("open-fridge", workload)

        def rate(num_ranks: int, p: float, seed: int, scenario: EmulatedScenario = scenario) -> float:
            return steps_per_s(predict(scenario, num_ranks=num_ranks, seed=seed, p=p, num_iterations=num_iterations))

        single = [rate(1, 1.0, seed) for seed in seeds]
        print(
            f"{workload}: 1 rank {fmean(single):.0f} steps/s "
            f"({min(single):.0f} to {max(single):.0f} of {len(seeds)} seeds)"
        )
        whole, cut = ([rate(8, p, seed) for seed in seeds] for p in (1.0, 0.6))
        ratios = [ours / theirs for ours, theirs in zip(cut, whole, strict=True)]
        print(
            f"  8 ranks: p=1.0 {fmean(whole):.0f}, p=0.6 {fmean(cut):.0f} steps/s; ratio {median(ratios):.2f} "
            f"({min(ratios):.2f} to {max(ratios):.2f}), seed 0: {whole[0]:.0f}, {cut[0]:.0f}, {ratios[0]:.2f}"
        )


if __name__ == "__main__":
    main()
