"""A disk that fills up: one line, no earlier run lost, nothing left running."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rlbench.results.records.store import read_runs
from tests.harness.disks import MAY_MOUNT, LimitedFiles, SmallDisk
from tests.harness.runs import FAULTY_SWEEP, RunningSweep
from tests.lanes import deep
from tests.results.made_records import make_record, write_run_folder

OPTIONS = (*FAULTY_SWEEP, "--scenario", "faulty/patient:tag=a,faulty/patient:tag=b")
NO_ROOM_BYTES = 2048
ROOM_FOR_A_RECORD_BYTES = 150_000


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a short name: the temporary files of the sweep lie there too."""
    return tmp_path_factory.mktemp("disk")


DISKS = [LimitedFiles, SmallDisk] if MAY_MOUNT else [LimitedFiles]


@pytest.mark.parametrize("kind", [*(pytest.param(kind, marks=deep) for kind in DISKS[:-1]), DISKS[-1]])
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
        line = sweep.stderr.splitlines()[-1]
        assert line.startswith("rlbench: ")
        assert os.strerror(disk.errno) in line
        assert [run.record.id for run in read_runs(sweep.out)] == ["ddppo-1"]
        assert sweep.files_left() == []
        assert sweep.processes() == []


@pytest.mark.parametrize("kind", [DISKS[0], *(pytest.param(kind, marks=deep) for kind in DISKS[1:])])
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
        assert "Traceback" not in sweep.stderr
