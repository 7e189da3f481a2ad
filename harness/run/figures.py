"""Works out the figures of one run from what its ranks and environment workers left."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from rlbench.harness.metering.meter_file import MAY_BE_UNREPORTED, SPANS
from rlbench.harness.metering.window import Window, steps_per_s
from rlbench.harness.timelines import chain
from rlbench.harness.timelines.timelines import Spans
from rlbench.results.records.schema import Counters, EnvSpread, Figures, Lag, Reading
from rlbench.results.statistics import intervals

if TYPE_CHECKING:
    from rlbench.harness.machine.telemetry import Readings
    from rlbench.harness.metering.fates import Fates
    from rlbench.harness.plan.cells import Cell

Row = dict[str, Any]
NUM_LAST_EPISODES = 100
"""Episode figures are means over this many last episodes."""
LANES = ("span/", "sampler/")
"""Column prefixes of a rank's two timelines; a rank has the second one only if its rows have such columns."""
CORE_WAIT_SOURCE = "schedstat, time for which threads of ranks were ready to run and had no core / the ranks' time"
ENV_SPANS = ("simulate", "reset", "wait:inference")
_RANK_COUNTERS = ("learned", "reused", "discarded", "in_flight")
_ENV_COUNTERS = ("env_steps", "frames", "episodes")


@dataclass(frozen=True, kw_only=True, slots=True)
class Clock:
    """The run's clock: seconds since `perf_counter` read `zero_s`, divided by the time scale."""

    zero_s: float
    time_scale: float

    def at(self, moment_s: float) -> float:
        """Converts a moment of `perf_counter` to the run's clock."""
        return (moment_s - self.zero_s) / self.time_scale

    def lasting(self, seconds: float) -> float:
        """Converts a duration in seconds to the run's clock."""
        return seconds / self.time_scale


class Meters(Protocol):
    """The counters of one rank and its environments, by block; `harness.metering.meter_file` lists their names."""

    @property
    def num_envs(self) -> int:
        """Number of environments of the rank."""

    @property
    def lane_index(self) -> int:
        """Index of the block of the rank's second thread."""

    def count(self, index: int, name: str) -> int:
        """An integer counter of a block."""

    def is_reported(self, name: str) -> bool:
        """Whether the system reports this counter, one of `MAY_BE_UNREPORTED`."""

    def cpu_seconds(self, index: int, kind: str) -> tuple[float, float]:
        """CPU time in a kind of span of a block, and the time of the spans in which it was read."""

    def seconds(self, index: int, name: str) -> float:
        """A float counter of a block, or the seconds spent in a kind of span."""

    def total(self, name: str) -> int:
        """An integer counter, summed over the environments of the rank."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOutput:
    """What the processes of a run left. Times are on the run's clock, but for those of meters."""

    cell: Cell
    clock: Clock
    meters: Mapping[int, Meters]
    """By rank; a rank that died before it made its meter has none."""
    rows: Sequence[Row]
    """The series: one row for each iteration of each rank."""
    episodes: Sequence[Row]
    telemetry: Readings
    spans: Sequence[Row]
    """As in `spans.parquet`; none of a predicted run."""
    in_step: bool
    """Whether the ranks go through the same iterations together."""
    lost: Collection[int]
    """Ranks that ended before their time while the others went on."""
    fates: Sequence[Fates] = ()
    """What ranks that learn left of the samples of each environment, or of each agent."""
    parts: Sequence[str] = ()
    """The part of the scenario that each environment, or agent, has, over all ranks, if the scenario names them."""
    agents_per_env: int = 1
    """A: with more than one, each `environment` here, of a meter, a row or a span, is an agent of one."""


def lost_samples(left: RunOutput) -> dict[int, int]:
    """Samples that each lost rank had collected and neither learned nor discarded; they are lost with it."""
    lost = {}
    for rank in left.lost:
        meter = left.meters.get(rank)
        lost[rank] = (
            max(0, meter.total("env_steps") - meter.count(0, "learned") - meter.count(0, "discarded")) if meter else 0
        )
    return lost


def count(left: RunOutput) -> Counters:
    """Sums over all ranks and environments. What is lost with a rank counts as discarded; unreported counters are None.

    Meters count the steps of agents one by one, and beside them those of their environments, which agents take jointly.
    """
    totals = {name: sum(meter.count(0, name) for meter in left.meters.values()) for name in _RANK_COUNTERS}
    totals |= {name: sum(meter.total(name) for meter in left.meters.values()) for name in _ENV_COUNTERS}
    if left.agents_per_env > 1:
        joint_steps = sum(meter.total("joint_steps") for meter in left.meters.values())
        totals |= {"agent_steps": totals["env_steps"], "env_steps": joint_steps}
    totals["discarded"] += sum(lost_samples(left).values())
    totals["in_flight"] -= sum(left.meters[rank].count(0, "in_flight") for rank in left.lost if rank in left.meters)
    return Counters(**totals).model_copy(update=dict.fromkeys(unreported(left.meters) & totals.keys()))


def unreported(meters: Mapping[int, Meters]) -> set[str]:
    """Counters that no rank reports, and `in_flight` if one rank does not: a rank that was ended has some in flight."""
    return {
        name
        for name in MAY_BE_UNREPORTED
        if not (all if name == "in_flight" else any)(each.is_reported(name) for each in meters.values()) and meters
    }


def work_out(left: RunOutput, counters: Counters, window: Window | None) -> Figures:
    """Works out the figures; without a window, only those of the whole run."""
    meters, clock, telemetry = left.meters.values(), left.clock, left.telemetry
    lag_sum = sum(meter.count(0, "lag_sum") for meter in meters)
    lag_max = max((meter.count(0, "lag_max") for meter in meters), default=0)
    knows_lag = "lag_sum" not in unreported(left.meters)
    last = left.episodes[-NUM_LAST_EPISODES:]
    figures = Figures(
        lag=Lag(mean=lag_sum / counters.learned, max=lag_max) if counters.learned and knows_lag else None,
        steps_counted="collected" if counters.learned is None else "learned",
        memory_bytes=telemetry.memory_bytes(),
        gpu_memory_bytes=telemetry.gpu_memory_bytes(),
        env_step_s=_step_spread(left),
        cpu_shares=_cpu_shares(left),
        **_of_envs(left),
        env_time_shares=_env_shares(left),
        episode_return=_mean(last, "return"),
        episode_length=_mean(last, "length"),
        success=_mean(last, "success"),
        spl=_mean(last, "spl"),
        emulated=left.cell.device == "emulated" or clock.time_scale != 1,
        predicted=left.cell.device == "predicted",
        time_scale=clock.time_scale,
    )
    if window is None:
        return figures
    rate, units = steps_per_s(window), intervals.of_parts(window.parts)
    begin, end = (clock.zero_s + moment * clock.time_scale for moment in _ends(window))
    return figures.model_copy(
        update={
            "steps_per_s": rate,
            "steps_per_s_interval": intervals.interval(units) if units else None,
            "env_steps_per_s": _per_sample(counters, counters.env_steps, rate) if left.agents_per_env > 1 else None,
            "frames_per_s": _per_sample(counters, counters.frames, rate),
            "window": window.to_record(),
            "time_shares": _shares(left, window),
            "utilisation": _utilisation(left, window, begin, end),
            "cpu_percent": telemetry.cpu_percent(begin, end),
            "core_wait": _core_wait(left, window),
            "gpu_power_w": telemetry.gpu_power_w(begin, end),
            "gains": _gains(left, window),
        }
    )


def _per_sample(counters: Counters, number: int, rate: float) -> float | None:
    """The rate of what the whole run has so many of, by that of its samples."""
    return rate * number / counters.samples if counters.samples else None


def _ends(window: Window) -> tuple[float, float]:
    return window.parts[0].begin_s, window.parts[-1].end_s


def _counted(left: RunOutput, window: Window) -> Iterator[tuple[Row, float]]:
    """Yields each row of the window with the share of it that lies inside, which is 1 where ranks go in step."""
    begin_s, end_s = _ends(window)
    for row in left.rows:
        if left.in_step:
            share = float(window.parts[0].iteration <= row["iteration"] <= window.parts[-1].iteration)
        else:
            inside_s = min(end_s, row["end_s"]) - max(begin_s, row["begin_s"])
            share = max(0.0, inside_s) / (row["end_s"] - row["begin_s"])
        if share:
            yield row, share


def _shares(left: RunOutput, window: Window) -> dict[str, float]:
    """Share of the ranks' timelines that each kind of span takes. A lost rank's timeline ends when it is lost."""
    of_ranks: dict[float, list[tuple[Row, float]]] = {rank: [] for rank in range(left.cell.gpus)}
    for row, share in _counted(left, window):
        of_ranks[row["rank"]].append((row, share))
    total_s, seconds = 0.0, dict.fromkeys(SPANS, 0.0)
    for rank, rows in of_ranks.items():
        lasted_s = sum(share * (row["end_s"] - row["begin_s"]) for row, share in rows)
        lanes = [prefix for prefix in LANES if any(f"{prefix}other" in row for row, _ in rows)] or ["span/"]
        total_s += len(lanes) * (lasted_s if rank in left.lost else window.seconds)
        for kind in SPANS:
            columns = [f"{lane}{kind}" for lane in lanes]
            seconds[kind] += sum(share * row.get(column, 0.0) for row, share in rows for column in columns)
    return {kind: spent_s / total_s for kind, spent_s in seconds.items() if spent_s > 0}


def _gains(left: RunOutput, window: Window) -> dict[str, float]:
    """What 10 % more of each stage would give, by the chain of the spans of whole iterations in the window."""
    if not left.spans:
        return {}
    moments: dict[int, set[float]] = defaultdict(set)
    for row, share in _counted(left, window):
        if share == 1:
            moments[row["rank"]] |= {row["begin_s"], row["end_s"]}
    ends = {rank: sorted(each) for rank, each in moments.items()}
    return chain.gains(Spans.of(left.spans), ends, in_step=left.in_step)


def _utilisation(left: RunOutput, window: Window, begin: float, end: float) -> Reading:
    if left.cell.device in {"emulated", "predicted"}:
        busy_s = sum(share * row["gpu_busy_s"] for row, share in _counted(left, window))
        return Reading(
            value=busy_s / (window.seconds * left.cell.gpus),
            source=f"{left.cell.device}: share of the time for which the emulated GPUs were reserved",
        )
    if left.cell.device == "cuda":
        return left.telemetry.utilisation(begin, end)
    return Reading(value=None, source="n/a: the ranks run on the CPU")


def _core_wait(left: RunOutput, window: Window) -> Reading:
    counted = list(_counted(left, window))
    if left.cell.device == "predicted" or not all("core_wait_s" in row for row, _ in counted):
        return Reading(value=None, source=f"not read: {CORE_WAIT_SOURCE}")
    waited_s = sum(share * row["core_wait_s"] for row, share in counted)
    return Reading(value=waited_s / (window.seconds * left.cell.gpus), source=CORE_WAIT_SOURCE)


def _env_shares(left: RunOutput) -> dict[str, float]:
    """Shares of the environments' time: simulating, resetting, waiting for actions."""
    seconds = {
        kind: sum(meter.seconds(1 + env, kind) for meter in left.meters.values() for env in range(meter.num_envs))
        for kind in ENV_SPANS
    }
    total_s = sum(seconds.values())
    return {kind: spent_s / total_s for kind, spent_s in seconds.items() if spent_s > 0}


def _step_spread(left: RunOutput) -> EnvSpread | None:
    num_agents = left.agents_per_env
    means = [
        left.clock.lasting(sum(meter.seconds(1 + row, "step_s") for row in range(first, first + num_agents))) / steps
        for meter in left.meters.values()
        for first in range(0, meter.num_envs, num_agents)
        if (steps := meter.count(1 + first, "env_steps" if num_agents == 1 else "joint_steps"))
    ]
    if not means:
        return None
    mean = sum(means) / len(means)
    variance = sum((value - mean) ** 2 for value in means) / len(means)
    return EnvSpread(mean=mean, min=min(means), max=max(means), cv=math.sqrt(variance) / mean if mean else 0.0)


def _cpu_shares(left: RunOutput) -> dict[str, float]:
    """Of the ranks' spans; both timelines of a rank count."""
    blocks = [(meter, index) for meter in left.meters.values() for index in (0, meter.lane_index)]
    shares = {}
    for kind in SPANS:
        read = [meter.cpu_seconds(index, kind) for meter, index in blocks]  # none of a run that ended before its meters
        used_s, took_s = sum(used_s for used_s, _ in read), sum(took_s for _, took_s in read)
        if used_s > 0 and took_s > 0:
            shares[kind] = used_s / took_s
    return shares


def _of_envs(left: RunOutput) -> dict[str, Any]:
    """How much of their steps' time the environments' threads used a core, and for how long beside them."""
    blocks = [(meter, 1 + env) for meter in left.meters.values() for env in range(meter.num_envs)]
    answering_s = sum(meter.cpu_seconds(index, "wait:inference")[0] for meter, index in blocks)
    if answering_s <= 0:
        return {}
    num_steps = sum(meter.count(index, "env_steps") for meter, index in blocks)
    stepping_s = sum(meter.cpu_seconds(index, "simulate")[0] for meter, index in blocks)
    took_s = sum(meter.seconds(index, "step_s") for meter, index in blocks)
    return {
        "env_cpu_share": stepping_s / took_s if took_s > 0 else None,
        "env_answer_s": left.clock.lasting(answering_s) / num_steps,
    }


def _mean(episodes: Sequence[Row], name: str) -> float | None:
    values = [episode[name] for episode in episodes if math.isfinite(episode[name])]
    return sum(values) / len(values) if values else None
