from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from rlbench.results.records import index
from rlbench.results.records.index import index_path
from rlbench.results.records.store import read_runs
from tests.results.made_records import make_record, write_run_folder
from tests.results.records import indexed
from tests.results.records.indexed import Loads, all_names, opened, remembered

cache = pytest.fixture(autouse=True)(indexed.cache)
runs, loads = pytest.fixture(indexed.runs), pytest.fixture(indexed.loads)


@pytest.mark.parametrize("damage", ["text", "empty", "truncated", "zeroed", "no text", "folder", "other tables"])
def test_a_damaged_file_is_made_anew(runs: Path, damage: str, loads: Loads) -> None:
    """Whatever has become of the file, all runs are listed from their folders, and the next listing reads none."""
    loads.of(runs)
    file = index_path()
    data = file.read_bytes()
    file.unlink()
    if damage == "folder":
        file.mkdir()
    elif damage == "other tables":
        with closing(sqlite3.connect(file)) as database:
            database.execute("create table runs (path text)")
            database.execute("create table documents (path text)")
    else:
        half = len(data) // 2
        no_text = data.replace(b"tabledocuments", b"tabledocum\xecnts").replace(
            b"CREATE TABLE documents", b"CREATE TABEL documents"
        )
        left = {"text": b"not a database" * 100, "empty": b"", "truncated": data[:half], "no text": no_text}
        file.write_bytes(left.get(damage, data[:4096] + bytes(half)))
    assert loads.of(runs) == all_names(runs)
    with opened(runs) as made:
        assert made.runs() == read_runs(runs)
    if damage not in {"folder", "other tables"}:  # what we did not make stays
        loads.of(runs)
        assert loads.of(runs) == []


def test_damage_that_is_met_late(runs: Path, loads: Loads) -> None:
    """A file whose list of runs is whole and whose records are not is made anew as well."""
    loads.of(runs)
    with closing(sqlite3.connect(index_path())) as database:
        ((page,),) = database.execute("select rootpage from sqlite_master where name = 'documents'").fetchall()
        ((size,),) = database.execute("pragma page_size").fetchall()
    data = bytearray(index_path().read_bytes())
    data[(page - 1) * size : page * size] = bytes(size)
    index_path().write_bytes(data)
    with opened(runs) as made:
        assert made.runs() == read_runs(runs)
    assert loads.of(runs) == all_names(runs)
    assert loads.of(runs) == []


def test_a_record_that_has_lost_a_byte_is_read_from_its_folder(runs: Path) -> None:
    """A byte of the file that has changed is noticed, and what it was part of is read anew."""
    with opened(runs):
        pass
    with closing(sqlite3.connect(index_path())) as database, database:
        path, document = database.execute("select path, document from documents order by path").fetchone()
        changed = bytes([*document[:40], document[40] ^ 1, *document[41:]])
        database.execute("update documents set document = ? where path = ?", (changed, path))
    with opened(runs) as made:
        assert made.runs() == read_runs(runs)


@pytest.mark.parametrize("place", ["/proc/rlbench-cache", "/dev/null", "/dev/null/x"])
def test_nowhere_to_write(runs: Path, place: str, monkeypatch: pytest.MonkeyPatch, loads: Loads) -> None:
    """Without a place for the file, runs are listed from their folders every time."""
    monkeypatch.setenv("XDG_CACHE_HOME", place)
    for _ in range(2):
        assert loads.of(runs) == all_names(runs)
        with opened(runs) as made:
            assert made.runs() == read_runs(runs)


def test_no_home_folder(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without a home folder can list runs."""
    monkeypatch.delenv("XDG_CACHE_HOME")

    def no_home(path: Path) -> Path:
        raise RuntimeError(f"{path}: Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", no_home)
    with opened(runs) as made:
        assert made.count() == 6


def test_a_read_only_file_is_read(runs: Path, cache: Path, loads: Loads) -> None:
    """A file that cannot be written still spares reading what it holds; a new run has all read, and none is lost."""
    loads.of(runs)
    with read_only(index_path()):
        assert loads.of(runs) == []
        write_run_folder(runs / "sweep-2", make_record(id="new"))
        assert loads.of(runs)[-1] == "new"
        with opened(runs) as made:
            assert made.runs() == read_runs(runs)
    assert os.fsencode(runs / "sweep-2" / "new") not in remembered(cache)


@contextmanager
def read_only(file: Path) -> Iterator[None]:
    """Opens the file read-only from now on, as its permissions would make us for anybody but root."""
    connect: Callable[..., sqlite3.Connection] = sqlite3.connect

    def connect_read_only(database: Path | str, **options: Any) -> sqlite3.Connection:
        if database == file:
            return connect(f"file:{file}?mode=ro", uri=True, **options)
        return connect(database, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sqlite3, "connect", connect_read_only)
        yield


def test_a_file_that_another_process_keeps_locked(runs: Path, loads: Loads, monkeypatch: pytest.MonkeyPatch) -> None:
    """While somebody else writes for longer than we wait, runs are listed from their folders, and the file is left."""
    loads.of(runs)
    write_run_folder(runs / "sweep-2", make_record(id="new"))
    monkeypatch.setattr(index, "BUSY_S", 0.05)
    with closing(sqlite3.connect(index_path(), isolation_level=None)) as other:
        other.execute("begin exclusive")
        with opened(runs) as made:
            assert made.runs() == read_runs(runs)
        other.execute("rollback")
    assert loads.of(runs) == ["new"]
    assert loads.of(runs) == []


def test_processes_that_read_at_once(runs: Path, loads: Loads) -> None:
    """Several processes that meet an empty cache all list everything, and leave a file that the next one can use."""
    program = (
        "import sys; from pathlib import Path\n"
        "from rlbench.results.records.index import Index; from rlbench.results.records.store import run_folders\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "made = Index(run_folders(Path(sys.argv[1]))); print(len(made.runs())); made.close()\n"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(runs)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.communicate()[0] for process in started] == ["6\n"] * 4
    assert loads.of(runs) == []
