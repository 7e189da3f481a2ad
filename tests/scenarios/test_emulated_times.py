from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

from rlbench.harness.contract.scenario import WORKLOADS
from rlbench.scenarios.emulated import FAMILY
from rlbench.scenarios.emulated.profile import Profile
from rlbench.scenarios.emulated.times import BLOCK_STEPS, BlocksOfTimes, StepTimes

NUM_STEPS = 3 * BLOCK_STEPS
OPEN_FRIDGE = FAMILY.make("open-fridge", "homogeneous").profile


def with_(**changes: dict[str, float]) -> Profile:
    """`open-fridge` with fields of some of its tables changed."""
    tables = {name: getattr(OPEN_FRIDGE, name).model_copy(update=fields) for name, fields in changes.items()}
    return OPEN_FRIDGE.model_copy(update=tables)


PROFILES = {
    "open-fridge": OPEN_FRIDGE,
    "brief episodes": with_(episode={"mean_steps": 1.5}),
    "brief stays": with_(collision={"mean_stay_steps": 1.0, "share": 0.3}),
    "often slow": with_(collision={"mean_stay_steps": 3.0, "share": 0.8}),
    "entered as it is left": with_(collision={"mean_stay_steps": 4.0, "share": 0.5}),
    "never slow": with_(collision={"share": 0.0}),
}
"""The mode is harder, easier, and as hard to enter as to leave."""


def written_down(profile: Profile, workload: str, seed: int) -> Iterator[tuple[float, bool]]:
    """One environment, step after step: a two-state Markov chain, and a factor for each step, episode and scene.

    The random numbers of a block are drawn in the order in which the model draws them; all else is as the profile says.
    """
    rng = np.random.default_rng([seed, 0x71])
    step, collision, episode = profile.step, profile.collision, profile.episode
    spread = profile.heterogeneous.sigma if workload == "heterogeneous" else 0.0
    scene = math.exp(spread * rng.standard_normal())
    collides = rng.random() < collision.share
    factor = math.exp(episode.sigma * rng.standard_normal())
    leave = 1 / collision.mean_stay_steps
    enter = leave * collision.share / (1 - collision.share)
    while True:
        chances, spreads, ends = rng.random(BLOCK_STEPS), rng.standard_normal(BLOCK_STEPS), rng.random(BLOCK_STEPS)
        ended = ends < 1 / episode.mean_steps
        factors = iter(np.exp(episode.sigma * rng.standard_normal(int(ended.sum()))).tolist())
        for chance, deviation, ends_now in zip(chances.tolist(), spreads.tolist(), ended.tolist(), strict=True):
            collides = chance >= leave if collides else chance < enter
            median_ms = collision.median_ms if collides else step.median_ms
            yield median_ms / 1e3 * math.exp(step.sigma * deviation) * factor * scene, ends_now
            if ends_now:
                factor = next(factors)


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("name", PROFILES)
def test_times_are_those_of_the_chain_written_down(name: str, workload: str) -> None:
    """Each step's time and end is what a plain loop over the Markov chain and its factors gives."""
    times, expected = StepTimes(PROFILES[name], workload, 5), written_down(PROFILES[name], workload, 5)
    drawn = [times.next_step() for _ in range(NUM_STEPS)]
    wanted = [next(expected) for _ in range(NUM_STEPS)]
    assert [ends for _, ends in drawn] == [ends for _, ends in wanted]
    assert [seconds for seconds, _ in drawn] == pytest.approx([seconds for seconds, _ in wanted], rel=1e-12)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_environments_drawn_together_are_those_drawn_alone(workload: str) -> None:
    """To the bit, in whatever order and however often the others are drawn: a prediction's times are the engine's."""
    seeds = [11, 3, 2**32 - 1, 8]
    together = BlocksOfTimes(OPEN_FRIDGE, workload, seeds)
    blocks: list[list[tuple[float, bool]]] = [[] for _ in seeds]
    for envs in ([0, 1, 2, 3], [2], [3, 0], [2, 1], [0], [1, 3]):
        for env, seconds, ends in zip(envs, *together.draw(envs), strict=True):
            blocks[env] += zip(seconds.tolist(), ends.tolist(), strict=True)
    for seed, block in zip(seeds, blocks, strict=True):
        assert len(block) == NUM_STEPS
        alone = StepTimes(OPEN_FRIDGE, workload, seed)
        assert block == [alone.next_step() for _ in range(NUM_STEPS)]


def test_a_scenario_draws_for_predictions_what_its_environments_draw() -> None:
    """`times` of a scenario are the draws of the environments with these seeds, never scaled."""
    scenario = FAMILY.make("open-fridge", "heterogeneous")
    seconds, ends = scenario.times([4, 7]).draw([1])
    alone = StepTimes(scenario.profile, "heterogeneous", 7)
    assert list(zip(seconds[0].tolist(), ends[0].tolist(), strict=True)) == [
        alone.next_step() for _ in range(BLOCK_STEPS)
    ]
