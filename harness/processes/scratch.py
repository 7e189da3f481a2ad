"""The folder for temporary files of a run, and what proves that it is that run's.

A run's folder may come from anybody, so what it says of other places is only a claim. It names its scratch by a bare
name and a secret (`scratch.json`). The scratch is a folder in the one for temporary files, which its owner alone may
enter, and holds the same secret, and which run's folder it was made for. There the processes of the run note the names
of shared memory that they have mapped (`process.note_shared_memory`), which are removed with it.
"""

from __future__ import annotations

import hmac
import json
import os
import re
import secrets
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.processes.held import elsewhere
from harness.processes.process import SCRATCH_OWNER
from harness.processes.removal import OTHERS_ENTER, inside, is_ours_alone, opened_folder, remove_folder
from harness.processes.shared_memory import Before
from results.reading.untrusted import MIB, opened, read_json

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE = "scratch.json"
"""In the run's folder."""
PREFIX = "rlb-"
NAME = re.compile(r"rlb-[A-Za-z0-9_]+")
SECRET = re.compile(r"[0-9a-f]{32}")
LONGEST_TMPDIR = 50
"""Characters; a socket's path may have 107, of which multiprocessing takes up to 45 with its own folder and name."""
SHORT_TMPDIR = "/tmp"  # noqa: S108  mkdtemp makes a folder there that only we may enter
CLAIM_BYTES = 4096
OWNER_BYTES = 64 * MIB
"""A number of 20 digits for each name in /dev/shm."""
NAMES_BYTES = 16 * MIB


@dataclass(frozen=True, kw_only=True, slots=True)
class Scratch:
    """A folder for temporary files that was made, or proven to be, for a run."""

    path: Path
    before: Before
    """What shared memory there was before the run."""
    identity: tuple[int, int]
    """Of the folder: its device and inode."""

    @classmethod
    def make(cls, folder: Path, before: Before) -> Scratch:
        """Makes one for the run in `folder`; its processes have it as TMPDIR, with a short path: sockets lie there."""
        usual = tempfile.gettempdir()
        path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=usual if len(usual) <= LONGEST_TMPDIR else SHORT_TMPDIR))
        try:
            secret = secrets.token_hex(16)
            owner = {"secret": secret, "folder": _identity(folder.stat()), **before.to_json()}
            (path / SCRATCH_OWNER).write_text(json.dumps(owner), encoding="utf-8")
            claim = os.open(folder / FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(claim, "w") as file:
                json.dump({"name": path.name, "secret": secret}, file)
            return cls(path=path, before=before, identity=_identity(path.stat()))
        except BaseException:
            with suppress(OSError), opened_folder(path) as descriptor:
                remove_folder(path, descriptor)
            raise

    @classmethod
    def of(cls, folder: Path) -> Scratch | None:
        """The one that the run in `folder` claims, if it is proven to be that run's."""
        try:
            claim, run = read_json(folder / FILE, CLAIM_BYTES), _identity(folder.stat())
            name, secret = claim["name"], claim["secret"]
            if not NAME.fullmatch(name) or not SECRET.fullmatch(secret):
                return None
        except (OSError, ValueError, KeyError, TypeError):
            return None
        for place in _places():
            with suppress(OSError, ValueError, KeyError, TypeError):
                return cls._proven(place / name, secret, run)
        return None

    @classmethod
    def _proven(cls, path: Path, secret: str, run: tuple[int, int]) -> Scratch:
        with opened_folder(path) as descriptor:
            if not is_ours_alone(descriptor, OTHERS_ENTER):
                raise ValueError("is not ours alone")
            owner = read_json(inside(descriptor) / SCRATCH_OWNER, OWNER_BYTES)
            own: Any = owner["secret"]
            if not hmac.compare_digest(str(own).encode(), secret.encode()) or tuple(owner["folder"]) != run:
                raise ValueError("is another run's")
            return cls(path=path, before=Before.of_json(owner), identity=_identity(os.fstat(descriptor)))

    @property
    def without_patterns(self) -> Scratch:
        """For whoever did not see the run begin: names count that the run noted itself, and no others."""
        return replace(self, before=replace(self.before, patterns=()))

    def noted(self) -> set[tuple[int, str]]:
        """Inodes and paths of the shared memory that processes of the run noted."""
        found: set[tuple[int, str]] = set()
        with suppress(OSError), opened_folder(self.path) as descriptor:
            if _identity(os.fstat(descriptor)) == self.identity:
                for path in inside(descriptor).glob("shm-*.txt"):
                    found |= set(_names_in(path))
        return found

    def remove(self) -> None:
        """Removes the folder, if it is still the one that was made."""
        with suppress(OSError), opened_folder(self.path) as descriptor:
            if _identity(os.fstat(descriptor)) == self.identity:
                remove_folder(self.path, descriptor)

    def remove_elsewhere(self) -> None:
        """Removes what the run went on in when its own folder was gone; call it when nobody will read it any more."""
        path = elsewhere(self.path)
        with suppress(OSError), opened_folder(path) as descriptor:
            if is_ours_alone(descriptor, OTHERS_ENTER):
                remove_folder(path, descriptor)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _places() -> list[Path]:
    """Where folders of this kind are made; a process of a run has its own one as the folder for temporary files."""
    usual = Path(tempfile.gettempdir())
    return [usual.parent if NAME.fullmatch(usual.name) else usual, Path(SHORT_TMPDIR)]


def _names_in(path: Path) -> Iterator[tuple[int, str]]:
    with suppress(ValueError, OSError), opened(path, NAMES_BYTES) as file:
        for line in file.read().splitlines():
            inode, _, name = line.partition(b" ")
            if inode.isdigit() and len(inode) <= len(str(2**64)):
                yield int(inode), os.fsdecode(name)
