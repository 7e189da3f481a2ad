"""What the vector environment of a scenario says of itself, and the seeds that it gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rlbench.harness.metering.counted import shown

if TYPE_CHECKING:
    import gymnasium

    VectorEnv = gymnasium.vector.VectorEnv[Any, Any, Any]

NEXT_STEP, SAME_STEP, DISABLED = "NextStep", "SameStep", "Disabled"
"""The values of gymnasium's `AutoresetMode`: who resets an environment whose episode has ended, and when."""

MOST_SHORT = 2**31 - 1
"""Simulators in C++ take seeds of 31 bits."""


def check_batch(
    env: VectorEnv, num_envs: int, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
) -> None:
    """Raises ValueError unless a batch has so many environments, these spaces of one, and a known way of resetting."""
    mode_of(env)
    if env.num_envs != num_envs:
        raise ValueError(f"make_envs gave {env.num_envs} environments: it must give {num_envs}, one for each seat")
    check_spaces(env, observation_space, action_space)


def check_spaces(env: object, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> None:
    """Raises ValueError unless what `make_envs` gave has these spaces of one environment."""
    for name, stated in (("observation_space", observation_space), ("action_space", action_space)):
        given = getattr(env, f"single_{name}", None)
        if given != stated:
            raise ValueError(f"make_envs gave single_{name} {shown(given)}: the scenario states {shown(stated)}")


def mode_of(env: Any) -> str:
    """The value of its `AutoresetMode`. Raises ValueError if it does not say."""
    mode = (env.metadata or {}).get("autoreset_mode")
    value = getattr(mode, "value", mode)
    if value not in (NEXT_STEP, SAME_STEP, DISABLED):
        known = "AutoresetMode.NEXT_STEP, .SAME_STEP or .DISABLED"
        raise ValueError(f'make_envs gave metadata["autoreset_mode"] = {shown(mode)}: it must be {known}')
    return str(value)


def seeded(env: VectorEnv, seeds: list[int]) -> Any:
    """The answer of a reset with seeds in the first form that is taken: a list, an array of int32, the first alone."""
    from gymnasium.error import Error
    from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

    reset: Any = env.reset
    if not isinstance(env.unwrapped, SyncVectorEnv | AsyncVectorEnv):
        short = (np.array(seeds) & MOST_SHORT).astype(np.int32)
        for form in (seeds, short):
            try:
                return reset(seed=form)
            except (TypeError, ValueError, Error):
                continue
        return reset(seed=int(short[0]))
    return reset(seed=seeds)
