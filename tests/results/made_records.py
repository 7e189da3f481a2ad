"""Run records and series for tests: what a harness would have written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rlbench.results.records.parts import SERIES_FILE, Part
from rlbench.results.records.schema import (
    CellRecord,
    Counters,
    EnvFates,
    Evenness,
    Figures,
    LearnedFrom,
    Reading,
    RunRecord,
    Status,
    WindowRecord,
)
from rlbench.results.records.store import write_run


def make_record(
    system: str = "ddppo",
    gpus: int = 1,
    *,
    steps_per_s: float | None = 100.0,
    status: Status = "finished",
    reason: str | None = None,
    figures: dict[str, Any] | None = None,
    cell: dict[str, Any] | None = None,
    **fields: Any,
) -> RunRecord:
    """A record of a run of two ranks' worth of plausible figures; `figures`, `cell` and the rest override."""
    all_figures: dict[str, Any] = {
        "steps_per_s": steps_per_s,
        "time_shares": {"simulate": 0.5, "learn": 0.13, "wait:straggler": 0.2, "infer": 0.1, "reset": 0.05},
        "utilisation": Reading(value=0.42, source="emulated busy time"),
        "window": WindowRecord(protocol="ddppo", first_iteration=5, last_iteration=9, begin_s=5, end_s=10, steady=True),
        "emulated": True,
    }
    all_cell: dict[str, Any] = {
        "system": system,
        "gpus": gpus,
        "scenario": "emulated/open-fridge",
        "workload": "heterogeneous",
        "seed": 0,
        "device": "emulated",
        "protocol": "ddppo",
        "hash": f"{system}-{gpus}",
    }
    all_fields: dict[str, Any] = {
        "id": f"{system}-{gpus}",
        "sweep": "sweep-1",
        "counters": Counters(env_steps=1000, frames=4000, learned=900, reused=900, discarded=60, in_flight=40),
        "command": ["rlbench", "run"],
        "started_at": "2026-01-01T00:00:00+00:00",
        "duration_s": 12.5,
    }
    return RunRecord(
        status=status,
        reason=reason,
        cell=CellRecord(**all_cell | (cell or {})),
        figures=Figures(**all_figures | (figures or {})),
        **all_fields | fields,
    )


def make_learned_from(**fields: Any) -> LearnedFrom:
    """What a run learned from whose two environments are not alike; `fields` override."""
    part = {"environments": 1, "started": 500, "discarded": 30, "in_flight": 20, "cut": 7}
    all_fields: dict[str, Any] = {
        "environments": 2,
        "cut": 14,
        "shares": Evenness(least=0.25, most=0.75, even=0.5, distance=0.25, p=1e-6),
        "kept": Evenness(least=0.5, most=0.875, even=0.75, distance=0.125, p=0.25),
        "fast_favoured": 1.0,
        "parts": [EnvFates(name=name, learned=450, **part) for name in ("a <b>map</b>", "another map")],
        "lengths": [
            EnvFates(name="128 to 255", started=900, learned=850, discarded=50, in_flight=0),
            EnvFates(name="not ended", started=100, learned=50, discarded=10, in_flight=40),
        ],
    }
    return LearnedFrom(**all_fields | fields)


def make_parts(rates: Sequence[float], learned: int = 1000) -> list[Part]:
    """Parts that lie end to end, each of `learned` env steps at its rate."""
    parts: list[Part] = []
    for iteration, rate in enumerate(rates):
        begin_s = parts[-1].end_s if parts else 0.0
        parts.append(Part(iteration=iteration, begin_s=begin_s, end_s=begin_s + learned / rate, learned=learned))
    return parts


def write_series(
    run_folder: Path, rows: Iterable[tuple[int, int, float, float, int]], **marks: bool | list[bool]
) -> None:
    """Writes the series of a run, with a column of no concern here, and those of `marks`.

    rows: rank, iteration, begin_s, end_s, learned.
    """
    import pandas as pd

    frame = pd.DataFrame(list(rows), columns=["rank", "iteration", "begin_s", "end_s", "learned"])
    frame.astype({"rank": "int32", "iteration": "int32", "learned": "int64"}).assign(lag=0.0, **marks).to_parquet(
        run_folder / SERIES_FILE
    )


def write_run_folder(folder: Path, record: RunRecord, rates: Sequence[float] = ()) -> Path:
    """Writes a complete run folder; `rates` are those of its iterations, on one rank."""
    run_folder = folder / record.id
    run_folder.mkdir(parents=True)
    write_run(run_folder, record)
    if rates:
        write_series(run_folder, [(0, p.iteration, p.begin_s, p.end_s, p.learned) for p in make_parts(rates)])
    return run_folder
