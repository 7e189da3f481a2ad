"""Checks that a learning phase is still finite: its losses, its gradients, and the weights that it leaves.

    means, broken = gather(stats, policy.parameters())     # once for each learning phase: waits for the device
    if broken is not None: raise NotFinite(...)

One loss that is not finite spoils every later loss and all weights. That is no longer learning, so the run fails.
Letters: U updates, S samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from collections.abc import Sequence as Listed
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rlbench.harness.processes.raised import EndsTheRun
from rlbench.systems.learn.batch import Batch
from rlbench.systems.learn.ppo import STATS, mean_rows

WATCHED = ("loss", "grad_norm")
HUGE_REWARD = 1e6
"""A reward this large, squared in a loss and summed over a batch, comes close to what float32 cannot hold."""


class NotFinite(EndsTheRun, ArithmeticError):  # noqa: N818  says what is the case
    """A loss, a gradient or a weight is infinite or NaN."""


@dataclass(frozen=True, slots=True)
class Broken:
    """The first update that was not finite."""

    update: int
    """Its index in the learning phase, from 0."""
    what: str
    """`loss`, `grad_norm` or `weights`."""
    value: float


@dataclass(frozen=True, slots=True)
class Suspect:
    """The environment of a batch that is most likely the cause."""

    env: int
    reward: float
    """Its largest reward, by absolute value."""
    is_clear: bool
    """Whether its returns are not finite while another's are, or its reward is huge."""


def gather(
    stats: Listed[dict[str, Tensor]], parameters: Iterable[nn.Parameter]
) -> tuple[dict[str, float], Broken | None]:
    """Means over the U updates by name, and the first update that broke, if any; waits for the device once."""
    rows, means = mean_rows(stats)  # [U, K], [K]
    largest = largest_weight(parameters).to(rows)
    values = torch.cat((means, rows.reshape(-1), largest.reshape(1))).tolist()
    broken = _first_broken(np.array(values[len(STATS) : -1]).reshape(rows.shape), values[-1])
    return dict(zip(STATS, values, strict=False)), broken


def largest_weight(parameters: Iterable[nn.Parameter]) -> Tensor:
    """The largest absolute weight, NaN or infinite if any is: a 0-dimensional tensor on the weights' device."""
    return nn.utils.get_total_norm([parameter.detach() for parameter in parameters], norm_type=math.inf)


def check_weights(parameters: Iterable[nn.Parameter]) -> None:
    """Raises NotFinite if a weight is infinite or NaN; waits for the device."""
    largest = float(largest_weight(parameters))
    if not math.isfinite(largest):
        raise NotFinite(f"weights are {largest} at the end of the run, they must be finite")


def _first_broken(rows: NDArray[np.float64], largest: float) -> Broken | None:
    for update, row in enumerate(rows):
        for name in WATCHED:
            if not math.isfinite(value := row[STATS.index(name)]):
                return Broken(update, name, float(value))
    return None if math.isfinite(largest) else Broken(len(rows) - 1, "weights", largest)


def most_likely(batch: Batch, runs: Listed[NDArray[np.int64]], envs: Listed[int]) -> Suspect:
    """The environment whose returns are not finite, or else whose reward is the largest.

    Args:
        batch: S samples; sample i is row i of the runs laid end to end.
        runs: only their lengths matter.
        envs: the environment of each run.
    """
    ends = np.cumsum([len(run) for run in runs])[:-1]
    rewards = np.split(batch.rewards.cpu().numpy().astype(np.float64), ends)
    sums = np.split((batch.returns + batch.advantages).cpu().numpy(), ends)
    worst = [float(part[np.abs(part).argmax()]) for part in rewards]
    is_broken = [not np.isfinite(part).all() for part in sums]
    at = max(range(len(envs)), key=lambda run: (is_broken[run], abs(worst[run])))
    is_clear = (is_broken[at] and not all(is_broken)) or abs(worst[at]) >= HUGE_REWARD
    return Suspect(env=envs[at], reward=worst[at], is_clear=is_clear)
