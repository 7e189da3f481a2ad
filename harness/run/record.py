"""Turns what the processes of a run left in its folder into its record: `run.json`, and the series as Parquet.

The processes write binary and line files that are cheap to write. This module turns them into the files that a run
folder keeps (`series`, `spans`, `episodes`, `telemetry` as Parquet, `stdout.txt`, `stderr.txt`), and removes them.
Times in the Parquet files are seconds since the first iteration began, on the run's clock: for an emulated scenario
that is the profile's clock, one second of which takes `time_scale` seconds on the wall.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rlbench.harness.contract.traits import TRAITS_FILE, Traits
from rlbench.harness.launch.nodes import gathered
from rlbench.harness.metering.counted import EPISODE, EPISODE_FIELDS, episodes_path
from rlbench.harness.metering.fates import fates_path, read_fates
from rlbench.harness.metering.meter_file import MeterFile, meter_path
from rlbench.harness.metering.still import marks_path, read_marks
from rlbench.harness.metering.window import Window, choose_window
from rlbench.harness.processes import remarks
from rlbench.harness.processes.held import CELL_FILE
from rlbench.harness.processes.outcome import LOST_FILE, OUTCOME_FILE
from rlbench.harness.processes.scratch import FILE as SCRATCH_FILE
from rlbench.harness.run.figures import LANES, Clock, Row, RunOutput, count, lost_samples, unreported, work_out
from rlbench.harness.run.learned_from import ENVIRONMENTS_FILE, add_up, learned_from, rows_of
from rlbench.results.records import schema
from rlbench.results.records.parts import IN_STEP, LOST, SERIES_COLUMNS, SERIES_FILE, join_ranks
from rlbench.results.records.schema import Counters, Figures, LearnedFrom
from rlbench.results.records.work import WORK_FILE

if TYPE_CHECKING:
    from rlbench.harness.launch.nodes.clocks import Shift
    from rlbench.harness.machine.telemetry import Readings
    from rlbench.harness.plan.cells import Cell

LEFT_OVER = (
    "meter-*.bin",
    "fates-*.bin",
    "work-*.bin",
    "gpu*.bin",
    "series-*.jsonl",
    "episodes-*.bin",
    "error-*",
    "told-*",
    remarks.PATTERN,
    "rank*.out",
    "rank*.err",
    "telemetry-node*.json",
)
LEFT_OVER_TOO = (
    ".meter-*.bin",
    ".new-*",
    CELL_FILE,
    TRAITS_FILE,
    LOST_FILE,
    OUTCOME_FILE,
    f".{OUTCOME_FILE}",
    SCRATCH_FILE,
    *gathered.FILES,
)

COLLECTED = "learned_is_collected"
"""Column that marks the series of a system that does not report what it learned: `learned` is what it collected."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReducedRun:
    """What a run left, reduced to what its record holds."""

    counters: Counters
    figures: Figures
    learned_from: LearnedFrom | None
    """None where the system does not report of which environments its samples are."""
    environments: list[Row]
    """The rows of `environments.parquet`."""
    problem: str | None
    """Why the run is invalid although it finished."""
    lost_samples: dict[int, int]
    """By lost rank: the samples that it had collected and neither learned nor discarded."""
    iterations_s: tuple[float, float] | None
    """When the first iteration began and the last one ended, by `time.perf_counter`; None without an iteration."""


def cell_record(cell: Cell) -> schema.CellRecord:
    """A cell as `run.json` holds it."""
    return schema.CellRecord(
        system=cell.system,
        settings=cell.settings(),
        scenario=cell.scenario,
        workload=cell.workload,
        gpus=cell.gpus,
        seed=cell.seed,
        device=cell.device,
        protocol=cell.protocol,
        scaling=cell.scaling,
        hash=cell.hash(),
    )


def measure(
    folder: Path,
    cell: Cell,
    time_scale: float,
    telemetry: Readings,
    traits: Traits,
    lost: Collection[int] = (),
    parts: Sequence[str] = (),
    agents_per_env: int = 1,
) -> ReducedRun:
    """Reads what the ranks left in `folder`, writes the Parquet files there, and works out counters and figures.

    Args:
        folder: the run's.
        cell: what was run.
        time_scale: wall-clock seconds per second of the run's clock.
        telemetry: what was read during the run.
        traits: the system's.
        lost: ranks that ended before their time while the others went on.
        parts: the part of the scenario that each environment has, if it names them.
        agents_per_env: A, agents of each environment; with more than one, what is of environments is of agents.
    """
    paths = {rank: meter_path(folder, rank) for rank in range(cell.gpus)}
    meters = {rank: MeterFile(path, writable=False) for rank, path in paths.items() if path.exists()}
    left = replace(_read(folder, cell, time_scale, meters, telemetry, traits, lost, agents_per_env), parts=parts)
    write_table(folder / SERIES_FILE, left.rows)
    write_table(folder / "episodes.parquet", _by_agent(left.episodes, agents_per_env))
    write_table(folder / WORK_FILE, _by_agent(_read_work(folder, meters), agents_per_env))
    write_table(folder / "spans.parquet", left.spans)
    write_table(folder / "telemetry.parquet", [{**row, "t": left.clock.at(row["t"] or 0.0)} for row in telemetry.rows])
    reduced = reduce(left)
    write_table(folder / ENVIRONMENTS_FILE, reduced.environments)
    return reduced


def reduce(left: RunOutput) -> ReducedRun:
    """Works out counters and figures from what the processes of a run left."""
    counters = count(left)
    window, problem = _window(left)
    if not counters.conserved:
        told = {"learned": counters.learned, "discarded": counters.discarded, "in flight": counters.in_flight}
        sums = " + ".join(f"{number} {name}" for name, number in told.items() if number is not None)
        problem = f"conservation broken: {counters.samples} {counters.unit} collected, but {sums}"
    figures = work_out(left, counters, window)
    account = add_up(left)
    return ReducedRun(
        counters=counters,
        figures=figures,
        learned_from=learned_from(account, left) if account else None,
        environments=rows_of(account, left) if account else [],
        problem=problem or (account.problem if account else None),
        lost_samples=lost_samples(left),
        iterations_s=_iterations_s(left),
    )


def _iterations_s(left: RunOutput) -> tuple[float, float] | None:
    if not left.rows:
        return None
    last_s = max(row["end_s"] for row in left.rows)
    return left.clock.zero_s, left.clock.zero_s + last_s * left.clock.time_scale


def gather_streams(folder: Path, num_ranks: int) -> None:
    """Joins the output of all ranks in `stdout.txt` and `stderr.txt`, and removes the files the record was made of."""
    for suffix, name in (("out", "stdout.txt"), ("err", "stderr.txt")):
        with (folder / name).open("wb") as joined:
            for rank in range(num_ranks):
                path = folder / f"rank{rank}.{suffix}"
                if path.exists() and (text := path.read_bytes()):
                    joined.write(f"== rank {rank} ==\n".encode() + text)
    for pattern in (*LEFT_OVER, *LEFT_OVER_TOO):
        for path in folder.glob(pattern):
            path.unlink()
    for path in (*folder.glob("stacks-*.txt"), *folder.glob("keeper.err")):
        if not path.stat().st_size:
            path.unlink()


def _read(
    folder: Path,
    cell: Cell,
    time_scale: float,
    meters: Mapping[int, MeterFile],
    telemetry: Readings,
    traits: Traits,
    lost: Collection[int],
    agents_per_env: int = 1,
) -> RunOutput:
    shifts = gathered.read_clocks(folder)
    rows = _read_series(folder, cell.gpus)
    for row in rows:
        row["begin_s"], row["end_s"] = shifts[row["rank"]].at(row["begin_s"]), shifts[row["rank"]].at(row["end_s"])
    zero_s = min((row["begin_s"] for row in rows), default=telemetry.rows[0]["t"] if telemetry.rows else 0.0)
    clock = Clock(zero_s=zero_s or 0.0, time_scale=time_scale)
    for row in rows:
        row["begin_s"], row["end_s"] = clock.at(row["begin_s"]), clock.at(row["end_s"])
        for name in row:
            if name.startswith(LANES) or name in {"gpu_busy_s", "core_wait_s"}:
                row[name] = clock.lasting(row[name])
        row |= {IN_STEP: traits.in_step, LOST: row["rank"] in lost}
    rows = [_told(row, unreported(meters)) for row in rows]
    return RunOutput(
        cell=cell,
        clock=clock,
        meters=meters,
        rows=rows,
        episodes=_read_episodes(folder, cell.gpus, clock, shifts),
        telemetry=telemetry,
        spans=_read_spans(meters, clock, shifts, agents_per_env),
        in_step=traits.in_step,
        lost=lost,
        agents_per_env=agents_per_env,
        fates=[fates for rank in range(cell.gpus) if (fates := read_fates(fates_path(folder, rank)))],
    )


def _told(row: Row, unreported_names: Collection[str]) -> Row:
    """Drops unreported counters from a row; if `learned` is one, what the rank collected counts as `learned`."""
    told = {name: value for name, value in row.items() if name not in unreported_names}
    return told | {"learned": row["env_steps"], COLLECTED: True} if "learned" in unreported_names else told


def _read_series(folder: Path, num_ranks: int) -> list[Row]:
    rows = []
    for rank in range(num_ranks):
        path = folder / f"series-rank{rank}.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        rows += [json.loads(line) for line in lines if line.endswith("\n")]  # a killed rank may leave half a line
    return rows


def _read_episodes(folder: Path, num_ranks: int, clock: Clock, shifts: Mapping[int, Shift]) -> list[Row]:
    episodes = []
    for rank in range(num_ranks):
        path = episodes_path(folder, rank)
        data = path.read_bytes() if path.exists() else b""
        whole = len(data) // EPISODE.size * EPISODE.size
        for values in EPISODE.iter_unpack(data[:whole]):
            episode = dict(zip(EPISODE_FIELDS, values, strict=True))
            episodes.append({"rank": rank, **episode, "end_s": clock.at(shifts[rank].at(episode["end_s"]))})
    return sorted(episodes, key=lambda episode: episode["end_s"])


def _read_work(folder: Path, meters: Mapping[int, MeterFile]) -> list[Row]:
    """What each environment did, of still work: its hash at each mark."""
    return [
        {"rank": rank, "environment": rank * meter.num_envs + env, "env_steps": steps, "hash": word}
        for rank, meter in meters.items()
        for env, steps, word in read_marks(marks_path(folder, rank))
    ]


def _by_agent(episodes: Sequence[Row], agents_per_env: int) -> Sequence[Row]:
    """Episodes as their file has them: where environments have several agents, it names both."""
    if agents_per_env == 1:
        return episodes
    named = ((each, *divmod(each["environment"], agents_per_env)) for each in episodes)
    return [{**each, "environment": env, "agent": agent} for each, env, agent in named]


def _read_spans(
    meters: Mapping[int, MeterFile], clock: Clock, shifts: Mapping[int, Shift], agents_per_env: int
) -> list[Row]:
    """The latest spans of each rank and environment. Environment -1 is the rank itself, -2 its second lane.

    The agents of an environment step together: the spans of the first are those of all.
    """
    return [
        {
            "rank": rank,
            "environment": -2 if block == meter.lane_index else (block - 1) // agents_per_env,
            "begin_s": clock.at(shifts[rank].at(begin)),
            "end_s": clock.at(shifts[rank].at(end)),
            "kind": kind,
        }
        for rank, meter in meters.items()
        for block in range(1 + meter.lane_index)
        if block in {0, meter.lane_index} or (block - 1) % agents_per_env == 0
        for begin, end, kind in meter.spans(block)
    ]


def write_table(path: Path, rows: Sequence[Row]) -> None:
    """Writes rows as a Parquet file; writes no file when there are none."""
    if rows:
        import pandas as pd

        with path.open("wb") as file:  # Arrow takes only names in UTF-8
            pd.DataFrame(rows).to_parquet(file, index=False, compression="zstd")


def _window(left: RunOutput) -> tuple[Window | None, str | None]:
    rows = (tuple(row[name] for name in SERIES_COLUMNS) for row in left.rows)
    try:
        parts = join_ranks(rows, in_step=left.in_step, lost=left.lost)
        if not parts and (seconds := left.cell.limits.seconds) is not None:
            none = f"no iteration ended within --seconds {seconds:g}, nor soon after: nothing to measure"
            return None, f"{none}; give the run more time, or shorter rollouts"
        return choose_window(parts, left.cell.protocol), None
    except ValueError as error:
        return None, str(error)
