"""The times of inference, learning and synchronising: the tables `gpu` and `network` of a profile.

No span says how many environments an inference was for. But each env step follows the inference that chose its action,
so the batch size is the number of the rank's env steps that begin between the end of that inference and the end of the
next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rlbench.harness.commands.profile import ASSUMED, Entry, Table
from rlbench.harness.commands.profile.cores import NOT_TOLD, CpuShares
from rlbench.harness.contract.network_costs import LEAST_MB_PER_S, MOST_LATENCY_MS, MOST_MB_PER_S

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

OWN, SAMPLER = -1, -2
"""Values of `environment` in `spans.parquet` that stand for the rank's main thread and for its sampler thread."""
SCHEDULING = ("span/schedule", "sampler/schedule")
LISTENING = ("span/simulate", "sampler/simulate")
"""Columns of a series: of the main thread, and of the one that samples, where there are two. It waits for replies in
spans `simulate`, and reads them.
"""
LEAST_RATIO = 1.5
"""Sizes of mini-batches of two runs, larger / smaller, from which on they tell what one costs."""
LEAST_FOLLOWING = 0.5
"""Share of the env steps that must follow an inference of their rank; where actors infer by themselves, few do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Inferences:
    """Inferences whose batch size is known."""

    seconds: NDArray[np.float64]
    """Of work; see `cores.py`."""
    sizes: NDArray[np.intp]
    """How many environments each was for."""


def read_inferences(spans: pd.DataFrame) -> Inferences:
    """The inferences of all ranks, from spans with their work.

    Raises ValueError, without the run's name, when there are none to learn from.
    """
    of_ranks = [_of_rank(spans[spans["rank"] == rank]) for rank in sorted(spans["rank"].unique())]
    seconds, sizes = (np.concatenate(parts) for parts in zip(*of_ranks, strict=True))
    if not len(sizes):
        raise ValueError("has no infer spans that env steps follow; let it run for longer")
    return Inferences(seconds=seconds, sizes=sizes)


def _of_rank(spans: pd.DataFrame) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    infers = spans[spans["kind"] == "infer"]
    samplers = infers[infers["environment"] == SAMPLER]
    own = samplers if len(samplers) else infers[infers["environment"] == OWN]  # the thread that samples
    own = own.sort_values("begin_s")
    begin_s, end_s, work_s = (own[name].to_numpy(np.float64) for name in ("begin_s", "end_s", "work_s"))
    envs = spans[spans["environment"] >= 0].sort_values(["environment", "begin_s"], kind="stable")
    if not len(own) or not len(envs):
        return np.empty(0), np.empty(0, np.intp)
    is_step = ((envs["kind"] == "simulate") & (envs["environment"] == envs["environment"].shift())).to_numpy()
    answered_s = envs["end_s"].shift().to_numpy(np.float64)[is_step]
    followed = np.searchsorted(end_s, envs["begin_s"].to_numpy(np.float64)[is_step], side="right") - 1
    known = followed >= 0
    answered_s, followed = answered_s[known], followed[known]
    if (begin_s[followed] >= answered_s).sum() < LEAST_FOLLOWING * len(followed):
        raise ValueError("has env steps that follow no inference of their rank; profile a run of another system")
    sizes = np.bincount(followed, _envs_of(envs)[is_step][known], minlength=len(own)).astype(np.intp)
    all_known_s = envs.groupby("environment")["begin_s"].min().max()
    whole = (sizes > 0) & (begin_s >= all_known_s) & (np.arange(len(own)) > 0)  # what the first is for may have begun
    return work_s[whole], sizes[whole]


def _envs_of(rows: pd.DataFrame) -> NDArray[np.int64]:
    """How many environments each span of environments is for, [S]; see `calls.py`."""
    return rows["envs"].to_numpy(np.int64) if "envs" in rows else np.ones(len(rows), np.int64)


def joined(runs: Sequence[Inferences]) -> Inferences:
    """Those of several runs."""
    return Inferences(
        seconds=np.concatenate([run.seconds for run in runs]), sizes=np.concatenate([run.sizes for run in runs])
    )


def fit_inference(inferences: Inferences) -> tuple[Entry, Entry]:
    """Milliseconds per batch and per item: a line fitted to the median time of each batch size, neither below 0.

    Medians, because other work of the machine only adds to some times; each is weighted by its number of batches.
    """
    sizes, num = np.unique(inferences.sizes, return_counts=True)
    medians_ms = np.array([1e3 * np.median(inferences.seconds[inferences.sizes == size]) for size in sizes])
    if len(sizes) == 1:
        only = f"all {num[0]:,} batches were of {sizes[0]}"
        return Entry(float(medians_ms[0]), f"median; {only}: items are in it"), Entry(0.0, f"not separable: {only}")
    weight = num / num.sum()
    mean_size, mean_ms = float(weight @ sizes), float(weight @ medians_ms)
    item_ms = float(weight @ ((sizes - mean_size) * (medians_ms - mean_ms)) / (weight @ (sizes - mean_size) ** 2))
    item_ms = max(0.0, item_ms)
    fixed_ms = mean_ms - item_ms * mean_size
    if fixed_ms < 0:
        fixed_ms, item_ms = 0.0, float(weight @ (sizes * medians_ms) / (weight @ sizes**2))
    how = f"line through the medians of {num.sum():,} batches of {sizes[0]} to {sizes[-1]}"
    return Entry(fixed_ms, how), Entry(item_ms, how)


@dataclass(frozen=True, kw_only=True, slots=True)
class Learning:
    """What a run's learning took."""

    seconds: float
    """Of work; see `cores.py`."""
    num_samples: int
    """Reuse included."""
    num_updates: int
    """Mini-batches; 0 where the run does not tell."""

    @property
    def updates_per_sample(self) -> float:
        """Mini-batches / samples."""
        return self.num_updates / self.num_samples

    def tells_apart(self, other: Learning) -> bool:
        """Whether mini-batches of both differ so much in size that a line through both means something."""
        few, many = sorted((self.updates_per_sample, other.updates_per_sample))
        return few > 0 and many / few >= LEAST_RATIO


def read_learning(series: pd.DataFrame, spans: pd.DataFrame, updates_each: int) -> Learning:
    """The learning in the iterations that count. Raises ValueError, without the run's name, when there is none.

    Args:
        series: the iterations that count.
        spans: with their work.
        updates_each: mini-batches of an iteration.
    """
    num_samples = int(series["learned"].sum() + series["reused"].sum())
    if num_samples <= 0:
        raise ValueError("has no learned samples; let it run for longer")
    seconds = float(series["span/learn"].sum()) * had_of(spans, "learn")
    return Learning(seconds=seconds, num_samples=num_samples, num_updates=updates_each * len(series))


def fit_learning(learning: Learning, other: Learning | None) -> tuple[Entry, Entry]:
    """Milliseconds per mini-batch and per sample, from runs whose mini-batches differ in size; neither below 0.

    The time per sample of each is a line in its mini-batches per sample. From one run all of it is per sample.
    """
    ms, updates = 1e3 * learning.seconds / learning.num_samples, learning.updates_per_sample
    how = f"{learning.seconds:.3g} s of learning / {learning.num_samples:,} samples, reuse included"
    if other is None:
        return Entry(0.0, f"{ASSUMED}: not separable, in learn_item_ms"), Entry(ms, how)
    apart = updates - other.updates_per_sample
    fixed_ms = max(0.0, (ms - 1e3 * other.seconds / other.num_samples) / apart) if apart else 0.0
    fixed_ms = min(fixed_ms, ms / updates) if updates else 0.0
    sizes = (f"{each.num_samples / each.num_updates:,.0f}" for each in (learning, other) if each.num_updates)
    line = f"line through learning in mini-batches of {' and of '.join(sizes)} samples"
    return Entry(fixed_ms, line), Entry(ms - fixed_ms * updates, f"{how}, less that")


def schedule_item(series: pd.DataFrame, spans: pd.DataFrame, cpu: CpuShares = NOT_TOLD) -> Entry:
    """Milliseconds of the rank's process for each env step, beside inference and learning."""
    num_steps = int(series["learned"].sum())
    choosing_s, listening_s = (
        float(sum(series[name].sum() for name in names if name in series)) for names in (SCHEDULING, LISTENING)
    )
    seconds = choosing_s * had_of(spans, "schedule") + listening_s * cpu.ranks.get("simulate", 0.0)
    return Entry(1e3 * seconds / max(1, num_steps), f"{seconds:.3g} s of scheduling / {num_steps:,} env steps")


def had_of(spans: pd.DataFrame, kind: str) -> float:
    """Share of a kind of span of the ranks for which they had the cores that they wanted; 1 where there is none."""
    own = spans[(spans["environment"] < 0) & (spans["kind"] == kind)]
    took_s = float((own["end_s"] - own["begin_s"]).sum())
    return float(own["work_s"].sum()) / took_s if took_s > 0 else 1.0


def gpu_table(inferences: Inferences, learning: Learning, other: Learning | None) -> Table:
    """The table `gpu`; `other` is the learning of a run whose mini-batches have another size, if there is one."""
    fixed, item = fit_inference(inferences)
    learn_fixed, learn_item = fit_learning(learning, other)
    alone = Entry(1.0, f"{ASSUMED}: spans do not tell what contention costs")
    return {
        "render_ms": Entry(0.0, "not separable: in step.median_ms, and what inference waits for it in infer_…"),
        "infer_fixed_ms": fixed,
        "infer_item_ms": item,
        "prepare_ms": Entry(0.0, "not separable: in learn_item_ms"),
        "learn_fixed_ms": learn_fixed,
        "learn_item_ms": learn_item,
        "render_while_learning_factor": alone,
        "learn_while_rendering_factor": alone,
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class AssumedLink:
    """Assumptions about the network, which a run on one machine does not measure."""

    latency_ms: float = 0.05
    """Latency of one message."""
    bandwidth_mb_per_s: float = 10_000.0
    """Bandwidth of each GPU's link."""
    weights_mb: float = 20.0
    """Size of the policy, where the run left no weights file."""

    def __post_init__(self) -> None:
        """Checks what a user can set."""
        rules = (
            ("--latency-ms", self.latency_ms, 0.0, MOST_LATENCY_MS),
            ("--bandwidth-mb-per-s", self.bandwidth_mb_per_s, LEAST_MB_PER_S, MOST_MB_PER_S),
        )
        for flag, value, least, most in rules:
            if not least <= value <= most:
                raise ValueError(f"{flag} {value:g}: must be from {least:g} to {most:g}")


def network_table(series: pd.DataFrame, num_ranks: int, weights_bytes: int | None, link: AssumedLink) -> Table:
    """The table `network`.

    Args:
        series: the iterations that count, of all ranks.
        num_ranks: of the run.
        weights_bytes: size of the policy's file; None if there is none.
        link: what is assumed.
    """
    if num_ranks > 1:
        least_s = series.groupby("iteration")["span/communicate"].min()  # the others also wait for the last to come
        how = f"mean of {len(least_s):,} iterations of {num_ranks} ranks on one machine, the least of each"
        synchronize = Entry(1e3 * float(least_s.mean()), how)
    else:
        synchronize = Entry(0.0, f"{ASSUMED}: the run had one rank")
    if weights_bytes is None:
        weights = Entry(link.weights_mb, f"{ASSUMED}: the run left no weights")
    else:
        weights = Entry(weights_bytes / 1e6, "size of policy.pt")
    return {
        "synchronize_ms": synchronize,
        "synchronize_doubling_ms": Entry(0.0, f"{ASSUMED}: one number of ranks does not tell"),
        "latency_ms": Entry(link.latency_ms, ASSUMED),
        "bandwidth_mb_per_s": Entry(link.bandwidth_mb_per_s, ASSUMED),
        "weights_mb": weights,
    }
