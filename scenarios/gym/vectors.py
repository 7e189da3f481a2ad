"""Environments that one call steps together: several made alone behind one call, or a simulator's own vector."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal

import gymnasium

from rlbench.scenarios.gym import making, named

if TYPE_CHECKING:
    Vector = gymnasium.vector.VectorEnv[Any, Any, Any]

Way = Literal["none", "sync", "process", "native", "envpool"]
"""Each environment by itself; a batch after each other in one process; in processes; by the simulator's own code; or
in EnvPool, which `pools.py` makes."""


def make_together(recipes: Sequence[making.Recipe], way: Way) -> Vector:
    """Makes a batch of environments, one for each recipe; those of `native` all have the first. Raises ValueError.

    Those that are not the simulator's own begin the next episode in the step that ends one, so that no call only
    resets.
    """
    if way == "native":
        return _native(recipes[0], len(recipes))
    from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv  # before 1.1 it has no `AutoresetMode`

    makers = [partial(making.make, recipe) for recipe in recipes]
    if way == "sync":
        return SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)
    return AsyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)


@cache
def check_native(recipe: making.Recipe) -> None:
    """Raises ValueError unless the simulator has vectors of its own whose environments are those of the recipe."""
    if recipe.wrappers or recipe.without:
        what = "wrappers" if recipe.wrappers else "without"
        raise ValueError(f"vector=native: {what} would change single environments; use vector=sync or process")
    if named.is_file(recipe.id) or making.find(recipe.id).vector_entry_point is None:
        raise ValueError("vector=native: it registers no vector environment of its own; use vector=sync or process")
    spaces = making.TRIALS.of(recipe)
    envs = _native(recipe, 2)
    try:
        given = envs.single_observation_space, envs.single_action_space
    finally:
        envs.close()
    for what, one, other in zip(("observation", "action"), spaces, given, strict=True):
        if one != other:
            raise ValueError(f"vector=native: its vectors have the {what} space {other}, single ones {one}")


def _native(recipe: making.Recipe, num_envs: int) -> Vector:
    spec = copy(making.find(recipe.id))
    if recipe.max_episode_steps:
        spec.max_episode_steps = recipe.max_episode_steps
    with making.told("its vector's constructor"):
        envs: Vector = gymnasium.make_vec(
            spec, num_envs=num_envs, vectorization_mode="vector_entry_point", **making.arguments(recipe)
        )
    return envs
