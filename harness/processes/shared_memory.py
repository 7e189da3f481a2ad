"""Names in /dev/shm (POSIX shared memory): which ones a run has left behind, and who may remove them.

The memory that a system shares with its environments has no name (`systems/engine/workers/tables.py`) and needs no
care. Simulators make names; their scenario says so with two optional attributes:

    shm_bytes: bytes that the environments of one rank write there
    shm_names: patterns of the names that they make, such as ("ViZDoom*",), each with a beginning of their own

A simulator that is killed cannot remove its names. The harness removes those that a process of the run had mapped, and
those that fit the scenario's patterns, since a simulator may die before it has told anybody. Of both it removes only
what belongs to this user, is newer than the run and is mapped by no process. "Newer" means that the inode is new, since
clocks may be set back. Only the runner and the keeper use the patterns, because they saw the run begin; a later cleanup
could remove what others have made since.
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

from rlbench.harness.processes import process
from rlbench.harness.processes.raised import told_in_a_line
from rlbench.results.reading.untrusted import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

FOLDER = Path("/dev/shm")  # noqa: S108  where names of POSIX shared memory are
NOBODYS_S = 0.3
"""A process maps a name within microseconds after it has made it; a name unmapped for this long is in no use."""
FIXED = re.compile(r"[^*?\[]{3}")
"""How a pattern must begin; one such as `*` would fit whatever other programs make meanwhile."""
MOST_NAMED = 5
"""Files that a warning names."""


def names_of(scenario: object) -> tuple[str, ...]:
    """The scenario's `shm_names`. Raises ValueError for patterns that could fit the names of other programs."""
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
    """Somebody else's value on one line, cut to 100 characters."""
    with told_in_a_line("the value"):
        return visible(repr(value)[:100])


@dataclass(frozen=True, kw_only=True, slots=True)
class Before:
    """The content of /dev/shm before a run."""

    boot: str
    """The kernel's id of this boot; each boot numbers inodes anew."""
    inodes: frozenset[int]
    patterns: tuple[str, ...] = ()
    """Patterns of the names that the run's simulators make."""

    @classmethod
    def now(cls, scenario: object, folder: Path = FOLDER) -> Before:
        """The content now, for a run of that scenario. Raises ValueError as `names_of` does."""
        inodes: list[int] = []
        with suppress(OSError), os.scandir(folder) as entries:  # the folder may be missing
            inodes = [entry.inode() for entry in entries]
        return cls(boot=_boot(), inodes=frozenset(inodes), patterns=names_of(scenario))

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON, for a later cleanup."""
        return {"boot": self.boot, "inodes": sorted(self.inodes), "patterns": list(self.patterns)}

    @classmethod
    def of_json(cls, told: Mapping[str, Any]) -> Before:
        """Reads back what `to_json` made. Raises ValueError, KeyError, TypeError."""
        boot, inodes, patterns = told["boot"], frozenset(told["inodes"]), tuple(told["patterns"])
        if {type(boot), *map(type, patterns)} != {str} or not {*map(type, inodes)} <= {int}:
            raise ValueError("is not what a run has left")
        return cls(boot=boot, inodes=inodes, patterns=patterns)

    def remove_new(self, names: Iterable[tuple[int, str]], folder: Path = FOLDER) -> None:
        """Removes files that are new, belong to this user and to the run, and that no process has mapped.

        Args:
            names: inodes and paths that the run's processes had mapped.
            folder: the folder of shared memory names.
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
        """A warning about this user's files and folders that came during the run, are still there and are not mapped.

        The environments may have made them, or another program of this user. Empty if there are none.
        """
        left = sorted(self._unmapped(folder, lambda _: True), key=lambda one: (-one.num_bytes, str(one.path)))
        if not left:
            return []
        said = ", ".join(f"{visible(one.path.name)} ({one.size})" for one in left[:MOST_NAMED])
        more = f" and {len(left) - MOST_NAMED} more" if len(left) > MOST_NAMED else ""
        what = "they came during the run: remove them if they are the environments'"
        return [f"left behind in {folder}: {said}{more}; {what}"]

    def _unmapped(self, folder: Path, fits: Callable[[_File], bool]) -> set[_File]:
        """New files and folders of this user that no process has mapped for `NOBODYS_S`."""
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
        """The size in words."""
        return "a folder" if self.is_folder else f"{self.num_bytes:,} bytes"


def identified(names: Iterable[str]) -> set[tuple[int, str]]:
    """Pairs the names with the inodes that they have now; leaves out names that are gone."""
    found = set()
    for name in names:
        with suppress(OSError):
            found.add((Path(name).lstat().st_ino, name))
    return found


def _boot() -> str:
    """The kernel's id of this boot of the machine."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    return ""


def _of_mapped(files: Iterable[_File]) -> set[_File]:
    mapped = _mapped()
    return {one for one in files if one.path in mapped}


def _mapped() -> set[Path]:
    """Names that are mapped by any process that we may inspect; no other process can map our files."""
    mapped: set[Path] = set()
    for pid in psutil.pids():
        with suppress(OSError):
            for path in map(Path, process.shared_memory_names(pid)):
                mapped.update((path, *path.parents))  # a folder counts as mapped if a file in it is
    return mapped
