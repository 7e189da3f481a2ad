"""A cache of run folders, so that thousands of runs are listed and filtered at once.

An SQLite file in the user's cache folder keeps the record and the window parts of every run folder that was read, with
the time and size of its `run.json`. A run folder never changes once it has its name; if its `run.json` does change, the
folder is read again. A folder that cannot be read is not cached: it is tried every time.

Every process that reads run folders writes the file, in one short transaction after reading them. SQLite lets one
process write at a time; the others wait for at most `BUSY_S`. The file is never required: where it cannot be read or
written, or is damaged, runs are read from their folders.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import zlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from rlbench.results.reading.names import known_names
from rlbench.results.records import labels
from rlbench.results.records.parts import Part
from rlbench.results.records.schema import SCHEMA_VERSION, RunRecord
from rlbench.results.records.store import RUN_FILE, StoredRun, Unreadable, load_run

BUSY_S = 5.0
LAYOUT = 4
FIELDS = ("system", "scenario", "workload", "gpus", "seed", "device", "protocol", "status", "sweep")
"""Fields that runs can be filtered by."""
LABELS = {"system": "system_label", "scenario": "scenario_label"}
"""Fields that also match with their settings, as the command line takes them."""
_RUNS = (
    "path blob primary key, mtime integer, size integer, started_at text, duration_s real, hash text, work text, "
    "system text, scenario text, workload text, gpus integer, seed integer, device text, protocol text, status text, "
    "sweep text, system_label text, scenario_label text"
)
_TABLES = (
    f"create table if not exists runs ({_RUNS}) without rowid",
    "create table if not exists documents (path blob primary key, document blob)",
    "create temp table wanted (path blob primary key) without rowid",
)
_NEWEST_FIRST = "order by started_at desc, path desc"
DAMAGED = (sqlite3.Error, UnicodeDecodeError)
"""Errors of reading a damaged file; the second is raised where an error message of SQLite is no valid text."""
Condition = tuple[str, str]
"""A field and the value that it must have."""
Row = tuple[str | int | float | bytes, ...]
Value = str | int | bytes


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/rlbench`, or `~/.cache/rlbench`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser(), "rlbench")


def index_path() -> Path:
    """Path of the file in the cache folder; its name holds the versions of the schema and of the layout."""
    return cache_folder() / f"runs-{SCHEMA_VERSION}-{LAYOUT}.sqlite"


class Index:
    """The runs in some folders; close it when done."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Reads those of the run folders that are new or changed."""
        self._paths = list(dict.fromkeys(os.fsencode(path.absolute()) for path in paths))  # names may be any bytes
        try:
            self._open(index_path())
        except (*DAMAGED, OSError, RuntimeError):  # RuntimeError: there is no home folder
            self._open(None)

    def _open(self, file: Path | None) -> None:
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(file) and (file.is_symlink() or not file.is_file()):
                raise OSError(f"{file}: is no regular file")
        self._database = sqlite3.connect(file or ":memory:", timeout=BUSY_S, isolation_level=None)
        try:
            self._unreadable = _fill(self._database, self._paths)
        except sqlite3.OperationalError:  # locked for too long, or not writable: the file may be intact
            self._database.close()
            raise
        except DAMAGED:
            self._database.close()
            if file is not None:
                file.unlink(missing_ok=True)  # damaged; all its content is in the run folders too
            raise

    def close(self) -> None:
        """Closes the database."""
        self._database.close()

    def unreadable(self) -> list[Unreadable]:
        """Folders whose record or series cannot be read, with the reasons."""
        return self._unreadable

    def runs(self, where: Sequence[Condition] = (), newest: int | None = None) -> list[StoredRun]:
        """Returns the matching runs, oldest first.

        Args:
            where: values that fields must have; all conditions must hold. A system or a scenario matches by its name
                alone, or with its settings.
            newest: maximum number of runs; the newest are kept.

        Raises ValueError for an unknown field, listing the known.
        """
        return self._stored(*_chosen(where, newest))

    def bases(self, where: Sequence[Condition] = (), newest: int | None = None) -> list[StoredRun]:
        """The runs that those of `runs` are scaled against, without those themselves, oldest first.

        They are of the same sweep, work and seed, on the fewest GPUs on which it finished. The conditions other than
        `gpus` hold for them too.
        """
        chosen, values = _chosen(where, newest)
        condition, more = _condition([each for each in where if each[0] != "gpus"])
        finished = f"runs natural join wanted where status = 'finished' and {condition}"
        same = "(sweep, work) in (select sweep, work from runs natural join chosen)"
        fewest = f"select sweep, work, seed, min(gpus) as gpus from {finished} and {same} group by sweep, work, seed"  # noqa: S608  names are constants, values are bound; so below
        sql = (
            f"with chosen as ({chosen}), fewest as ({fewest}) select path from {finished} "  # noqa: S608
            "and (sweep, work, seed, gpus) in (select * from fewest) and path not in (select path from chosen)"
        )
        return self._stored(sql, [*values, *more, *more])

    def count(self, where: Sequence[Condition] = ()) -> int:
        """Number of runs for which the conditions hold."""
        condition, values = _condition(where)
        ((number,),) = self._query(f"select count(*) from runs natural join wanted where {condition}", values)  # noqa: S608
        return int(number)

    def values(self, field: str) -> list[str]:
        """What a field is among all runs; of a system or a scenario, also with its settings."""
        found = dict[str, None]()
        for column in _columns(field):
            sql = f"select distinct {column} from runs natural join wanted order by {column}"  # noqa: S608
            found |= dict.fromkeys(str(value) for (value,) in self._query(sql, ()))
        return list(found)

    def durations(self) -> dict[str, float]:
        """Seconds that each cell took when it last ran, by the cell's hash."""
        sql = "select hash, duration_s from runs natural join wanted order by started_at, path"
        return {str(name): float(seconds) for name, seconds in self._query(sql, ())}

    def _stored(self, paths: str, values: Sequence[Value]) -> list[StoredRun]:
        """The runs whose paths the query `paths` selects, oldest first."""
        sql = f"select path, document from runs natural join documents where path in ({paths}) {_NEWEST_FIRST}"  # noqa: S608
        return [_from_document(path, document) for path, document in self._query(sql, values)][::-1]

    def _query(self, sql: str, values: Sequence[Value]) -> list[tuple[Any, ...]]:
        try:
            return self._database.execute(sql, values).fetchall()
        except DAMAGED as problem:
            self._database.close()
            if not isinstance(problem, sqlite3.OperationalError):  # damaged where `_fill` has not read
                index_path().unlink(missing_ok=True)
            self._open(None)
            return self._database.execute(sql, values).fetchall()


def _chosen(where: Sequence[Condition], newest: int | None) -> tuple[str, list[Value]]:
    """The query that selects the paths of matching runs, and its values."""
    condition, values = _condition(where)
    sql = f"select path from runs natural join wanted where {condition} {_NEWEST_FIRST} limit ?"  # noqa: S608
    return sql, [*values, -1 if newest is None else newest]


def _condition(where: Sequence[Condition]) -> tuple[str, list[str]]:
    """The SQL condition for these field values, and its bound values; raises ValueError for an unknown field."""
    terms, values = ["true"], []
    for name, value in where:
        if name not in FIELDS:
            raise ValueError(f"--where {name}={value}: unknown; {known_names(name, FIELDS)}")
        columns = _columns(name)
        terms.append(f"({' or '.join(f'{column} = ?' for column in columns)})")
        values += [value] * len(columns)
    return " and ".join(terms), values


def _columns(field: str) -> list[str]:
    return [field, *([LABELS[field]] if field in LABELS else [])]


def _fill(database: sqlite3.Connection, paths: Sequence[bytes]) -> list[Unreadable]:
    """Brings the database up to date with the run folders; the table `wanted` then names those that can be read."""
    for table in _TABLES:
        database.execute(table)
    database.execute("begin")
    database.executemany("insert into wanted values (?)", ((path,) for path in paths))
    database.execute("commit")
    stamps = database.execute("select path, mtime, size from runs natural join wanted")
    known = {path: (mtime, size) for path, mtime, size in stamps}
    rows, unreadable = [], []
    for path in paths:
        stamp = _stamp(path)
        if stamp == known.get(path):
            continue
        try:
            rows.append(_rows(stamp, load_run(_path(path))))
        except ValueError as problem:
            unreadable.append(Unreadable.because(_path(path), problem))
    if rows:
        _remember(database, rows)
    if unreadable:
        database.executemany("delete from wanted where path = ?", ((os.fsencode(each.path),) for each in unreadable))
    return sorted(unreadable, key=lambda each: each.path)


def _remember(database: sqlite3.Connection, rows: Sequence[tuple[Row, bytes]]) -> None:
    """Writes the runs that were read, and removes folders that no longer exist."""
    database.execute("begin immediate")
    try:
        others = database.execute("select path from runs where path not in (select path from wanted)")
        gone = [(path,) for (path,) in others if not os.path.exists(path)]  # noqa: PTH110  as `_stamp`
        for table in ("runs", "documents"):
            database.executemany(f"delete from {table} where path = ?", gone)  # noqa: S608
        places = ", ".join("?" * (1 + _RUNS.count(",")))
        database.executemany(f"insert or replace into runs values ({places})", (row for row, _ in rows))  # noqa: S608
        database.executemany(
            "insert or replace into documents values (?, ?)", ((row[0], document) for row, document in rows)
        )
    except BaseException:
        database.execute("rollback")
        raise
    database.execute("commit")


def _path(path: bytes) -> Path:
    return Path(os.fsdecode(path))


def _stamp(path: bytes) -> tuple[int, int]:
    """Modification time of `run.json` in ns, and its size; zeros if it no longer exists."""
    try:
        status = os.stat(os.path.join(path, RUN_FILE.encode()))  # noqa: PTH116, PTH118  a Path would double the time
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


def _rows(stamp: tuple[int, int], run: StoredRun) -> tuple[Row, bytes]:
    """The rows of the tables `runs` and `documents` for a run."""
    record, cell = run.record, run.record.cell
    system, scenario = labels.system(cell), labels.scenario(cell)
    work = [system, scenario, cell.workload, cell.device, cell.protocol, record.figures.time_scale]
    row: Row = (
        *(os.fsencode(run.path), *stamp, record.started_at, record.duration_s, cell.hash),
        hashlib.sha256(json.dumps(work).encode()).hexdigest()[:16],
        *(cell.system, cell.scenario, cell.workload, cell.gpus, cell.seed, cell.device, cell.protocol),
        *(record.status, record.sweep, system, scenario),
    )
    parts = [[part.iteration, part.begin_s, part.end_s, part.learned] for part in run.parts]
    return row, zlib.compress(f"{record.model_dump_json()}\n{json.dumps(parts)}".encode(), 1)


def _from_document(path: bytes, document: bytes) -> StoredRun:
    try:
        text, _, rows = zlib.decompress(document).partition(b"\n")
        record, parts = RunRecord.model_validate_json(text), tuple(_parts(json.loads(rows)))
    except (zlib.error, ValueError, TypeError):  # a byte of the file has changed
        return load_run(_path(path))
    return StoredRun(path=_path(path), record=record, parts=parts)


def _parts(rows: Collection[tuple[int, float, float, int]]) -> Iterator[Part]:
    for iteration, begin_s, end_s, learned in rows:
        yield Part(iteration=iteration, begin_s=begin_s, end_s=end_s, learned=learned)
