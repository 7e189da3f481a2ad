"""How long env steps take: the tables `step`, `collision`, `episode` and `heterogeneous` of a profile.

The model is the profile's: log(time) = median of the mode + factor of the environment + factor of the episode + noise,
each normal. The slow mode is found first (`modes.py`). A nested analysis of variance then gives the variance of each
level, less what noise alone would give (Searle, Casella and McCulloch, Variance Components, 1992, chapter 3). S steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rlbench.harness.commands.profile import ASSUMED, Entry, Table
from rlbench.harness.commands.profile.modes import find_modes

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from rlbench.results.records.schema import Counters

LARGEST_SIGMA = 3.0
LARGEST_SHARE = 0.999
"""Largest values that a profile may state."""
SHORTEST_S = 1e-7
"""Least time of an env step: a span of no length is below the clock's resolution."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvSteps:
    """The env steps in spans, environment after environment, each in order of time."""

    seconds: NDArray[np.float64]
    """Seconds of work, [S]; see `cores.py`."""
    env: NDArray[np.intp]
    """Environment of each step, numbered over all ranks, [S]."""
    episode: NDArray[np.intp]
    """Episode of each step, numbered over all environments, [S]; one that began before the spans counts too."""
    reset_s: NDArray[np.float64]
    """Seconds of work of every reset meanwhile, except the first of each environment, which also loads."""


def read_steps(spans: pd.DataFrame) -> EnvSteps:
    """The env steps in a run's spans with their work, from when all environments have begun; there may be none."""
    rows = spans[spans["environment"] >= 0].sort_values(["rank", "environment", "begin_s"], kind="stable")
    begin_s, seconds = rows["begin_s"].to_numpy(np.float64), rows["work_s"].to_numpy(np.float64)
    is_reset = (rows["kind"] == "reset").to_numpy()
    env = rows.groupby(["rank", "environment"]).ngroup().to_numpy(np.intp)
    is_first = np.diff(env, prepend=-1) > 0
    known = begin_s >= max(0.0, begin_s[is_first].max(initial=0.0))
    step = known & (rows["kind"] == "simulate").to_numpy()
    return EnvSteps(
        seconds=np.maximum(seconds[step], SHORTEST_S),
        env=env[step],
        episode=np.cumsum(is_reset | is_first)[step],
        reset_s=seconds[known & is_reset & ~is_first],
    )


def step_tables(steps: EnvSteps, counters: Counters, workload: str) -> dict[str, Table]:
    """The tables that say how long steps and resets take.

    Args:
        steps: at least one.
        counters: of the run.
        workload: of the run, named in the remark on the spread of environments.
    """
    logs = np.log(steps.seconds)
    is_slow, distance = _slow(logs, steps.env)
    factors = _factors(logs - distance * is_slow, steps)
    step_ms = 1e3 * math.exp(factors.mean)
    return {
        "step": {
            "median_ms": Entry(step_ms, f"geometric mean of {len(logs):,} steps, the slow ones brought down"),
            "sigma": Entry(factors.step_sigma, "spread of log(time) within an episode"),
        },
        "collision": _collision(is_slow, steps.env, step_ms, distance),
        "episode": {
            "mean_steps": episode_steps(counters),
            "sigma": factors.episode,
            "reset_ms": _reset(steps.reset_s),
        },
        "heterogeneous": {"sigma": _said_of(factors.env, workload)},
    }


def _slow(logs: NDArray[np.float64], env: NDArray[np.intp]) -> tuple[NDArray[np.bool_], float]:
    """Which steps are of the slow mode, [S], and its distance from the fast one; none where there is only one mode."""
    medians = np.array([np.median(logs[env == one]) for one in np.unique(env)])
    centred = logs - medians[np.unique(env, return_inverse=True)[1]]  # a slow environment is not a slow mode
    modes = find_modes(centred)
    if modes is None:
        return np.zeros(len(logs), np.bool_), 0.0
    return centred > modes.border, modes.slow - modes.fast


def _collision(is_slow: NDArray[np.bool_], env: NDArray[np.intp], step_ms: float, distance: float) -> Table:
    if not is_slow.any():
        none = "steps have no second, slow mode"
        return {
            "median_ms": Entry(step_ms, f"{none}: as step.median_ms"),
            "share": Entry(0.0, none),
            "mean_stay_steps": Entry(1.0, none),
        }
    followed = np.flatnonzero(is_slow[:-1] & (env[:-1] == env[1:]))
    num_left = int((~is_slow[followed + 1]).sum())
    stay = len(followed) / num_left if num_left else float(is_slow.sum())
    return {
        "median_ms": Entry(step_ms * math.exp(distance), "of the slower of two normals, fitted to log(time)"),
        "share": Entry(min(float(is_slow.mean()), LARGEST_SHARE), f"{int(is_slow.sum()):,} of {len(is_slow):,} steps"),
        "mean_stay_steps": Entry(max(1.0, stay), f"slow steps for each of {num_left:,} that led back"),
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class Factors:
    """What makes steps of one mode differ, as normals of log(time)."""

    mean: float
    """Mean of log(time), over the environments."""
    step_sigma: float
    episode: Entry
    env: Entry


def _factors(logs: NDArray[np.float64], steps: EnvSteps) -> Factors:
    """The mean of log(time) and its spread at each level, from the innermost outwards."""
    _, episode = np.unique(steps.episode, return_inverse=True)
    step_variance = _variance_within(logs, np.zeros(len(logs)), episode)
    per_episode, num_steps = _means(logs, np.ones(len(logs)), episode)
    env_of = np.zeros(len(num_steps), np.intp)
    env_of[episode] = np.unique(steps.env, return_inverse=True)[1]
    noise = step_variance / num_steps
    num_envs, num_episodes = int(env_of.max()) + 1, len(num_steps)
    if num_episodes > num_envs:
        episode_variance = _variance_within(per_episode, noise, env_of)
        of_episodes = Entry(_sigma(episode_variance), f"between {num_episodes:,} episodes, less what steps alone give")
    else:
        episode_variance = 0.0
        of_episodes = Entry(0.0, f"{ASSUMED}: no environment had two episodes")
    per_env, weight = _means(per_episode, 1 / np.maximum(episode_variance + noise, 1e-12), env_of)
    if num_envs > 1:
        env_variance = _variance_within(per_env, 1 / weight, np.zeros(num_envs, np.intp))
        of_envs = Entry(
            _sigma(env_variance), f"between {num_envs} environments, less what episodes and steps alone give"
        )
    else:
        of_envs = Entry(0.0, f"{ASSUMED}: the run had one environment")
    return Factors(mean=float(per_env.mean()), step_sigma=_sigma(step_variance), episode=of_episodes, env=of_envs)


def _means(
    values: NDArray[np.float64], weights: NDArray[np.float64], group: NDArray[np.intp]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weighted mean of each group, and its weight."""
    weight: NDArray[np.float64] = np.bincount(group, weights)  # type: ignore[assignment]  # weighted counts are floats
    return np.bincount(group, values * weights) / weight, weight


def _variance_within(values: NDArray[np.float64], noise: NDArray[np.float64], group: NDArray[np.intp]) -> float:
    """Variance of values within their groups beyond that which `noise`, a variance for each value, explains."""
    mean, num = _means(values, np.ones(len(values)), group)
    freedom = len(values) - len(num)
    if freedom == 0:
        return 0.0
    squares = float(((values - mean[group]) ** 2).sum())
    explained = float(((num - 1) * _means(noise, np.ones(len(values)), group)[0]).sum())
    return max(0.0, squares - explained) / freedom


def _sigma(variance: float) -> float:
    return min(math.sqrt(variance), LARGEST_SIGMA)


def _said_of(entry: Entry, workload: str) -> Entry:
    return entry._replace(how=f"{entry.how}; of the {workload} workload")


def episode_steps(counters: Counters) -> Entry:
    """Mean length of an episode."""
    if counters.episodes:
        mean = max(1.0, counters.env_steps / counters.episodes)
        return Entry(mean, f"{counters.env_steps:,} env steps / {counters.episodes:,} episodes that ended")
    return Entry(float(max(1, counters.env_steps)), f"{ASSUMED}: no episode ended in all env steps of the run")


def _reset(reset_s: NDArray[np.float64]) -> Entry:
    if len(reset_s):
        return Entry(1e3 * float(reset_s.mean()), f"mean of {len(reset_s):,}, without each environment's first")
    return Entry(0.0, f"{ASSUMED}: no environment was reset twice")
