"""Calls that step environments, and how long they take by how many they step: the table `batch` of a profile.

Each environment of a batch has the spans of the whole call, to the bit; here a call counts once, and says for how many
environments it was. Its time holds its resets, also where a call of their own makes them. C environments of a call.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rlbench.harness.commands.profile import ASSUMED, Entry, Table
from rlbench.harness.commands.profile.steps import LARGEST_SIGMA, EnvSteps, episode_steps

if TYPE_CHECKING:
    import pandas as pd

    from rlbench.results.records.schema import Counters

POOLS = (
    "has environments in pools that answer for some of them at a time; profile one with vector=native, sync or "
    "process, or recv=0"
)
MOST_BY_CHANCE = 0.01
"""Share of the steps that may have the same span as one of another batch: clocks have nanoseconds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Calls:
    """The calls of one or several runs that step C environments each."""

    size: int
    """C; 1 where each environment is stepped by itself."""
    mean_ms: float
    """Of work, resets included; see `cores.py`."""
    sigma: float
    """Of log(time)."""
    num: int

    @classmethod
    def of(cls, steps: EnvSteps, size: int) -> Calls:
        """Those of a run, at least one; `steps` are of calls."""
        total_s = float(steps.seconds.sum() + steps.reset_s.sum())
        spread = min(float(np.log(steps.seconds).std()), LARGEST_SIGMA)
        return cls(size=size, mean_ms=1e3 * total_s / len(steps.seconds), sigma=spread, num=len(steps.seconds))


def once_each(spans: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """A run's spans with one row for each call, and C.

    Returns:
        The spans, with a column `envs`: how many environments each was for, 0 where it is the rank's; a call has the
        number of its first environment. It is a `simulate` span if it stepped any.

    Raises:
        ValueError: without the run's name, where environments answer in ever other groups.
    """
    is_env = spans["environment"] >= 0
    of_envs, moments = spans[is_env], ["rank", "begin_s", "end_s"]
    groups = of_envs.assign(steps=of_envs["kind"] == "simulate").groupby(moments)
    steps = groups["steps"].transform("any").to_numpy()  # those that step none may be of several batches
    first, size = (groups["environment"].transform(name).to_numpy()[steps] for name in ("min", "size"))
    usual = int(np.median(size)) if len(size) else 1
    if usual == 1:
        return spans.assign(envs=is_env.astype(np.int64)), 1
    number = of_envs["environment"].to_numpy()
    apart = (number[steps] // usual != first // usual).mean()
    if apart > MOST_BY_CHANCE or (number.max() + 1) % usual:
        raise ValueError(POOLS)
    of_envs = of_envs.assign(environment=number - number % usual)
    keys = ["rank", "environment", "begin_s", "end_s"]
    calls = of_envs.assign(envs=of_envs.groupby(keys)["kind"].transform("size"))
    calls = calls.sort_values([*keys, "kind"], ascending=[True] * len(keys) + [False], kind="stable")  # steps first
    calls = calls.drop_duplicates(keys)
    rest = spans[~is_env].assign(envs=0)
    return _joined(calls[(calls["kind"] == "reset") | (calls["envs"] == usual)], rest), usual


def _joined(calls: pd.DataFrame, rest: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    return pd.concat([rest, calls], ignore_index=True)


def by_size(found: Iterable[Calls]) -> tuple[Calls, ...]:
    """The calls of several runs, by ascending C; of runs with the same C their mean. None if all are of 1."""
    sizes: dict[int, list[Calls]] = {}
    for calls in found:
        sizes.setdefault(calls.size, []).append(calls)
    if sizes.keys() == {1}:
        return ()
    return tuple(_mean(sizes[size]) for size in sorted(sizes))


def _mean(alike: list[Calls]) -> Calls:
    num = sum(calls.num for calls in alike)
    mean_ms, variance = (
        sum(calls.num * value for calls, value in zip(alike, values, strict=True)) / num
        for values in ([calls.mean_ms for calls in alike], [calls.sigma**2 for calls in alike])
    )
    return Calls(size=alike[0].size, mean_ms=mean_ms, sigma=math.sqrt(variance), num=num)


def call_tables(calls: Calls, counters: Counters) -> dict[str, Table]:
    """The tables of single environments where no run stepped any: as far as calls for C tell.

    Args:
        calls: of the run.
        counters: of the run.
    """
    alone_ms = Entry(
        calls.mean_ms / calls.size, f"{ASSUMED}: a call / its {calls.size} environments; none stepped alone"
    )
    apart = f"{ASSUMED}: calls do not tell environments apart"
    return {
        "step": {"median_ms": alone_ms, "sigma": Entry(0.0, apart)},
        "collision": {
            "median_ms": alone_ms,
            "share": Entry(0.0, apart),
            "mean_stay_steps": Entry(1.0, apart),
        },
        "episode": {
            "mean_steps": episode_steps(counters),
            "sigma": Entry(0.0, apart),
            "reset_ms": Entry(0.0, f"{ASSUMED}: not separable, in the calls"),
        },
        "heterogeneous": {"sigma": Entry(0.0, apart)},
    }
