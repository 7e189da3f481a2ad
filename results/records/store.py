"""Run folders on disk: written completely, published by one rename, and read back.

A run's folder is built as `.partial-...` beside its final place. `publish` syncs it to disk and renames it. A folder
without that prefix is complete, whatever was killed and when. A folder with the prefix belongs to a run that goes on or
was killed, and is never read.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from rlbench.results.reading.outputs import whole
from rlbench.results.reading.untrusted import RECORD_BYTES, parse_json, read_json, visible
from rlbench.results.records.parts import Part, read_parts
from rlbench.results.records.recordable import is_recordable, recordable
from rlbench.results.records.schema import SCHEMA_VERSION, RunRecord

RUN_FILE = "run.json"
PARTIAL_PREFIX = ".partial-"
PROBE_BYTES = 65536


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredRun:
    """A run folder and what its `run.json` says."""

    path: Path
    record: RunRecord
    parts: tuple[Part, ...] = ()
    """The parts in the run's window."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unreadable:
    """A run folder that cannot be read, or one that is half written."""

    path: Path
    reason: str
    is_newer: bool = False
    """Whether a newer rlbench wrote it."""

    @classmethod
    def because(cls, path: Path, problem: ValueError) -> Unreadable:
        """Made from the error that `load_run` raised for the folder."""
        return cls(path=path, reason=visible(str(problem)), is_newer=isinstance(problem, NewerSchema))


class NewerSchema(ValueError):  # noqa: N818  the name says what was found
    """A newer rlbench wrote the record."""


def check_writable(folder: Path) -> None:
    """Raises ValueError unless runs can be written in a folder, existing or to be created; leaves nothing behind."""
    place = folder.absolute()
    while not (place.exists() or place.is_symlink()) and place != place.parent:
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place) as probe:
            probe.write(b"\0" * PROBE_BYTES)
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as problem:
        raise _cannot_write(folder, problem) from None


def write_run(folder: Path, record: RunRecord) -> None:
    """Writes `run.json` into the folder of a run that is not yet published. Raises ValueError if it cannot."""
    text = _text_of(record) + "\n"
    try:
        with (folder / RUN_FILE).open("w", encoding="utf-8") as file:
            file.write(text)
    except OSError as problem:
        raise _cannot_write(folder / RUN_FILE, problem) from None


def _text_of(record: RunRecord) -> str:
    """The record as JSON that can be read again; `recordable` changes a record for which that is not so."""
    try:
        text = record.model_dump_json(indent=1)
        if is_recordable(text):
            parse_json(text)
            return text
    except ValueError:
        pass
    return recordable(dict(record)).model_dump_json(indent=1)


def publish(partial: Path, final: Path) -> None:
    """Makes a run folder appear under its final name, complete and on disk, or not at all.

    Raises ValueError if `final` holds anything (no run replaces another) or cannot be written; `partial` then stays.
    """
    try:
        for folder, _, names in os.walk(partial):
            for name in names:
                _sync(Path(folder, name))
            _sync(Path(folder))
        partial.rename(final)  # fails if the target folder holds anything; replaces an empty one
        _sync(final.parent)
    except OSError as problem:
        raise _cannot_write(final, problem) from None


def _sync(path: Path) -> None:
    """Waits until a file or folder is on disk; skips anything else, such as a socket or a link that a system made."""
    if path.is_symlink() or not (path.is_dir() or path.is_file()):
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _cannot_write(path: Path, problem: OSError) -> ValueError:
    advice = {
        errno.ENOSPC: "free some space",
        errno.EDQUOT: "free some space",
        errno.EEXIST: "a run never replaces another, name a new folder",
        errno.ENOTEMPTY: "a run never replaces another, name a new folder",
    }.get(problem.errno or 0, "choose a folder that you can write to")
    return ValueError(f"{path}: cannot be written ({problem.strerror or problem}); {advice}")


def read_runs(folder: Path) -> list[StoredRun]:
    """Reads all runs in a folder: the folder itself, and two levels of subfolders; oldest first.

    Raises ValueError if the folder does not exist, or if a record has a newer schema or is damaged.
    """
    runs, unreadable = read_readable(folder)
    for each in unreadable:
        raise ValueError(each.reason)
    return runs


def read_readable(folder: Path) -> tuple[list[StoredRun], list[Unreadable]]:
    """Like `read_runs`, but also returns what cannot be read. Raises ValueError if the folder does not exist."""
    runs, unreadable = [], []
    for path in run_folders(folder):
        try:
            runs.append(load_run(path))
        except ValueError as problem:
            unreadable.append(Unreadable.because(path, problem))
    return sorted(runs, key=lambda run: (run.record.started_at, str(run.path))), unreadable


def run_folders(folder: Path) -> list[Path]:
    """All run folders in a folder: itself, and two levels of subfolders. Raises ValueError if it does not exist."""
    if not folder.is_dir():
        raise ValueError(f"{folder}: is not a folder; give the one that `rlbench run --out` wrote")
    try:
        return list(_run_folders(folder, levels=2))
    except OSError as problem:
        raise ValueError(f"{problem.filename}: cannot be read ({problem.strerror}); give a folder that can") from None


def half_written(folder: Path) -> list[Unreadable]:
    """The half-written run folders in a folder of sweeps, or of runs: of killed runs, or of runs that go on."""
    left = sorted(
        path for pattern in ("", "*/") for path in folder.glob(f"{pattern}{PARTIAL_PREFIX}*") if path.is_dir()
    )
    reason = "half written: its run was killed, or goes on; `rlbench run --resume` runs the cell again"
    return [Unreadable(path=path, reason=visible(f"{path}: {reason}")) for path in left]


def load_run(path: Path) -> StoredRun:
    """Reads one run folder. Raises ValueError for a newer schema, or a damaged record or series."""
    record = _read_record(path / RUN_FILE)
    return StoredRun(path=path, record=record, parts=_window_parts(path, record))


def _run_folders(folder: Path, levels: int) -> Iterator[Path]:
    if (folder / RUN_FILE).exists():
        yield folder
    elif levels:
        with os.scandir(folder) as entries:  # tells which are folders without a system call for each
            names = sorted(entry.name for entry in entries if _is_folder(entry))
        for name in names:
            if not name.startswith(PARTIAL_PREFIX):
                yield from _run_folders(folder / name, levels - 1)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether the entry is a folder or a link to one; False for a link that leads to itself."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _read_record(path: Path) -> RunRecord:
    try:
        document = read_json(path, RECORD_BYTES)
        version = document["schema_version"]
        if version <= SCHEMA_VERSION:
            return RunRecord.model_validate(document)
    except ValidationError as problem:
        first = problem.errors()[0]
        what = f"{'.'.join(map(str, first['loc'])) or 'the record'}: {first['msg']}"
    except ValueError as problem:
        what = str(problem)
    except (KeyError, TypeError) as problem:
        what = f"{type(problem).__name__}: {problem}"
    else:
        raise NewerSchema(
            f"{path}: has schema version {version}, this rlbench reads up to {SCHEMA_VERSION}; upgrade rlbench"
        )
    what = " ".join(what.split())
    raise ValueError(f"{path}: is damaged ({what}); move its folder elsewhere or delete it")


def write_whole(path: Path, text: str) -> None:
    """Writes a file that appears complete or not at all; never writes through a link. Raises OSError."""
    with whole(path) as file:
        file.write(text.encode("utf-8"))


def _window_parts(path: Path, record: RunRecord) -> tuple[Part, ...]:
    window = record.figures.window
    if window is None:
        return ()
    return tuple(p for p in read_parts(path) if window.first_iteration <= p.iteration <= window.last_iteration)
