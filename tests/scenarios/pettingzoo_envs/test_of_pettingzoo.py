"""PettingZoo's own checks, of every environment of its families that is installed."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from rlbench.scenarios.pettingzoo_envs import finding, making

NAMES = [name for name in finding.known_names() if name.startswith(("butterfly/", "mpe/", "sisl/"))]
NUM_STEPS = 60
SMALL = {"butterfly/pistonball_v6": (("n_pistons", "4"),), "sisl/pursuit_v5": (("n_pursuers", "3"),)}
"""Arguments that make an environment quick."""


def recipe_of(name: str) -> making.Recipe:
    """The environment, small where that can be."""
    return making.Recipe(id=name, kwargs=SMALL.get(name, ()))


def played(name: str, seed: int) -> list[Any]:
    """What happens in some steps of an environment with a seed, by actions that follow from it."""
    env = making.make(recipe_of(name))
    kind = making.TRIALS.of(recipe_of(name))
    rng, told = np.random.default_rng(seed), [env.reset(seed=seed)[0]]
    for _ in range(NUM_STEPS):
        if not env.agents:
            told.append(env.reset()[0])
        kind.action_space.seed(int(rng.integers(2**31)))
        told += env.step({agent: kind.action_space.sample() for agent in env.agents})[:4]
    env.close()
    return told


def refusal(name: str) -> str:
    """The line that says why an environment is none of a scenario; empty if it is one."""
    try:
        making.TRIALS.of(recipe_of(name))
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", NAMES)
def test_an_environment_is_one_by_pettingzoos_rules(name: str) -> None:
    """It passes PettingZoo's test of parallel environments, and the same seed gives the same episodes, to the bit.

    That is, observations, rewards and ends, in all episodes after the reset with the seed; another seed gives others.
    Where it is no scenario, a line says what it lacks: packages, or like spaces.
    """
    if told := refusal(name):
        assert "; pip install '" in told or "supersuit:pad_observations_v0" in told
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its advice on shapes and dtypes of observations, and on how to name modules
        from pettingzoo.test import parallel_api_test

        parallel_api_test(making.make(recipe_of(name)), num_cycles=NUM_STEPS)
        first, again, other = played(name, 3), played(name, 3), played(name, 4)
    np.testing.assert_equal(first, again)
    with pytest.raises(AssertionError):
        np.testing.assert_equal(first, other)
