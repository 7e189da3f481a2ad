"""What goes wrong with folders and clocks: two sweeps in one folder, a read-only one, a clock set back, no memory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest

from rlbench.harness.metering.meter_file import MeterFile, meter_path
from rlbench.harness.plan import room
from rlbench.harness.plan.options import RunOptions
from rlbench.harness.plan.planning import plan
from rlbench.harness.plan.request import complete
from rlbench.harness.processes import shared_memory
from rlbench.harness.run.sweep import Sweep
from tests.harness.command import QUICK, RLBENCH, Ended, assert_refused, call
from tests.harness.disks import MAY_MOUNT, Mounted
from tests.harness.faults import stepping_clock
from tests.harness.runs import FAULTY_SWEEP, RunningSweep, install_faulty, installed, wait_until

MIB = 2**20
ONE_CELL = (*FAULTY_SWEEP, "--scenario", "faulty/patient:tag=a")
NEW_SWEEP = ("--systems", "sync", *QUICK)
VIZDOOM = ("--systems", "sync", "--device", "cpu", "--scenario", "vizdoom:num_envs=2", "--iterations", "2")
VIZDOOM_BYTES = 2 * (65536 + 3 * 160 * 120)
"""What two engines need in /dev/shm."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Swept:
    """Two sweeps that ran at once in one folder, whose clock was set back meanwhile, and one that was begun after."""

    out: Path
    at_once: list[dict[str, Any]]
    """Records of the two."""
    refused: Ended
    """How `--resume` ended while they ran."""
    exit_codes: list[int]
    said: list[str]
    """On stderr, by each of the two."""
    files: list[Path]
    later: dict[str, Any]
    """The record of the third sweep."""


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swept]:
    """Three sweeps of one cell each; the clock is set back by two hours while the first two collect."""
    folder = tmp_path_factory.mktemp("folders")
    install_faulty(folder / "site")
    (folder / "site" / "sitecustomize.py").write_text(Path(stepping_clock.__file__).read_text())
    with pytest.MonkeyPatch.context() as patched, installed(folder / "site"):
        patched.setenv("RLBENCH_TEST_CLOCK", str(folder / "clock"))
        patched.setenv("COLUMNS", "300")
        with RunningSweep(folder, *ONE_CELL) as first, RunningSweep(folder, *ONE_CELL) as second:
            wait_until(lambda: _num_collecting(first.out) == 2, "both run their cell")
            refused = call("run", "--resume", "--out", str(first.out))
            (folder / "clock").write_text("-7200")
            first.release("a")
            exit_codes = [first.end(), second.end()]
            at_once, files = first.runs(1), first.files_left()
        with RunningSweep(folder, *FAULTY_SWEEP, "--scenario", "faulty/patient:tag=b") as third:
            third.release("b")
            exit_codes.append(third.end())
            (later,) = (run for run in third.runs(1) if run["sweep"] not in {run["sweep"] for run in at_once})
        yield Swept(
            out=first.out,
            at_once=at_once,
            refused=refused,
            exit_codes=exit_codes,
            said=[first.stderr, second.stderr],
            files=files,
            later=later,
        )


def _num_collecting(out: Path) -> int:
    """How many runs have stepped both of their environments."""
    paths = [meter_path(folder, 0) for folder in out.glob("*/.partial-001-*")]
    meters = [MeterFile(path, writable=False) for path in paths if path.exists()]
    return sum(min(meter.count(1 + env, "env_steps") for env in range(meter.num_envs)) > 0 for meter in meters)


def test_sweeps_at_once_in_one_folder_keep_apart(swept: Swept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a folder of its own and finishes its cell, and both are read together afterwards.

    One that runs cannot be resumed beside itself: that is refused in one line, and it does not notice.
    """
    assert swept.refused.code == 2
    (line,) = swept.refused.err.splitlines()
    assert "another rlbench is running this sweep; wait for it, or stop it" in line
    assert swept.exit_codes == [0, 0, 0]
    assert not any(word in said for said in swept.said for word in ("warning", "Traceback", "rlbench: "))
    assert [run["status"] for run in swept.at_once] == ["finished"] * 2
    assert swept.files == []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    listed = json.loads(call("results", str(swept.out), "--json").out)
    assert len({run["sweep"] for run in listed}) == len(listed) == 3


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
    swept: Swept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[ReadOnlyMount | ReadOnlyFolder]
) -> None:
    """Neither a new sweep nor --resume starts; what is there is shown, and a report of it is written elsewhere."""
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "runs").mkdir()
    with kind(tmp_path / "runs") as place:
        out = place.seen_at / (tmp_path / "runs").relative_to("/")
        shutil.copytree(swept.out, out, dirs_exist_ok=True)
        shutil.rmtree(out / swept.later["sweep"] / swept.later["id"])  # there is something to resume
        place.close()
        for options in (NEW_SWEEP, ("--resume",)):
            refused = call("run", *options, "--out", str(out))
            assert refused.code == 2
            (line,) = refused.err.splitlines()
            assert line.startswith("rlbench: ")
            assert "cannot be written" in line
        shown = call("results", str(out))
        assert (shown.code, shown.err) == (0, "")
        assert "faulty/patient" in shown.out
        report = call("report", str(out), "--out", str(tmp_path / "report.html"))
        assert (report.code, report.err) == (0, "")
        assert (tmp_path / "report.html").stat().st_size > MIB // 2


def test_a_clock_that_is_set_back_changes_no_figure_and_no_order(
    swept: Swept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Set back by two hours in the middle of a run: the run's times are right, and the next sweep is the newest."""
    for run in swept.at_once:
        assert run["status"] == "finished"
        assert 0 < run["duration_s"] < 600
        window = run["figures"]["window"]
        assert 0 <= window["begin_s"] < window["end_s"] < 600
    assert swept.later["status"] == "finished"
    names = [path.name for path in sorted(swept.out.iterdir())]
    assert {run["sweep"] for run in swept.at_once} == set(names[:2])
    assert names[2:] == [swept.later["sweep"]]
    assert Sweep.newest(swept.out).id == names[2]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    resumed = call("run", "--resume", "--out", str(swept.out))
    assert resumed.code == 0
    assert names[2] in resumed.err


def test_room_in_shared_memory_is_asked_for_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cell that needs most is held against what is free; the error says both, and what to do."""
    asked = RunOptions(systems="sync", scenario="vizdoom:num_envs=2,pointnav", gpus="1,4", device="cpu", iterations=2)
    cells = plan(complete(asked)[0])
    needed = 4 * VIZDOOM_BYTES
    monkeypatch.setattr(room, "_free", lambda _: needed)
    room.check_room(cells)
    monkeypatch.setattr(room, "_free", lambda _: needed - 1)
    with pytest.raises(
        ValueError, match=r"--gpus 4 with vizdoom: its environments need 0\.9 MiB in /dev/shm, 0\.9 MiB are"
    ):
        room.check_room(cells)


if MAY_MOUNT:

    def test_a_shared_memory_too_small_is_said_before_the_sweep_starts(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Two engines run in a /dev/shm of the size that they are said to need, and do not start in a smaller one."""
        with Mounted(shared_memory.FOLDER, f"size={VIZDOOM_BYTES // 1024 + 4}k") as place:
            command = [*place.enter, str(RLBENCH), "run", *VIZDOOM, "--out", str(tmp_path / "enough")]
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        with Mounted(shared_memory.FOLDER, f"size={VIZDOOM_BYTES // 1024 - 40}k") as place:
            free_bytes = room._free
            monkeypatch.setattr(room, "_free", lambda folder: free_bytes(place.seen_at / folder.relative_to("/")))
            monkeypatch.setenv("COLUMNS", "300")
            refused = call("run", *VIZDOOM, "--out", str(tmp_path / "less"))
        said = "rlbench: --gpus 1 with vizdoom: its environments need 0.2 MiB in /dev/shm, 0.2 MiB are"
        assert_refused(refused, said)
        assert not (tmp_path / "less").exists()
