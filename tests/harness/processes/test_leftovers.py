from __future__ import annotations

import fcntl
import mmap
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from rlbench.harness.processes import process, shared_memory
from rlbench.harness.processes.held import elsewhere
from rlbench.harness.processes.leftovers import end_rank, end_run, remove_files
from rlbench.harness.processes.scratch import FILE, Scratch
from rlbench.harness.processes.shared_memory import Before
from rlbench.harness.run import sweep
from rlbench.harness.run.sweep import Sweep
from rlbench.results.records.store import PARTIAL_PREFIX
from tests.harness.runs import FAULTY_SWEEP, RunningSweep, wait_until

CLOCK_SET_BACK_S = 1000.0


def own_children() -> frozenset[int]:
    """Children that this process has for other reasons."""
    return frozenset(child.pid for child in psutil.Process().children())


@pytest.fixture(name="adopts")
def _adopts() -> Iterator[None]:
    """This process adopts orphans for one test: it takes none away, so those of later tests would stay zombies."""
    process.adopt_orphans()
    yield
    process._prctl(process.PR_SET_CHILD_SUBREAPER, 0)


@pytest.mark.usefixtures("adopts")
def test_descendants_end_with_what_they_had_started(tmp_path: Path) -> None:
    """A child, stopped or not, and its own child in a session of its own are gone; a spared child is not touched."""
    code = (
        "import subprocess; child = subprocess.Popen(['sleep', '1000'], start_new_session=True); "
        "print(child.pid, flush=True); child.wait()"
    )
    with (
        subprocess.Popen(["sleep", "1000"]) as spared,
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child,
    ):
        assert child.stdout is not None
        grandchild = psutil.Process(int(child.stdout.readline()))
        child.send_signal(signal.SIGSTOP)
        end_run(tmp_path, spare=own_children() - {child.pid})
        assert not psutil.pid_exists(child.pid)
        assert not grandchild.is_running()
        assert spared.poll() is None
        spared.kill()


@pytest.mark.usefixtures("adopts")
def test_what_one_rank_leaves_is_killed_and_nothing_else() -> None:
    """Of two orphans that are ours now, the one with the rank's number dies, and its child; the other lives on.

    It dies when it is of the rank's process group, which is what a fork without another program leaves.
    """
    nobody = os.getpid()  # leads no group of those here
    inner = "import subprocess; child = subprocess.Popen(['sleep', '1000']); print(child.pid, flush=True); child.wait()"
    outer = (
        f"import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', {inner!r}], start_new_session=True, "
        "stdout=subprocess.PIPE, text=True); print(child.pid, child.stdout.readline())"
    )
    families = []
    for rank in (3, 4):
        environment = {**os.environ, "RANK": str(rank)}
        said = subprocess.check_output([sys.executable, "-c", outer], env=environment, text=True, timeout=60)
        families.append([psutil.Process(int(pid)) for pid in said.split()])
    end_rank(3, nobody)
    assert [one.is_running() for one in families[0]] == [False, False]
    assert [one.is_running() for one in families[1]] == [True, True]
    end_rank(5, os.getpgid(families[1][0].pid))
    assert [one.is_running() for one in families[1]] == [False, False]


def test_shared_memory_is_removed_only_if_the_run_made_it(tmp_path: Path, shm_prefix: str) -> None:
    """Of what a worker had mapped, names from before the run stay, those of the run go, wherever the clock was set.

    A data set in /dev/shm is not a run's to delete, nor is a link, a name that is another file by now, or anything that
    is elsewhere; and what somebody wrote into the run's own folder, which may be from anybody, says nothing.
    """
    names = [shared_memory.FOLDER / f"{shm_prefix}-{number}" for number in range(7)]
    data_set, made, unknown, gone, link, another, claimed = names
    data_set.touch()
    scratch = Scratch.make(tmp_path, Before.now(object()))
    link.symlink_to(data_set)
    for path in (data_set, made, unknown, another, claimed):
        path.touch()
        os.utime(path, (0, path.stat().st_mtime - CLOCK_SET_BACK_S))
    outside = tmp_path / "outside"
    outside.touch()
    note(scratch, *((path.lstat().st_ino, path) for path in (data_set, made, link, outside)))
    note(scratch, (1, gone), (another.stat().st_ino - 1, another))
    (tmp_path / "shm-rank0-env0.txt").write_text(f"{claimed}\n{claimed.stat().st_ino} {claimed}\n")
    try:
        end_run(tmp_path, spare=own_children())
        assert [path.name for path in (*names, outside) if not os.path.lexists(path)] == [made.name, gone.name]
        assert not scratch.path.exists()
        end_run(tmp_path, spare=own_children())  # once more: the runner does what its keeper has done
    finally:
        for path in names:
            path.unlink(missing_ok=True)


def note(scratch: Scratch, *names: tuple[int, Path]) -> None:
    """Notes names of shared memory as a worker does."""
    with (scratch.path / "shm-rank0-env0.txt").open("a") as file:
        file.writelines(f"{inode} {path}\n" for inode, path in names)


def test_a_process_notes_what_it_has_mapped_in_its_own_run_s_scratch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shm_prefix: str
) -> None:
    """So that it is removed when the process is killed; where TMPDIR is no run's, nothing is written there."""
    scratch = Scratch.make(tmp_path, Before.now(object()))
    name = shared_memory.FOLDER / f"{shm_prefix}-noted"
    name.write_bytes(bytes(mmap.PAGESIZE))
    try:
        with name.open("r+b") as file, mmap.mmap(file.fileno(), 0):
            monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
            process.note_shared_memory("rank0-env0", [os.getpid()])
            assert [path.name for path in tmp_path.iterdir()] == [FILE]
            monkeypatch.setattr(tempfile, "tempdir", str(scratch.path))
            process.note_shared_memory("rank0-env0", [os.getpid()])
            assert (name.stat().st_ino, str(name)) in scratch.noted()
            remove_files(tmp_path, own=scratch)
            assert name.exists()  # this process has it mapped
        scratch.before.remove_new({(name.stat().st_ino, str(name))})
        assert not name.exists()
    finally:
        name.unlink(missing_ok=True)


def test_what_a_simulator_left_that_died_before_it_told_is_removed_unless_somebody_has_it(
    tmp_path: Path, shm_prefix: str
) -> None:
    """Names that fit the scenario's patterns go when they are new and mapped by nobody.

    They count for those that saw the run begin: what somebody resumes may have been followed by another program's.
    """
    prefix = f"{shm_prefix}-sim"
    names = (f"{prefix}-old", f"{prefix}-left", f"{prefix}-mapped", f"{shm_prefix}-x{prefix}")
    old, left, mapped, other = (shared_memory.FOLDER / name for name in names)
    try:
        old.touch()
        scratch = Scratch.make(tmp_path, Before.now(SimpleNamespace(shm_names=(f"{prefix}*",))))
        for path in (left, mapped, other):
            path.write_bytes(bytes(mmap.PAGESIZE))
        with mapped.open("r+b") as file, mmap.mmap(file.fileno(), 0):
            remove_files(tmp_path)
            assert not scratch.path.exists()
            assert left.exists()
            remove_files(tmp_path, own=scratch)
        assert [path.exists() for path in (old, left, mapped, other)] == [True, False, True, True]
    finally:
        for path in (old, left, mapped, other):
            path.unlink(missing_ok=True)


def test_sockets_fit_in_the_folder_for_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A TMPDIR with so long a path that multiprocessing could bind no socket in it is not used."""
    long = tmp_path / ("long" * 20)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    scratch = Scratch.make(tmp_path, Before.now(object()))
    own = scratch.path / "pymp-12345678"
    own.mkdir()
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(own / "listener-12345678"))
    remove_files(tmp_path)
    assert not scratch.path.exists()


def test_a_left_over_run_is_removed_only_once_its_keeper_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever resumes the sweep waits for the lock that a keeper holds on its run's folder, and then says so."""
    monkeypatch.setattr(sweep, "KEEPER_LIMIT_S", 0.2)
    left = tmp_path / f"{PARTIAL_PREFIX}001"
    left.mkdir()
    resumed = Sweep(folder=tmp_path, cells=(), command=())
    lock = os.open(left, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with pytest.raises(ValueError, match=f"{PARTIAL_PREFIX}001: a process of a killed rlbench still works in it"):
        resumed.remove_partial()
    assert left.exists()
    os.close(lock)
    assert resumed.remove_partial() == 1
    assert not left.exists()


@pytest.mark.parametrize(
    ("returncode", "words"),
    [(3, "exited with 3"), (-9, "was killed by SIGKILL"), (-40, "was killed by signal 40")],
)
def test_an_end_is_said_in_words(returncode: int, words: str) -> None:
    """Signals by name, those without one by number."""
    assert process.how_it_ended(returncode) == words


def test_a_killed_sweep_leaves_nothing_of_a_run_that_went_on_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keeper removes the folder that it made for it when the runner, which would read it, is gone."""
    options = (*FAULTY_SWEEP, "--scenario", "faulty/patient:tag=a")
    with RunningSweep(tmp_path, *options) as running:
        partial = running.wait_collecting(1)
        monkeypatch.setattr(tempfile, "tempdir", str(running.scratch))
        scratch = Scratch.of(partial)
        assert scratch is not None
        anew = elsewhere(scratch.path)
        (keeper,) = running.of_module("rlbench.harness.run.keeper")
        keeper.suspend()  # it would make the folder anew where it was
        shutil.rmtree(partial)
        partial.touch()
        keeper.resume()
        wait_until(anew.is_dir, "the run goes on elsewhere")
        running.process.kill()
        wait_until(lambda: not running.of_module("rlbench.harness.run.keeper"), "the keeper has ended")
        assert [path.exists() for path in (anew, scratch.path)] == [False, False]
