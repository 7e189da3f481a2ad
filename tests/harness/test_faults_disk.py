"""A disk that fills up: one line, no earlier run lost, nothing left running."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Self

import pytest

from results.store import read_runs
from tests.harness.runs import FAULTY_SWEEP, RunningSweep
from tests.results.records import make_record, write_run_folder

OPTIONS = (*FAULTY_SWEEP, "--scenario", "faulty/patient:tag=a,faulty/patient:tag=b")
NO_ROOM_BYTES = 2048
ROOM_FOR_A_RECORD_BYTES = 150_000
PAGE_BYTES = 4096
MAY_MOUNT = os.geteuid() == 0 and subprocess.run(["unshare", "--mount", "true"], check=False).returncode == 0
MOUNT = 'mount -t tmpfs -o size=8m tmpfs "$0" && echo mounted && exec cat'


class SmallDisk:
    """A tmpfs of 8 MB, mounted for one sweep alone; as a context, it goes at the end."""

    errno = errno.ENOSPC

    def __init__(self, folder: Path) -> None:
        """Mounts it at `folder`, for whoever sees the file system below `seen_at`."""
        folder.mkdir()
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", MOUNT, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )  # the mount goes with the last process that sees it
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"mounted\n"
        self.seen_at = Path(f"/proc/{self._holder.pid}/root")
        self._folder = self.seen_at / folder.relative_to("/")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._holder.communicate()

    def wrapper(self, free_bytes: int | None) -> tuple[str, ...]:
        """A command that gives a sweep this disk, with so many bytes free from the start."""
        if free_bytes is not None:
            self.fill(free_bytes)
        return ("nsenter", "--mount", f"--target={self._holder.pid}")

    def fill(self, free_bytes: int, sweep: RunningSweep | None = None) -> None:
        """Leaves so many bytes free, or at most a page more than none."""
        del sweep
        path = self._folder / "fill"
        with suppress(OSError), path.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(PAGE_BYTES))
        os.truncate(path, path.stat().st_size - free_bytes // PAGE_BYTES * PAGE_BYTES)


class LimitedFiles:
    """Files that cannot grow (RLIMIT_FSIZE): a full disk for those who may not mount one."""

    errno = errno.EFBIG
    seen_at = Path("/")

    def __init__(self, folder: Path) -> None:
        """The same whatever the folder."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def wrapper(self, free_bytes: int | None) -> tuple[str, ...]:
        """A command that allows a sweep no file of more bytes."""
        return () if free_bytes is None else ("prlimit", f"--fsize={free_bytes}")

    def fill(self, free_bytes: int, sweep: RunningSweep) -> None:
        """Allows all processes of a running sweep no file of more bytes."""
        for one in sweep.processes():
            one.rlimit(resource.RLIMIT_FSIZE, (free_bytes, free_bytes))


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a short name: the temporary files of the sweep lie there too."""
    return tmp_path_factory.mktemp("disk")


DISKS = [LimitedFiles, SmallDisk] if MAY_MOUNT else [LimitedFiles]


@pytest.mark.parametrize("kind", DISKS)
def test_a_disk_that_fills_up_during_a_run_is_one_line_and_loses_no_earlier_run(
    folder: Path, kind: type[LimitedFiles | SmallDisk]
) -> None:
    """The sweep ends with the folder and the reason in one line; earlier runs can be read; nothing else is left."""
    with (
        kind(folder / "runs") as disk,
        RunningSweep(folder, *OPTIONS, wrapper=disk.wrapper(None), seen_at=disk.seen_at) as sweep,
    ):
        write_run_folder(sweep.out / "earlier", make_record())
        sweep.wait_collecting(1)
        disk.fill(NO_ROOM_BYTES, sweep)
        assert sweep.end() == 2
        (line,) = sweep.stderr.splitlines()
        assert line.startswith("rlbench: ")
        assert os.strerror(disk.errno) in line
        assert [run.record.id for run in read_runs(sweep.out)] == ["ddppo-1"]
        assert sweep.files_left() == []
        assert sweep.processes() == []


@pytest.mark.parametrize("kind", DISKS)
def test_a_disk_without_room_for_a_run_fails_its_cell(folder: Path, kind: type[LimitedFiles | SmallDisk]) -> None:
    """A run for which there is no room ends before its first step, with the system's reason; the record still fits."""
    with (
        kind(folder / "runs") as disk,
        RunningSweep(folder, *OPTIONS, wrapper=disk.wrapper(ROOM_FOR_A_RECORD_BYTES), seen_at=disk.seen_at) as sweep,
    ):
        assert sweep.end(2) == 1
        for run in (sweep.runs(1)[0], sweep.runs(2)[0]):
            assert run["status"] == "failed"
            assert run["reason"] == f"rank 0: OSError: [Errno {disk.errno}] {os.strerror(disk.errno)}"
        assert sweep.stderr == ""
