"""A run folder as a rank would have left it that collects dynamically, from the draws of a profile; nothing runs.

The rank infers for whoever waits; an environment steps as long as the profile's generators say, and its next step
begins a moment after the inference that it was in. So what a profile of the folder should say is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rlbench.results.records.schema import Counters, RunRecord, WindowRecord
from rlbench.scenarios.emulated.profile import Profile
from rlbench.scenarios.emulated.times import BlocksOfTimes
from tests.results.made_records import make_record

DISPATCH_S = 1e-4
"""From the end of an inference to the beginning of a step."""
LEARN_S = 3.0
"""Of each of the two iterations."""


def infer_s(profile: Profile, size: int) -> float:
    """Seconds of an inference for so many environments."""
    return (profile.gpu.infer_fixed_ms + profile.gpu.infer_item_ms * size) / 1e3


def draw(profile: Profile, workload: str, num_envs: int, num_steps: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Seconds of each step, and whether it ends its episode, [environments, steps]."""
    times = BlocksOfTimes(profile, workload, range(num_envs))
    blocks = [times.draw(range(num_envs)) for _ in range(-(-num_steps // 256))]
    seconds, ends = (np.concatenate(parts, axis=1)[:, :num_steps] for parts in zip(*blocks, strict=True))
    return seconds, ends


def make_spans(
    profile: Profile,
    workload: str = "homogeneous",
    *,
    num_envs: int = 16,
    num_steps: int = 1024,
    takes: Callable[[int, int], float] | None = None,
) -> pd.DataFrame:
    """`spans.parquet` of one rank, until an environment has done all its steps.

    `takes`: seconds of an inference by its number and its size; else the profile's.
    """
    seconds, ends = draw(profile, workload, num_envs, num_steps)
    takes = takes or (lambda _, size: infer_s(profile, size))
    return pd.DataFrame(
        list(_spans(seconds, ends, profile.episode.reset_ms / 1e3, takes)),
        columns=["rank", "environment", "begin_s", "end_s", "kind"],
    )


def _spans(
    seconds: NDArray[Any], ends: NDArray[Any], reset_s: float, takes: Callable[[int, int], float]
) -> Iterator[tuple[int, int, float, float, str]]:
    num_envs, num_steps = seconds.shape
    for env in range(num_envs):
        yield 0, env, -1.0, -0.5, "reset"
    free_s, done, now, number = np.zeros(num_envs), np.zeros(num_envs, np.intp), 0.0, 0
    while done.max() < num_steps:
        now = max(now, float(free_s.min()))
        batch = np.flatnonzero(free_s <= now)
        end = now + takes(number, len(batch))
        yield 0, -1, now, end, "infer"
        now, number = end, number + 1
        for env in batch.tolist():
            begin = now + DISPATCH_S
            free_s[env] = begin + seconds[env, done[env]]
            yield 0, env, begin, free_s[env], "simulate"
            if ends[env, done[env]]:
                yield 0, env, free_s[env], free_s[env] + reset_s, "reset"
                free_s[env] += reset_s
            done[env] += 1


def make_series(num_learned: int, num_reused: int, num_ranks: int = 1) -> pd.DataFrame:
    """`series.parquet`: of each rank a slow iteration 0, and two that count and share the samples."""
    rows = [
        {
            "rank": rank,
            "iteration": iteration,
            "begin_s": 10.0 * iteration,
            "end_s": 10.0 * (iteration + 1),
            "learned": num_learned // 2 if iteration else 1,
            "reused": num_reused // 2 if iteration else 1,
            "span/learn": LEARN_S if iteration else 9.0,
            "span/communicate": 0.2 * rank if iteration else 9.0,
        }
        for rank in range(num_ranks)
        for iteration in range(3)
    ]
    return pd.DataFrame(rows)


def record_of(profile: Profile, spans: pd.DataFrame, *, workload: str = "homogeneous", **changes: Any) -> RunRecord:
    """The record of a run with those spans; `changes` override."""
    of_envs = spans[spans["environment"] >= 0]
    resets, num_envs = int((of_envs["kind"] == "reset").sum()), int(of_envs["environment"].nunique())
    fields: dict[str, Any] = {
        "cell": {"workload": workload, "device": "emulated", "system": "nover"},
        "counters": Counters(env_steps=int((of_envs["kind"] == "simulate").sum()), episodes=max(0, resets - num_envs)),
        "configuration": {
            "scenario": {
                "num_envs": num_envs,
                "rollout_steps": profile.collect.rollout_steps,
                "profile": profile.model_dump(),
                "learn": {"epochs": 2, "num_minibatches": 2},
            }
        },
        "figures": {
            "window": WindowRecord(
                protocol="steady", first_iteration=1, last_iteration=2, begin_s=10, end_s=30, steady=True
            )
        },
    }
    return make_record("nover", **fields | changes)


def write_run(folder: Path, spans: pd.DataFrame | None, series: pd.DataFrame | None) -> Path:
    """The tables of a run folder, or some of them."""
    if spans is not None:
        spans.to_parquet(folder / "spans.parquet")
    if series is not None:
        series.to_parquet(folder / "series.parquet")
    return folder
