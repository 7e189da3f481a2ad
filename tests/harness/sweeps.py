"""Sweeps in folders that nobody has run, good and spoilt, for tests of what reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rlbench.results.records.schema import SCHEMA_VERSION
from rlbench.results.records.store import RUN_FILE
from tests.results.made_records import write_run_folder
from tests.results.summaries import make_run

RATES = [50.0] * 5 + [95.0, 100.0, 105.0, 99.0, 101.0]
SPANS = [(0, -1, 0.0, 1.0, "learn"), (0, 0, 0.1, 0.3, "simulate"), (1, -1, 0.0, 1.0, "wait:straggler")]
FINISHED = [("sync", 1, 1.0), ("sync", 8, 5.0), ("ver", 1, 2.0), ("ver", 8, 13.37)]


def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder and a cache of the test's own; to be made a fixture."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def write_sweep(folder: Path, *, day: int = 1, faster: float = 1.0, **fields: Any) -> Path:
    """A sweep of two systems on 1 and 8 GPUs, with spans, begun on a day."""
    sweep = folder / f"202601{day:02d}-000000-abcd"
    for number, (system, gpus, factor) in enumerate(FINISHED):
        rate = 100 * factor * (faster if system == "ver" else 1)
        record = make_run(
            *(system, gpus),
            id=f"{number + 1:03d}-{system}-x{gpus}",
            sweep=sweep.name,
            steps_per_s=rate,
            started_at=f"2026-01-{day:02d}T00:00:0{number}+00:00",
            **fields,
        )
        path = write_run_folder(sweep, record, [rate / 100 * each for each in RATES])
        frame = pd.DataFrame(SPANS, columns=["rank", "environment", "begin_s", "end_s", "kind"])
        frame.to_parquet(path / "spans.parquet", index=False)
    (sweep / "sweep.json").write_text("{}")
    return sweep


def spoil(sweep: Path) -> dict[str, Path]:
    """Adds to a sweep a run that failed, one half written, and some that cannot be read; returns their folders."""
    failed = make_run(
        "appo", 8, id="005-appo", sweep=sweep.name, status="failed", reason="rank 3 died", steps_per_s=None
    )
    folders = {"failed": write_run_folder(sweep, failed)}
    texts = {
        "newer": json.dumps({**json.loads(failed.model_dump_json()), "schema_version": SCHEMA_VERSION + 1}),
        "damaged": '{"schema_version":',
        "foreign": '{"algorithm": "PPO", "sps": 3}',
    }
    for name, text in texts.items():
        folders[name] = sweep / name
        folders[name].mkdir()
        (folders[name] / RUN_FILE).write_text(text)
    folders["series"] = write_run_folder(sweep, make_run("gossip", 8, id="series", sweep=sweep.name))
    (folders["series"] / "series.parquet").write_bytes(b"PAR1 cut off")
    folders["half written"] = sweep / ".partial-006-impala"
    folders["half written"].mkdir()
    (sweep / "notes").mkdir()
    (sweep / "notes" / "todo.txt").write_text("nothing of ours")
    return folders


def named(text: str, folders: dict[str, Path]) -> list[str]:
    """Which of the spoilt runs a text does not name."""
    return [name for name, folder in folders.items() if folder.name not in text and name != "failed"]
