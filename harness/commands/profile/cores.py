"""The cores of a rank, and the core time of each span while environments outnumbered the cores.

A span is the wall-clock time from call to return. Where 16 environments share 2 cores, most of it is waiting for a
core. A profile needs the work alone: emulated environments wait for `cpu.cores_per_gpu` cores themselves, and would
otherwise wait twice. S spans.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from harness.commands.profile import ASSUMED
from results.fairness.aspects import part, usable_cores

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from results.records.schema import RunRecord

WAITS = ("simulate", "communicate", "wait:")
"""Prefixes of the spans in which a rank's thread needs no core."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cores:
    """The cores on which the environments of a rank step."""

    num: float
    """Number of cores, not always whole; infinity if each environment has one."""
    rank_share: float
    """Share of the time for which the rank itself needs one of them."""
    how: str
    """Where the number comes from."""

    @property
    def per_gpu(self) -> int:
        """The number as a profile states it: whole, 0 for as many as there are environments."""
        return max(1, round(self.num)) if math.isfinite(self.num) else 0


def cores_of(record: RunRecord) -> Cores:
    """The cores that each rank of a run had: those of its profile if it had one, else its share of the machine's."""
    cell = record.cell
    if part(record, "scenario", "profile") is not None:
        num = part(record, "scenario", "profile", "cpu", "cores_per_gpu") if cell.device == "emulated" else 0
        told = num if isinstance(num, (int, float)) and num > 0 else math.inf
        return Cores(num=told, rank_share=0.0, how="of the profile that was run")
    usable = usable_cores(record)
    if not usable:
        return Cores(num=math.inf, rank_share=0.0, how=f"{ASSUMED}: the run does not tell; 0 is one per environment")
    works = sum(share for kind, share in record.figures.time_shares.items() if not kind.startswith(WAITS))
    return Cores(
        num=usable / cell.gpus,
        rank_share=min(works, 1.0) if cell.device == "cpu" else 0.0,
        how=f"{usable:g} usable cores of the machine / {cell.gpus} rank(s)",
    )


def seconds_of_work(begin_s: NDArray[np.float64], end_s: NDArray[np.float64], cores: Cores) -> NDArray[np.float64]:
    """Core seconds of each span, if at every moment all open spans had equal shares of the cores.

    Args:
        begin_s: when the spans of one rank's environments began, [S], in any order.
        end_s: when they ended, [S].
        cores: those that they shared with the rank.

    Returns:
        Seconds [S]; the spans' own lengths as long as there were cores for all.
    """
    if not math.isfinite(cores.num) or not len(begin_s):
        return end_s - begin_s
    moments = np.concatenate([begin_s, end_s])
    order = np.argsort(moments, kind="stable")
    moments = moments[order]
    num_open = np.cumsum(np.repeat([1, -1], len(begin_s))[order])[:-1]
    share = np.minimum(1.0, cores.num / np.maximum(num_open + cores.rank_share, 1.0))
    had_s = np.concatenate([[0.0], np.cumsum(np.diff(moments) * share)])
    worked: NDArray[np.float64] = np.interp(end_s, moments, had_s) - np.interp(begin_s, moments, had_s)
    return worked
