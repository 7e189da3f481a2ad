"""What goes wrong with folders and clocks: two sweeps in one folder, a read-only one, a clock set back, no memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Self

import pytest

from harness import shared_memory
from harness.plan import plan
from harness.request import Asked, complete
from harness.sweep import Sweep
from tests.harness import stepping_clock
from tests.harness.disks import MAY_MOUNT, Mounted
from tests.harness.runs import FAULTY_SWEEP, RLBENCH, RunningSweep, install_faulty, wait_until

MIB = 2**20
TWO_CELLS = (*FAULTY_SWEEP, "--scenario", "faulty/patient:tag=a,faulty/patient:tag=b")
ONE_CELL = (*FAULTY_SWEEP, "--scenario", "faulty/patient:tag=a")
VIZDOOM = ("--systems", "sync", "--device", "cpu", "--scenario", "vizdoom:num_envs=2", "--iterations", "2")
VIZDOOM_BYTES = 2 * (65536 + 3 * 160 * 120)
"""What two engines need in /dev/shm."""


def rlbench(*words: str, cwd: Path, wrapper: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end."""
    environment = os.environ | {"COLUMNS": "300", "XDG_CACHE_HOME": str(cwd / "cache")}
    return subprocess.run(
        [*wrapper, str(RLBENCH), *words], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def test_sweeps_at_once_in_one_folder_keep_apart(tmp_path: Path) -> None:
    """Each has a folder of its own and finishes its cell, and both are read together afterwards.

    One that runs cannot be resumed beside itself: that is refused in one line, and it does not notice.
    """
    with RunningSweep(tmp_path, *ONE_CELL) as first, RunningSweep(tmp_path, *ONE_CELL) as second:
        wait_until(lambda: len(list(first.out.glob("*/.partial-001-*"))) == 2, "both run their cell")
        with RunningSweep(tmp_path, "--resume") as third:
            assert third.end() == 2
            assert "another rlbench is running this sweep; wait for it, or stop it" in third.stderr
            assert len(third.stderr.splitlines()) == 1
        first.release("a")
        assert (first.end(), second.end()) == (0, 0)
        assert (first.stderr, second.stderr) == ("", "")
        assert [run["status"] for run in first.runs(1)] == ["finished"] * 2
        assert len({path.parent.parent for path in first.out.glob("*/*/run.json")}) == 2
        assert first.files_left() == []
    listed = json.loads(rlbench("results", "runs", "--json", cwd=tmp_path).stdout)
    assert len(listed) == 2


class ReadOnlyMount(Mounted):
    """A folder on a file system that nobody may write to."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "size=8m")

    def close(self) -> None:
        """From now on."""
        self.remount("ro")


class ReadOnlyFolder:
    """A folder that those may not write to who may not mount one."""

    seen_at = Path("/")
    enter: tuple[str, ...] = ()

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> Self:
        return self

    def close(self) -> None:
        """From now on."""
        for folder, _, _ in os.walk(self._folder):
            Path(folder).chmod(0o555)

    def __exit__(self, *_: object) -> None:
        for entry in os.walk(self._folder):
            Path(entry[0]).chmod(0o755)


@pytest.mark.parametrize("kind", [ReadOnlyMount] if MAY_MOUNT else [ReadOnlyFolder])
def test_a_read_only_folder_is_refused_in_a_line_and_can_be_read(
    tmp_path: Path, kind: type[ReadOnlyMount | ReadOnlyFolder]
) -> None:
    """Neither a new sweep nor --resume starts; what is there is shown, and a report of it is written elsewhere."""
    (tmp_path / "runs").mkdir()
    with kind(tmp_path / "runs") as place:
        with RunningSweep(tmp_path, *TWO_CELLS, wrapper=place.enter, seen_at=place.seen_at) as sweep:
            sweep.release("a")
            sweep.wait_published(1)
            sweep.process.send_signal(signal.SIGINT)
            assert sweep.end() == 130
        place.close()
        for options in (TWO_CELLS, ("--resume",)):
            with RunningSweep(tmp_path, *options, wrapper=place.enter, seen_at=place.seen_at) as refused:
                assert refused.end() == 2
                (line,) = refused.stderr.splitlines()
                assert line.startswith("rlbench: ")
                assert "cannot be written" in line
        shown = rlbench("results", str(tmp_path / "runs"), cwd=tmp_path, wrapper=place.enter)
        assert (shown.returncode, shown.stderr) == (0, "")
        assert "faulty/patient" in shown.stdout
        words = ("report", str(tmp_path / "runs"), "--out", str(tmp_path / "report.html"))
        report = rlbench(*words, cwd=tmp_path, wrapper=place.enter)
        assert (report.returncode, report.stderr) == (0, "")
        assert (tmp_path / "report.html").stat().st_size > MIB


def test_a_clock_that_is_set_back_changes_no_figure_and_no_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Set back by two hours in the middle of a run: the run's times are right, and the next sweep is the newest."""
    monkeypatch.setenv("RLBENCH_TEST_CLOCK", str(tmp_path / "clock"))
    install_faulty(tmp_path / "site")
    (tmp_path / "site" / "sitecustomize.py").write_text(Path(stepping_clock.__file__).read_text())
    with RunningSweep(tmp_path, *FAULTY_SWEEP, "--scenario", "faulty/patient:tag=a") as first:
        first.wait_collecting(1)
        (tmp_path / "clock").write_text("-7200")
        first.release("a")
        assert first.end() == 0
        (run,) = first.runs(1)
        assert run["status"] == "finished"
        assert 0 < run["duration_s"] < 600
        window = run["figures"]["window"]
        assert 0 <= window["begin_s"] < window["end_s"] < 600
        assert first.files_left() == []
    with RunningSweep(tmp_path, *FAULTY_SWEEP, "--scenario", "faulty/patient:tag=b") as second:
        wait_until(lambda: second.partial(1), "its run has a folder")
        second.process.send_signal(signal.SIGINT)
        assert second.end() == 130
    names = [path.name for path in sorted((tmp_path / "runs").iterdir())]
    assert names[0] == run["sweep"]
    assert Sweep.newest(tmp_path / "runs").id == names[1]
    with RunningSweep(tmp_path, "--resume") as resumed:
        resumed.release("b")
        assert resumed.end() == 0
        (run,) = resumed.runs(1)[1:]
        assert run["sweep"] == names[1]


def test_room_in_shared_memory_is_asked_for_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cell that needs most is held against what is free; the error says both, and what to do."""
    asked = Asked(systems="sync", scenario="vizdoom:num_envs=2,pointnav", gpus="1,4", device="cpu", iterations=2)
    cells = plan(complete(asked)[0])
    needed = 4 * VIZDOOM_BYTES
    monkeypatch.setattr(shared_memory, "_free", lambda _: needed)
    shared_memory.check_room(cells)
    monkeypatch.setattr(shared_memory, "_free", lambda _: needed - 1)
    with pytest.raises(
        ValueError, match=r"--gpus 4 with vizdoom: its environments need 0\.9 MiB in /dev/shm, 0\.9 MiB are"
    ):
        shared_memory.check_room(cells)


if MAY_MOUNT:

    def test_a_shared_memory_too_small_is_said_before_the_sweep_starts(tmp_path: Path) -> None:
        """Two engines run in a /dev/shm of the size that they are said to need, and do not start in a smaller one."""
        for more_kib in (4, -40):
            with Mounted(shared_memory.FOLDER, f"size={VIZDOOM_BYTES // 1024 + more_kib}k") as place:
                done = rlbench(
                    "run", *VIZDOOM, "--out", str(tmp_path / str(more_kib)), cwd=tmp_path, wrapper=place.enter
                )
            if more_kib > 0:
                assert (done.returncode, done.stderr) == (0, "")
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert line.startswith("rlbench: --gpus 1 with vizdoom: its environments need 0.2 MiB in /dev/shm, 0.2 MiB are")
        assert not (tmp_path / str(more_kib)).exists()
