"""A run's folder for temporary files (its scratch), and the proof that it belongs to that run.

A run's folder may come from anybody, so what it says about other places is only a claim. Its `scratch.json` names the
scratch by a bare name and a secret. The scratch itself is a folder below the system's folder for temporary files that
only its owner may enter. It holds the same secret and the device and inode of the run's folder it was made for. The
run's processes note in it the names of shared memory that they have mapped (`process.note_shared_memory`), which are
removed with it.
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

from rlbench.harness.processes.held import elsewhere
from rlbench.harness.processes.process import SCRATCH_OWNER
from rlbench.harness.processes.removal import OTHERS_ENTER, inside, is_ours_alone, opened_folder, remove_folder
from rlbench.harness.processes.shared_memory import Before
from rlbench.results.reading.untrusted import MIB, opened, read_json

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE = "scratch.json"
"""The claim, in the run's folder."""
PREFIX = "rlb-"
NAME = re.compile(r"rlb-[A-Za-z0-9_]+")
SECRET = re.compile(r"[0-9a-f]{32}")
LONGEST_TMPDIR = 50
"""Characters. A socket's path may have 107, and multiprocessing's own folder and name take up to 45 of them."""
SHORT_TMPDIR = "/tmp"  # noqa: S108  mkdtemp makes a folder there that only we may enter
CLAIM_BYTES = 4096
OWNER_BYTES = 64 * MIB
"""Limit of the owner's file, which has a number of up to 20 digits for each name in /dev/shm."""
NAMES_BYTES = 16 * MIB


@dataclass(frozen=True, kw_only=True, slots=True)
class Scratch:
    """A folder for temporary files that was made for a run, or proven to belong to it."""

    path: Path
    before: Before
    """The shared memory that there was before the run."""
    identity: tuple[int, int]
    """The folder's device and inode."""

    @classmethod
    def make(cls, folder: Path, before: Before) -> Scratch:
        """Makes one for the run in `folder`, to be TMPDIR of its processes; its path is short because of sockets."""
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
        """The scratch that the run in `folder` claims, or None if it does not prove to be that run's."""
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
        """The same for a caller that did not see the run begin: only names that the run noted itself are removed."""
        return replace(self, before=replace(self.before, patterns=()))

    def noted(self) -> set[tuple[int, str]]:
        """Inodes and paths of the shared memory that the run's processes have noted."""
        found: set[tuple[int, str]] = set()
        with suppress(OSError), opened_folder(self.path) as descriptor:
            if _identity(os.fstat(descriptor)) == self.identity:
                for path in inside(descriptor).glob("shm-*.txt"):
                    found |= set(_names_in(path))
        return found

    def remove(self) -> None:
        """Removes the folder if it is still the same one, by `identity`."""
        with suppress(OSError), opened_folder(self.path) as descriptor:
            if _identity(os.fstat(descriptor)) == self.identity:
                remove_folder(self.path, descriptor)

    def remove_elsewhere(self) -> None:
        """Removes the folder in which the run went on after its own was removed; call it when nothing will read it."""
        path = elsewhere(self.path)
        with suppress(OSError), opened_folder(path) as descriptor:
            if is_ours_alone(descriptor, OTHERS_ENTER):
                remove_folder(path, descriptor)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _places() -> list[Path]:
    """Where scratch folders are made; inside a run, TMPDIR is one itself, so its parent is meant."""
    usual = Path(tempfile.gettempdir())
    return [usual.parent if NAME.fullmatch(usual.name) else usual, Path(SHORT_TMPDIR)]


def _names_in(path: Path) -> Iterator[tuple[int, str]]:
    with suppress(ValueError, OSError), opened(path, NAMES_BYTES) as file:
        for line in file.read().splitlines():
            inode, _, name = line.partition(b" ")
            if inode.isdigit() and len(inode) <= len(str(2**64)):
                yield int(inode), os.fsdecode(name)
