"""The cores of a rank, and the work in each span while more wanted a core than there were.

A span is the wall-clock time from call to return. Where 16 environments share 2 cores, some of it may be waiting for a
core; where the rank has no GPU, its inference and learning want cores, too. A profile needs the work alone: what it is
for waits for `cpu.cores_per_gpu` cores itself, and would otherwise wait twice.

The CPU time of the thread tells, which runs do record. It does not tell of a simulator in another process. There, the
spans that are open at a moment are taken to have had equal shares of the cores, which is the least that they had: a
kernel lets a process that wakes for a short step go before one that computes all the time. S spans.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rlbench.harness.commands.profile import ASSUMED
from rlbench.results.fairness.aspects import part, usable_cores

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from rlbench.results.records.schema import RunRecord

WAITS = ("simulate", "communicate", "wait:", "other")
"""Prefixes of the kinds of spans in which a rank's thread wants no core, or is not known to."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cores:
    """The cores on which the environments of a rank step."""

    num: float
    """Number of cores, not always whole; infinity if each environment has one."""
    num_learning: int
    """How many of them the rank's learning holds, because it has no GPU, and all its work wants one; 0: it has one."""
    how: str
    """Where the number comes from."""

    @property
    def per_gpu(self) -> int:
        """The number as a profile states it: whole, 0 for as many as there are environments."""
        return max(1, round(self.num)) if math.isfinite(self.num) else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class CpuShares:
    """CPU time / time, as a run recorded it."""

    ranks: Mapping[str, float]
    """In the ranks' spans of each kind."""
    env: float | None
    """In env steps; None where the run does not tell."""


NOT_TOLD = CpuShares(ranks={}, env=None)


def cpu_shares_of(record: RunRecord) -> CpuShares:
    """What a run recorded."""
    return CpuShares(ranks=record.figures.cpu_shares, env=record.figures.env_cpu_share)


def cores_of(record: RunRecord) -> Cores:
    """The cores that each rank of a run had: those of its profile if it had one, else its share of the machine's."""
    cell = record.cell
    if part(record, "scenario", "profile") is not None:
        cpu = part(record, "scenario", "profile", "cpu") if cell.device == "emulated" else None
        num, learning = (cpu.get(key) if isinstance(cpu, dict) else 0 for key in ("cores_per_gpu", "learn_cores"))
        told = num if isinstance(num, (int, float)) and num > 0 else math.inf
        num_learning = learning if isinstance(learning, int) else 0
        return Cores(num=told, num_learning=num_learning, how="of the profile that was run")
    usable = usable_cores(record)
    if not usable:
        return Cores(num=math.inf, num_learning=0, how=f"{ASSUMED}: the run does not tell; 0 is one per environment")
    num = usable / cell.gpus
    return Cores(
        num=num,
        num_learning=max(1, round(num)) if cell.device == "cpu" else 0,
        how=f"{usable:g} usable cores of the machine / {cell.gpus} rank(s)",
    )


def with_work(spans: pd.DataFrame, cores: Cores, cpu: CpuShares = NOT_TOLD) -> pd.DataFrame:
    """The spans with a column `work_s`: seconds for which each had the cores that it wanted.

    A rank that waits wants none, and on a GPU a rank does not need one to infer or learn.
    """
    took_s = (spans["end_s"] - spans["begin_s"]).to_numpy(np.float64)
    is_env = (spans["environment"] >= 0).to_numpy()
    waits = spans["kind"].str.startswith(WAITS).to_numpy(np.bool_) & ~is_env
    wants = is_env | (~waits if cores.num_learning else (spans["kind"] == "schedule").to_numpy())
    claims = np.where((spans["kind"] == "learn").to_numpy(), float(max(1, cores.num_learning)), 1.0)
    work_s = took_s.copy()
    for rank in spans["rank"].unique():
        those = wants & (spans["rank"] == rank).to_numpy()
        begin_s, end_s = (spans[name].to_numpy(np.float64)[those] for name in ("begin_s", "end_s"))
        work_s[those] = seconds_of_work(begin_s, end_s, claims[those], cores.num)
    if cpu.env is not None and is_env.any() and math.isfinite(cores.num):
        steps = is_env & (spans["kind"] == "simulate").to_numpy()
        had = float(work_s[steps].sum() / took_s[steps].sum()) if took_s[steps].sum() > 0 else 1.0
        if cpu.env > had:
            work_s[is_env] = min(cpu.env, 1.0) * took_s[is_env]
    for kind, share in cpu.ranks.items():
        those = wants & ~is_env & (spans["kind"] == kind).to_numpy()
        if kind == "learn" and cores.num_learning > 1:
            continue  # the thread waits for others that learn, too
        work_s[those] = min(share, 1.0) * took_s[those]
    return spans.assign(work_s=work_s)


def seconds_of_work(
    begin_s: NDArray[np.float64], end_s: NDArray[np.float64], claims: NDArray[np.float64], num_cores: float
) -> NDArray[np.float64]:
    """Seconds for which each span had its cores, if at every moment those of all open spans had equal shares of them.

    Args:
        begin_s: when the spans of one rank began, [S], in any order.
        end_s: when they ended, [S].
        claims: cores that each wanted, [S].
        num_cores: that there were.

    Returns:
        Seconds [S]; the spans' own lengths as long as there were cores for all.
    """
    if not math.isfinite(num_cores) or not len(begin_s):
        return end_s - begin_s
    moments = np.concatenate([begin_s, end_s])
    order = np.argsort(moments, kind="stable")
    moments = moments[order]
    wanted = np.cumsum(np.concatenate([claims, -claims])[order])[:-1]
    share = np.minimum(1.0, num_cores / np.maximum(wanted, 1.0))
    had_s = np.concatenate([[0.0], np.cumsum(np.diff(moments) * share)])
    worked: NDArray[np.float64] = np.interp(end_s, moments, had_s) - np.interp(begin_s, moments, had_s)
    return worked
