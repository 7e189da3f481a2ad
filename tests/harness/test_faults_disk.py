"""A disk that fills up: one line, no earlier run lost, nothing left running."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from results.store import read_runs
from tests.harness.runs import FAULTY_SWEEP, RunningSweep, wait_until
from tests.results.records import make_record, write_run_folder

OPTIONS = (*FAULTY_SWEEP, "--scenario", "faulty/patient:tag=a,faulty/patient:tag=b")
PAGE_BYTES = 4096
FILE_LIMIT_BYTES = 2048
ROOM_FOR_A_RECORD_BYTES = 150_000
MAY_MOUNT = os.geteuid() == 0 and subprocess.run(["unshare", "--mount", "true"], check=False).returncode == 0
MOUNT = 'mount -t tmpfs -o size=8m tmpfs "$0" && echo mounted && exec cat'


@contextmanager
def _small_disk(folder: Path) -> Iterator[tuple[RunningSweep, Callable[[int], None]]]:
    """A sweep whose runs go to a tmpfs of 8 MB, mounted for it alone; the call leaves so many bytes of it free."""
    out = folder / "runs"
    with subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", MOUNT, str(out)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:  # the mount goes with the last process that sees it
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"mounted\n"
        seen_at = Path(f"/proc/{holder.pid}/root")
        inside = seen_at / out.relative_to("/")
        write_run_folder(inside / "earlier", make_record())

        def fill(free_bytes: int) -> None:
            with suppress(OSError), (inside / "fill").open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(PAGE_BYTES))
            os.truncate(inside / "fill", (inside / "fill").stat().st_size - free_bytes)

        wrapper = ("nsenter", "--mount", f"--target={holder.pid}")
        with RunningSweep(folder, *OPTIONS, wrapper=wrapper, seen_at=seen_at) as sweep:
            yield sweep, fill


@contextmanager
def _limited_files(folder: Path) -> Iterator[tuple[RunningSweep, Callable[[int], None]]]:
    """A sweep; the call forbids every process of it to let a file grow beyond so many bytes (RLIMIT_FSIZE)."""
    write_run_folder(folder / "runs" / "earlier", make_record())

    with RunningSweep(folder, *OPTIONS) as sweep:

        def limit(num_bytes: int) -> None:
            for one in sweep.processes():
                with suppress(psutil.NoSuchProcess):
                    one.rlimit(resource.RLIMIT_FSIZE, (num_bytes, num_bytes))

        yield sweep, limit


DISKS = {"file-size-limit": (_limited_files, errno.EFBIG)} | (
    {"full-disk": (_small_disk, errno.ENOSPC)} if MAY_MOUNT else {}
)
"""The limit holds for whoever runs the tests; a disk of its own needs the right to mount one."""


@pytest.mark.parametrize("disk", DISKS)
def test_a_disk_that_fills_up_during_a_run_is_one_line_and_loses_no_earlier_run(tmp_path: Path, disk: str) -> None:
    """The sweep ends with the folder and the reason in one line; earlier runs can be read; nothing else is left."""
    make_disk, number = DISKS[disk]
    (tmp_path / "runs").mkdir()
    with make_disk(tmp_path) as (sweep, fill):
        sweep.wait_collecting(1)
        fill(FILE_LIMIT_BYTES if disk == "file-size-limit" else 0)
        assert sweep.end() == 2
        (line,) = sweep.stderr.splitlines()
        assert line.startswith("rlbench: ")
        assert os.strerror(number) in line
        assert [run.record.id for run in read_runs(sweep.out)] == ["ddppo-1"]
        assert not list(sweep.out.glob("*/.partial-*"))
        assert sweep.processes() == []


@pytest.mark.parametrize("disk", DISKS)
def test_a_disk_without_room_for_a_run_fails_its_cell(tmp_path: Path, disk: str) -> None:
    """A run for which there is no room ends before its first step, with the system's reason; the record still fits."""
    make_disk, number = DISKS[disk]
    (tmp_path / "runs").mkdir()
    with make_disk(tmp_path) as (sweep, fill):
        wait_until(lambda: sweep.partial(1), "the run begins")
        fill(ROOM_FOR_A_RECORD_BYTES)
        assert sweep.end(2) == 1
        for run in (sweep.runs(1)[0], sweep.runs(2)[0]):
            assert run["status"] == "failed"
            assert run["reason"] == f"rank 0: OSError: [Errno {number}] {os.strerror(number)}"
        assert sweep.stderr == ""
