"""Run folders for tests of the index, and what shows how it reads them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from rlbench.results.records import index
from rlbench.results.records.index import Index
from rlbench.results.records.store import StoredRun, load_run, run_folders
from tests.results.made_records import make_record, write_run_folder

RATES = [50.0] * 5 + [95.0, 100.0, 105.0, 99.0, 101.0]


def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own; this and the next to be made fixtures."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


def runs(tmp_path: Path) -> Path:
    """Two sweeps: 1 and 8 GPUs of two systems, two seeds, in the first; one run in the second."""
    folder = tmp_path / "runs"
    for number, (system, gpus, seed) in enumerate(
        [("ver", 1, 0), ("ver", 8, 0), ("ver", 8, 1), ("ddppo", 1, 0), ("ddppo", 8, 0)]
    ):
        record = make_record(
            *(system, gpus),
            id=f"{number}-{system}-x{gpus}-seed-{seed}",
            cell={"seed": seed, "hash": f"{system}-{gpus}-{seed}"},
            started_at=f"2026-01-01T00:00:0{number}+00:00",
            duration_s=10 + number,
        )
        write_run_folder(folder / "sweep-1", record, RATES)
    later = make_record(
        id="late",
        sweep="sweep-2",
        cell={"settings": {"preempt": "never", "scenario.num_envs": 4}, "hash": "late"},
        started_at="2026-01-02T00:00:00+00:00",
    )
    write_run_folder(folder / "sweep-2", later)
    return folder


@contextmanager
def opened(folder: Path) -> Iterator[Index]:
    """The index of a folder's runs."""
    with closing(Index(run_folders(folder))) as made:
        yield made


def ids(found: Sequence[StoredRun]) -> list[str]:
    """Of runs, in their order."""
    return [run.record.id for run in found]


class Loads:
    """Counts the run folders that are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        monkeypatch.setattr(index, "load_run", self._load)

    def _load(self, path: Path) -> StoredRun:
        self.names.append(path.name)
        return load_run(path)

    def of(self, folder: Path) -> list[str]:
        """The names of the run folders that listing a folder reads."""
        self.names.clear()
        with opened(folder) as made:
            made.runs()
        return sorted(set(self.names))


def loads(monkeypatch: pytest.MonkeyPatch) -> Loads:
    """Counts."""
    return Loads(monkeypatch)


def all_names(folder: Path) -> list[str]:
    """Of the run folders."""
    return sorted(path.name for path in run_folders(folder))


def remembered(cache: Path) -> set[bytes]:
    """The run folders in the file, as the file system has their names."""
    (file,) = (cache / "rlbench").iterdir()
    with closing(sqlite3.connect(file)) as database:
        of_runs = {path for (path,) in database.execute("select path from runs")}
        assert of_runs == {path for (path,) in database.execute("select path from documents")}
    return of_runs
