"""Names in /dev/shm, where POSIX shared memory lies: which a run has left, and who may remove them.

What a system shares with its environments has no name (`systems/engine/workers/tables.py`) and needs no care.
Simulators make names; a scenario says so by two attributes that it need not have:

    shm_bytes: what the environments of one rank write there, in bytes
    shm_names: patterns of the names that they make, such as ("ViZDoom*",), each with a beginning that is their own

A simulator that is killed cannot remove its own. Those that a process of the run had mapped are removed with it, and
those that fit the scenario's patterns, since a simulator may die before it has told anybody; of both only what is this
user's, newer than the run and nobody's. "Newer" is by the numbers of inodes, since clocks are set back. The patterns
count for the runner and the keeper alone, which saw the run begin: whoever cleans up later would take what others made.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from harness.processes import process
from harness.processes.raised import told_in_a_line
from results.reading.untrusted import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

FOLDER = Path("/dev/shm")  # noqa: S108  where names of POSIX shared memory are
NOBODYS_S = 0.3
"""A process that makes a name maps it within microseconds: what is mapped by nobody for so long is nobody's."""
FIXED = re.compile(r"[^*?\[]{3}")
"""How a pattern begins: one such as `*` would fit what anybody makes meanwhile."""
MOST_NAMED = 5
"""Files that a warning names."""


def names_of(scenario: object) -> tuple[str, ...]:
    """Patterns of the names that its simulators make. Raises ValueError for such as could fit other programs' names."""
    with told_in_a_line("shm_names of the scenario"):
        names = getattr(scenario, "shm_names", ())
        patterns = tuple(names) if isinstance(names, Sequence) and not isinstance(names, str) else (None,)
    if {*map(type, patterns)} - {str}:
        raise ValueError(f'shm_names of the scenario must be a tuple of texts, ("name*",), is {shown(names)}')
    for pattern in patterns:
        if not FIXED.match(pattern):
            raise ValueError(
                f"shm_names of the scenario: {shown(pattern)} must begin with 3 characters or more that are no "
                "wildcards: what fits it is removed"
            )
    return patterns


def shown(value: object) -> str:
    """Somebody else's value, cut, on one line."""
    with told_in_a_line("the value"):
        return visible(repr(value)[:100])


@dataclass(frozen=True, kw_only=True, slots=True)
class Before:
    """What was there before a run."""

    boot: str
    """Which start of the machine: inodes are numbered anew with each."""
    inodes: frozenset[int]
    patterns: tuple[str, ...] = ()
    """Of the names that the run's simulators make."""

    @classmethod
    def now(cls, scenario: object, folder: Path = FOLDER) -> Before:
        """What is there now, for a run on that scenario. Raises ValueError as `names_of` does."""
        inodes: list[int] = []
        with suppress(OSError), os.scandir(folder) as entries:  # there may be none at all
            inodes = [entry.inode() for entry in entries]
        return cls(boot=_boot(), inodes=frozenset(inodes), patterns=names_of(scenario))

    def to_json(self) -> dict[str, Any]:
        """For whoever cleans up after the run."""
        return {"boot": self.boot, "inodes": sorted(self.inodes), "patterns": list(self.patterns)}

    @classmethod
    def of_json(cls, told: Mapping[str, Any]) -> Before:
        """Reads back what `to_json` made. Raises ValueError, KeyError, TypeError."""
        boot, inodes, patterns = told["boot"], frozenset(told["inodes"]), tuple(told["patterns"])
        if {type(boot), *map(type, patterns)} != {str} or not {*map(type, inodes)} <= {int}:
            raise ValueError("is not what a run has left")
        return cls(boot=boot, inodes=inodes, patterns=patterns)

    def remove_new(self, names: Iterable[tuple[int, str]], folder: Path = FOLDER) -> None:
        """Removes what has come since, is this user's, is mapped by nobody, and is the run's.

        Args:
            names: inodes and paths that processes of the run had mapped.
            folder: where names of shared memory are.
        """
        known = set(names)
        if not known and not self.patterns:
            return
        fitting = self._unmapped(
            folder,
            lambda one: (
                not one.is_folder
                and ((one.inode, str(one.path)) in known or any(fnmatch(one.path.name, p) for p in self.patterns))
            ),
        )
        for one in fitting:
            with suppress(OSError):
                one.path.unlink()

    def left_behind(self, folder: Path = FOLDER) -> list[str]:
        """A line about files and folders that came during the run and stay, and that nobody has mapped.

        The environments may have made them, or another program of this user's.
        """
        left = sorted(self._unmapped(folder, lambda _: True), key=lambda one: (-one.num_bytes, str(one.path)))
        if not left:
            return []
        said = ", ".join(f"{visible(one.path.name)} ({one.size})" for one in left[:MOST_NAMED])
        more = f" and {len(left) - MOST_NAMED} more" if len(left) > MOST_NAMED else ""
        what = "they came during the run: remove them if they are the environments'"
        return [f"left behind in {folder}: {said}{more}; {what}"]

    def _unmapped(self, folder: Path, fits: Callable[[_File], bool]) -> set[_File]:
        """Files and folders that have come since, are ours, and that no process has mapped for `NOBODYS_S`."""
        if self.boot != _boot():
            return set()
        found = self._new(folder, fits)
        if found:
            found -= _of_mapped(found)
        if found:
            time.sleep(NOBODYS_S)
            found &= self._new(folder, fits)
            found -= _of_mapped(found)
        return found

    def _new(self, folder: Path, fits: Callable[[_File], bool]) -> set[_File]:
        found = set()
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                with suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    is_folder = stat.S_ISDIR(status.st_mode)
                    is_ours = (is_folder or stat.S_ISREG(status.st_mode)) and status.st_uid == os.geteuid()
                    one = _File(Path(entry.path), status.st_ino, is_folder, 0 if is_folder else status.st_size)
                    if is_ours and one.inode not in self.inodes and fits(one):
                        found.add(one)
        return found


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    inode: int
    is_folder: bool
    num_bytes: int = field(compare=False)

    @property
    def size(self) -> str:
        """In words."""
        return "a folder" if self.is_folder else f"{self.num_bytes:,} bytes"


def identified(names: Iterable[str]) -> set[tuple[int, str]]:
    """Names of shared memory with the inodes that they have now, without those that are gone."""
    found = set()
    for name in names:
        with suppress(OSError):
            found.add((Path(name).lstat().st_ino, name))
    return found


def _boot() -> str:
    """What the kernel calls the time since the machine was started."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    return ""


def _of_mapped(files: Iterable[_File]) -> set[_File]:
    mapped = _mapped()
    return {one for one in files if one.path in mapped}


def _mapped() -> set[Path]:
    """Names that some process has mapped; of those that we may look into, which all are that can map ours."""
    mapped: set[Path] = set()
    for pid in psutil.pids():
        with suppress(OSError):
            for path in map(Path, process.shared_memory_names(pid)):
                mapped.update((path, *path.parents))  # a folder is in use with what is in it
    return mapped
