"""File systems for tests: small ones, full ones, read-only ones; real ones for whoever may mount them."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psutil

from rlbench.harness.processes import process
from rlbench.harness.processes.shared_memory import FOLDER as SHARED_MEMORY

if TYPE_CHECKING:
    from tests.harness.runs import RunningSweep

PAGE_BYTES = 4096
MAY_MOUNT = os.geteuid() == 0 and subprocess.run(["unshare", "--mount", "true"], check=False).returncode == 0


class Mounted:
    """A tmpfs over a folder, for those who see the file system below `seen_at`; as a context, it goes at the end."""

    def __init__(self, folder: Path, options: str, wrapper: Sequence[str] = ()) -> None:
        """Mounts it; `options` as `mount -o` takes them. The folder must be there.

        `wrapper`: a command that gives another file system of this kind, which those who see this one see as well.
        """
        script = 'mount -t tmpfs -o "$1" tmpfs "$0" && echo mounted && exec cat'
        self._holder = subprocess.Popen(
            [*wrapper, "unshare", "--mount", "sh", "-c", script, str(folder), options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )  # the mount goes with the last process that sees it
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"mounted\n"
        self.seen_at = Path(f"/proc/{self._holder.pid}/root")
        self.folder = self.seen_at / folder.relative_to("/")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._holder.communicate()

    @property
    def enter(self) -> tuple[str, ...]:
        """A command that gives another one this file system."""
        return ("nsenter", "--mount", f"--target={self._holder.pid}")

    def remount(self, options: str) -> None:
        """Changes its options."""
        folder = f"/{self.folder.relative_to(self.seen_at)}"
        subprocess.run([*self.enter, "mount", "-o", f"remount,{options}", folder], check=True)


class OwnSharedMemory(Mounted):
    """A /dev/shm of one's own, where it shows to the last file what a sweep has left, whatever runs beside it."""

    def __init__(self) -> None:
        """Mounts it, empty."""
        super().__init__(SHARED_MEMORY, "mode=1777")

    def left(self) -> list[Path]:
        """What is there."""
        return sorted(self.folder.iterdir())


class AllSharedMemory:
    """The machine's /dev/shm, for those who may not mount one: what neighbours have left is taken for a sweep's."""

    enter: tuple[str, ...] = ()
    folder = SHARED_MEMORY

    def __init__(self) -> None:
        """Notes what is there."""
        self._before = set(SHARED_MEMORY.iterdir())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def left(self) -> list[Path]:
        """What has come since, and nobody has mapped."""
        mapped = set[str]()
        for pid in psutil.pids():
            with suppress(OSError):
                mapped.update(process.shared_memory_names(pid))
        return sorted(path for path in set(SHARED_MEMORY.iterdir()) - self._before if str(path) not in mapped)


SharedMemory = OwnSharedMemory | AllSharedMemory


def own_shared_memory() -> SharedMemory:
    """A /dev/shm for a test's sweeps alone, where one can be had."""
    return OwnSharedMemory() if MAY_MOUNT else AllSharedMemory()


class SmallDisk(Mounted):
    """A tmpfs of 8 MB, mounted for one sweep alone."""

    errno = errno.ENOSPC

    def __init__(self, folder: Path, wrapper: Sequence[str] = ()) -> None:
        """Makes the folder and mounts it there."""
        folder.mkdir()
        super().__init__(folder, "size=8m", wrapper)

    def wrapper(self, free_bytes: int | None) -> tuple[str, ...]:
        """A command that gives a sweep this disk, with so many bytes free from the start."""
        if free_bytes is not None:
            self.fill(free_bytes)
        return self.enter

    def fill(self, free_bytes: int, sweep: RunningSweep | None = None) -> None:
        """Leaves so many bytes free, or at most a page more than none."""
        del sweep
        path = self.folder / "fill"
        with suppress(OSError), path.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(PAGE_BYTES))
        os.truncate(path, path.stat().st_size - free_bytes // PAGE_BYTES * PAGE_BYTES)


class LimitedFiles:
    """Files that cannot grow (RLIMIT_FSIZE): a full disk for those who may not mount one."""

    errno = errno.EFBIG
    seen_at = Path("/")

    def __init__(self, folder: Path, wrapper: Sequence[str] = ()) -> None:
        """The same whatever the folder; `wrapper` as in `Mounted`."""
        del folder
        self._wrapper = wrapper

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def wrapper(self, free_bytes: int | None) -> tuple[str, ...]:
        """A command that allows a sweep no file of more bytes."""
        limit = () if free_bytes is None else ("prlimit", f"--fsize={free_bytes}")
        return (*self._wrapper, *limit)

    def fill(self, free_bytes: int, sweep: RunningSweep) -> None:
        """Allows all processes of a running sweep no file of more bytes."""
        for one in sweep.processes():
            one.rlimit(resource.RLIMIT_FSIZE, (free_bytes, free_bytes))
