"""From what the processes of a run left in its folder to its record: `run.json`, and the series as Parquet.

The processes write binary and line files that are cheap to write; this turns them into the files that a run folder
keeps (`series`, `spans`, `episodes`, `telemetry` as Parquet, `stdout.txt`, `stderr.txt`) and removes them. Times in
those files are seconds since the first iteration began, on the run's own clock: for an emulated scenario that is the
profile's, which runs `time_scale` times as long on the wall.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.counted import EPISODE, EPISODE_FIELDS, episodes_path
from harness.meter import SPANS, MeterFile, meter_path
from harness.window import Window, choose_window, steps_per_s
from results.parts import SERIES_FILE, join_ranks
from results.schema import Counters, Figures, Lag, Reading, Spread
from results.statistics import bootstrap_rate

if TYPE_CHECKING:
    from harness.plan import Cell
    from harness.telemetry import Telemetry

NUM_LAST_EPISODES = 100
"""Episode figures are means over so many last episodes."""
LEFT_OVER = ("meter-*.bin", "gpu*.bin", "shm-*.txt", "series-*.jsonl", "episodes-*.bin", "error-*", "cell.json")
LEFT_OVER_TOO = (".meter-*.bin", "outcome.json", ".outcome.json", "rank*.out", "rank*.err")


@dataclass(frozen=True, kw_only=True, slots=True)
class Clock:
    """The run's clock: seconds since `zero_s` of `perf_counter`, slowed by the time scale."""

    zero_s: float
    time_scale: float

    def at(self, moment_s: float) -> float:
        """A moment of `perf_counter` on the run's clock."""
        return (moment_s - self.zero_s) / self.time_scale

    def lasting(self, seconds: float) -> float:
        """A duration on the run's clock."""
        return seconds / self.time_scale


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What a run left, reduced to what its record holds."""

    counters: Counters
    figures: Figures
    problem: str | None
    """Why a run that finished is invalid all the same."""


def measure(folder: Path, cell: Cell, time_scale: float, telemetry: Telemetry) -> Measured:
    """Reads what the ranks left in `folder`, writes the Parquet files there, and works out counters and figures."""
    meters = [meter_path(folder, rank) for rank in range(cell.gpus)]
    files = [MeterFile(path, writable=False) for path in meters if path.exists()]
    rows = _read_series(folder, cell.gpus)
    zero_s = min((row["begin_s"] for row in rows), default=telemetry.rows[0]["t"] if telemetry.rows else 0.0)
    clock = Clock(zero_s=zero_s or 0.0, time_scale=time_scale)
    for row in rows:
        row["begin_s"], row["end_s"] = clock.at(row["begin_s"]), clock.at(row["end_s"])
        for name in row:
            if name.startswith("span/") or name == "gpu_busy_s":
                row[name] = clock.lasting(row[name])
    episodes = _read_episodes(folder, cell.gpus, clock)
    _write_table(folder / SERIES_FILE, rows)
    _write_table(folder / "episodes.parquet", episodes)
    _write_table(folder / "spans.parquet", _read_spans(files, clock))
    _write_table(folder / "telemetry.parquet", [{**row, "t": clock.at(row["t"] or 0.0)} for row in telemetry.rows])
    counters = _count(files)
    window, problem = _window(rows, cell.protocol)
    if not counters.conserved:
        problem = (
            f"conservation broken: {counters.env_steps} env steps collected, but {counters.learned} learned + "
            f"{counters.discarded} discarded + {counters.in_flight} in flight"
        )
    figures = _figures(cell, window, rows, counters, files, episodes, clock, telemetry)
    return Measured(counters=counters, figures=figures, problem=problem)


def gather_streams(folder: Path, num_ranks: int) -> None:
    """Joins the output of all ranks in `stdout.txt` and `stderr.txt`, and removes what the record was made of."""
    for suffix, name in (("out", "stdout.txt"), ("err", "stderr.txt")):
        with (folder / name).open("wb") as joined:
            for rank in range(num_ranks):
                path = folder / f"rank{rank}.{suffix}"
                if path.exists() and (text := path.read_bytes()):
                    joined.write(f"== rank {rank} ==\n".encode() + text)
    for pattern in (*LEFT_OVER, *LEFT_OVER_TOO):
        for path in folder.glob(pattern):
            path.unlink()
    for path in folder.glob("stacks-*.txt"):
        if not path.stat().st_size:
            path.unlink()


def _read_series(folder: Path, num_ranks: int) -> list[dict[str, Any]]:
    rows = []
    for rank in range(num_ranks):
        path = folder / f"series-rank{rank}.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        rows += [json.loads(line) for line in lines if line.endswith("\n")]  # a killed rank may leave half a line
    return rows


def _read_episodes(folder: Path, num_ranks: int, clock: Clock) -> list[dict[str, Any]]:
    episodes = []
    for rank in range(num_ranks):
        path = episodes_path(folder, rank)
        data = path.read_bytes() if path.exists() else b""
        whole = len(data) // EPISODE.size * EPISODE.size
        for values in EPISODE.iter_unpack(data[:whole]):
            episode = dict(zip(EPISODE_FIELDS, values, strict=True))
            episodes.append({"rank": rank, **episode, "end_s": clock.at(episode["end_s"])})
    return sorted(episodes, key=lambda episode: episode["end_s"])


def _read_spans(files: Sequence[MeterFile], clock: Clock) -> list[dict[str, Any]]:
    """The latest spans of each rank and environment; environment -1 is the rank itself."""
    return [
        {
            "rank": rank,
            "environment": block - 1,
            "begin_s": clock.at(begin),
            "end_s": clock.at(end),
            "kind": kind,
        }
        for rank, file in enumerate(files)
        for block in range(1 + file.num_envs)
        for begin, end, kind in file.spans(block)
    ]


def _write_table(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    if rows:
        import pandas as pd

        pd.DataFrame(rows).to_parquet(path, index=False, compression="zstd")


def _count(files: Sequence[MeterFile]) -> Counters:
    of_ranks = {name: sum(file.count(0, name) for file in files) for name in _RANK_COUNTERS}
    of_envs = {name: sum(file.total(name) for file in files) for name in _ENV_COUNTERS}
    return Counters(**of_ranks, **of_envs)


_RANK_COUNTERS = ("learned", "reused", "discarded", "in_flight")
_ENV_COUNTERS = ("env_steps", "frames", "episodes")


def _window(rows: Sequence[dict[str, Any]], protocol: str) -> tuple[Window | None, str | None]:
    keys = ("rank", "iteration", "begin_s", "end_s", "learned")
    try:
        return choose_window(join_ranks(tuple(row[key] for key in keys) for row in rows), protocol), None
    except ValueError as error:
        return None, str(error)


def _figures(
    cell: Cell,
    window: Window | None,
    rows: Sequence[dict[str, Any]],
    counters: Counters,
    files: Sequence[MeterFile],
    episodes: Sequence[dict[str, Any]],
    clock: Clock,
    telemetry: Telemetry,
) -> Figures:
    import numpy as np

    lag_sum = sum(file.count(0, "lag_sum") for file in files)
    lag_max = max((file.count(0, "lag_max") for file in files), default=0)
    last = episodes[-NUM_LAST_EPISODES:]
    figures = Figures(
        lag=Lag(mean=lag_sum / counters.learned, max=lag_max) if counters.learned else None,
        memory_bytes=telemetry.memory_bytes(),
        gpu_memory_bytes=telemetry.gpu_memory_bytes(),
        env_step_s=_step_spread(files, clock),
        episode_return=_mean(last, "return"),
        episode_length=_mean(last, "length"),
        success=_mean(last, "success"),
        spl=_mean(last, "spl"),
        emulated=cell.device == "emulated" or clock.time_scale != 1,
        time_scale=clock.time_scale,
    )
    if window is None:
        return figures
    rate = steps_per_s(window)
    begin, end = (clock.zero_s + moment * clock.time_scale for moment in _ends(window))
    counted = [row for row in rows if window.parts[0].iteration <= row["iteration"] <= window.parts[-1].iteration]
    return figures.model_copy(
        update={
            "steps_per_s": rate,
            "steps_per_s_interval": bootstrap_rate(window.parts, np.random.default_rng(0)),
            "frames_per_s": rate * counters.frames / counters.env_steps if counters.env_steps else None,
            "window": window.to_record(),
            "time_shares": _shares(counted, window.seconds * cell.gpus),
            "utilisation": _utilisation(cell, counted, window, telemetry, begin, end),
            "cpu_percent": telemetry.cpu_percent(begin, end),
            "gpu_power_w": telemetry.gpu_power_w(begin, end),
        }
    )


def _ends(window: Window) -> tuple[float, float]:
    return window.parts[0].begin_s, window.parts[-1].end_s


def _shares(rows: Sequence[dict[str, Any]], rank_seconds: float) -> dict[str, float]:
    """Shares of the ranks' time by span."""
    shares = {kind: sum(row[f"span/{kind}"] for row in rows) / rank_seconds for kind in SPANS}
    return {kind: share for kind, share in shares.items() if share > 0}


def _utilisation(
    cell: Cell, rows: Sequence[dict[str, Any]], window: Window, telemetry: Telemetry, begin: float, end: float
) -> Reading:
    if cell.device == "emulated":
        busy = sum(row["gpu_busy_s"] for row in rows) / (window.seconds * cell.gpus)
        return Reading(value=busy, source="emulated: share of the time for which the emulated GPUs were reserved")
    if cell.device == "cuda":
        return telemetry.utilisation(begin, end)
    return Reading(value=None, source="n/a: the ranks run on the CPU")


def _step_spread(files: Sequence[MeterFile], clock: Clock) -> Spread | None:
    means = [
        clock.lasting(file.seconds(1 + env, "step_s")) / steps
        for file in files
        for env in range(file.num_envs)
        if (steps := file.count(1 + env, "env_steps"))
    ]
    if not means:
        return None
    mean = sum(means) / len(means)
    variance = sum((value - mean) ** 2 for value in means) / len(means)
    return Spread(mean=mean, min=min(means), max=max(means), cv=math.sqrt(variance) / mean)


def _mean(episodes: Sequence[dict[str, Any]], name: str) -> float | None:
    values = [episode[name] for episode in episodes if math.isfinite(episode[name])]
    return sum(values) / len(values) if values else None
