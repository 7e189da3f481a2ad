"""A place with all that is a user's own, and what of it has changed.

`home` is the home folder; `tmp` holds temporary files of other programs; `cache` is the cache folder; `/dev/shm` has
names that begin as no others do, some of which a process has mapped. None of it may change, whatever a command is
given. `out`, a folder of sweeps, and `here`, the working folder, are somebody else's: what is there may change.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self

SHM = Path("/dev/shm")  # noqa: S108
OWN_IN_CACHE = ("runs-", "compiled")
"""What commands keep in the cache folder begins so."""
TOOLS = {
    "squeue": 'case "$(cat {count} 2>/dev/null)" in "") echo x >{count}; echo "41_0|RUNNING" ;; esac',
    "sbatch": 'echo "Submitted batch job 41"',
    "scontrol": "exit 1",
    "ssh": "exit 255",
    "srun": "exit 1",
    "scancel": "exit 0",
}
"""Programs of a machine with Slurm on which nothing ever runs."""
HOME_FILES = {
    "thesis.tex": b"\\documentclass{article}" * 99,
    "notes.txt": b"",
    ".bashrc": b"export EDITOR=vi\n",
    ".ssh/id_ed25519": b"a key",
    "precious/data.bin": bytes(range(256)) * 256,
    "precious/sub/deep/photo.jpg": b"\xff\xd8" * 4000,
    "precious/run.json": b"{}",
    "precious/sweep.json": b"{}",
    "precious/policy.pt": b"weights",
    "precious/shared-memory.json": b"{}",
    "precious/shm-rank0.txt": b"",
    "precious/tmp/scratch.json": b"{}",
    "precious/rank0.err": b"x",
    "precious/jobs.json": b"{}",
    "rlb-abcdefgh/file": b"not of a run",
    "environment/ready": b"",
    "environment/pyvenv.cfg": b"home = /usr/bin\n",
    "environment/bin/python": b"",
    "project/.git/HEAD": b"ref: refs/heads/main\n",
    "project/.git/config": b"[core]\n",
    "20990101-000000-cafe/sweep.json": b'{"command": [], "cells": []}',
    "20990101-000000-cafe/.partial-001-mine/cell.json": b"{}",
    "20990101-000000-cafe/.partial-001-mine/tmp/file": b"x",
    "20990101-000000-cafe/001-mine/run.json": b"{}",
}
Seen = tuple[object, ...]


class Place:
    """One round's; `home`, `tmp`, `cache`, `out`, `here` and `bin` are its folders."""

    def __init__(self, root: Path, mark: str) -> None:
        self.root, self.mark = root, mark
        self.home, self.tmp, self.cache = root / "home", root / "tmp", root / "cache"
        self.out, self.here, self.bin = root / "out", root / "here", root / "bin"
        self.pwned = self.home / "pwned"
        """A command of somebody else's would make it."""
        self.own: set[str] = set()
        """Names in `tmp` of runs of this user, which may go."""

    def make(self) -> None:
        """Makes all of it but what is somebody else's."""
        for folder in (self.home, self.tmp, self.cache, self.out, self.here, self.bin):
            folder.mkdir(parents=True)
        self._make_home()
        for name, mode in {
            "rlb-aaaaaaaa": 0o700,
            "rlb-bbbbbbbb": 0o755,
            "rlb-node-cccccccc": 0o700,
            "pymp-x": 0o700,
        }.items():
            folder = self.tmp / name
            folder.mkdir(mode=mode)
            (folder / "file").write_text("of another program")
            (folder / "shared-memory.json").write_text('{"inodes": {}, "patterns": []}')
        (self.tmp / "file").write_text("of another program")
        for name in ("gate/of-somebody", "systems/of-somebody", "of-somebody", "../other"):
            folder = self.cache / "rlbench" / name
            folder.mkdir(parents=True)
            (folder / "pyvenv.cfg").write_text("")
        for name, text in TOOLS.items():
            (self.bin / name).write_text("#!/bin/sh\n" + text.format(count=self.root / "asked") + "\n")
            (self.bin / name).chmod(0o755)
        for name in self.shm_names():
            if not Path(name).exists():
                Path(name).write_bytes(b"of another program")

    def _make_home(self) -> None:
        for name, data in HOME_FILES.items():
            path = self.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        (self.home / "precious/read-only").write_bytes(b"x")
        (self.home / "precious/read-only").chmod(0o400)
        (self.home / "precious/program").write_bytes(b"#!/bin/sh\n")
        (self.home / "precious/program").chmod(0o755)
        (self.home / "precious/empty").mkdir()
        (self.home / "precious/link").symlink_to("data.bin")

    def shm_names(self) -> list[str]:
        """Paths in /dev/shm that are the user's; the first is mapped."""
        return [str(SHM / f"{self.mark}-{name}") for name in ("mapped", "a", "b")]

    def files(self) -> list[Path]:
        """Files that are the user's."""
        home = [self.home / name for name in HOME_FILES]
        return [*home, self.tmp / "rlb-aaaaaaaa/file", self.cache / "other/pyvenv.cfg", *map(Path, self.shm_names())]

    def folders(self) -> list[Path]:
        """Folders that are the user's."""
        names = (
            "precious",
            "precious/sub",
            "precious/empty",
            "rlb-abcdefgh",
            "environment",
            "project",
            "20990101-000000-cafe",
        )
        temporary = [self.tmp / name for name in ("rlb-aaaaaaaa", "rlb-bbbbbbbb", "rlb-node-cccccccc", "pymp-x")]
        return [self.home, *(self.home / name for name in names), *temporary, self.cache / "rlbench/gate/of-somebody"]

    def variables(self) -> dict[str, str]:
        """Of the environment of each command."""
        kept = {name: os.environ[name] for name in ("LANG", "LC_ALL", "PYTHONPATH") if name in os.environ}
        return kept | {
            "HOME": str(self.home),
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "TMPDIR": str(self.tmp),
            "XDG_CACHE_HOME": str(self.cache),
            "COLUMNS": "200",
            "USER": "me",
            "LOGNAME": "me",
            "OMP_NUM_THREADS": "1",
        }

    def look(self) -> dict[str, Seen]:
        """What is there of the user's own now, by path."""
        seen: dict[str, Seen] = {}
        for path in _below(self.home):
            seen[path] = _see(path)
        for path in _below(self.tmp):
            name = Path(path).relative_to(self.tmp).parts
            if name and name[0] not in self.own:
                seen[path] = _see(path)
        ours = self.cache / "rlbench"
        for path in _below(self.cache):
            parts = Path(path).relative_to(self.cache).parts
            if path == str(ours):
                seen[path] = _see(path)[:3]
            elif not (parts[:1] == ("rlbench",) and len(parts) > 1 and parts[1].startswith(OWN_IN_CACHE)):
                seen[path] = _see(path)
        for path in map(str, SHM.glob(f"{self.mark}*")):
            seen[path] = _see(path)
        return seen

    def remove(self) -> None:
        """Removes all of it, of whatever kind somebody has made it."""
        shutil.rmtree(self.root)


def changes(before: dict[str, Seen], after: dict[str, Seen]) -> list[str]:
    """What has changed, a line each."""
    lines = [f"{path}: is gone" for path in before.keys() - after.keys()]
    lines += [f"{path}: is new" for path in after.keys() - before.keys()]
    lines += [f"{path}: was changed" for path in before.keys() & after.keys() if before[path] != after[path]]
    return sorted(lines)


def _below(folder: Path) -> Iterator[str]:
    yield str(folder)
    for here, folders, files in os.walk(folder):
        for name in (*folders, *files):
            yield os.path.join(here, name)  # noqa: PTH118  a hundred times in a row


def _see(path: str) -> Seen:
    status = os.lstat(path)
    about = (status.st_mode, status.st_uid, status.st_ino, status.st_size, status.st_mtime_ns)
    if stat.S_ISLNK(status.st_mode):
        return (*about, os.readlink(path))  # noqa: PTH115
    if stat.S_ISREG(status.st_mode):
        return (*about, hashlib.blake2b(Path(path).read_bytes()).hexdigest())
    return about


class Bystander:
    """A process of the user's that no command may end, with a name in /dev/shm that it has mapped.

    `mark`: how that name begins, and others of the user's.
    """

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self._begin()

    def _begin(self) -> None:
        name = SHM / f"{self.mark}-mapped"
        name.write_bytes(b"\0" * mmap.PAGESIZE)
        code = f"import mmap; f = open({str(name)!r}, 'r+b'); m = mmap.mmap(f.fileno(), 0); print(flush=True); input()"
        self._process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        for path in SHM.glob(f"{self.mark}*"):
            with suppress(OSError):
                path.unlink()

    def again(self) -> None:
        """Another one takes its place."""
        self._end()
        self._begin()

    def _end(self) -> None:
        self._process.kill()
        self._process.communicate()

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    @property
    def lives(self) -> bool:
        """Whether nobody has ended it."""
        return self._process.poll() is None


def wait_for(path: Path, limit_s: float) -> bool:
    """Whether a file appears within so long."""
    deadline = time.monotonic() + limit_s
    while not path.exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
