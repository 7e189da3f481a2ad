from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from harness import process, sweep
from harness.leftovers import end_rank, end_run, make_scratch, remove_scratch
from harness.sweep import Sweep
from results.store import PARTIAL_PREFIX

BEFORE_THE_RUN_S = 1000.0


def own_children() -> frozenset[int]:
    """Children that this process has for other reasons."""
    return frozenset(child.pid for child in psutil.Process().children())


def test_descendants_end_with_what_they_had_started(tmp_path: Path) -> None:
    """A child, stopped or not, and its own child in a session of its own are gone; a spared child is not touched."""
    process.adopt_orphans()
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


def test_what_one_rank_leaves_is_killed_and_nothing_else() -> None:
    """Of two orphans that are ours now, the one with the rank's number dies, and its child; the other lives on."""
    process.adopt_orphans()
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
    end_rank(3)
    assert [one.is_running() for one in families[0]] == [False, False]
    assert [one.is_running() for one in families[1]] == [True, True]
    end_rank(4)
    assert [one.is_running() for one in families[1]] == [False, False]


def test_shared_memory_is_removed_only_if_the_run_made_it(tmp_path: Path) -> None:
    """Of what a worker had mapped, files from before the run stay: a data set in /dev/shm is not a run's to delete."""
    scratch = make_scratch(tmp_path)
    data_set, made = tmp_path / "data-set", tmp_path / "made"
    data_set.touch()
    os.utime(data_set, (0, data_set.stat().st_mtime - BEFORE_THE_RUN_S))
    made.touch()
    (tmp_path / "shm-rank0-env0.txt").write_text(f"{data_set}\n{made}\n{tmp_path / 'gone'}\n")
    end_run(tmp_path, spare=own_children())
    assert data_set.exists()
    assert not made.exists()
    assert not scratch.exists()
    end_run(tmp_path, spare=own_children())  # once more: the runner does what its keeper has done


def test_sockets_fit_in_the_folder_for_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A TMPDIR with so long a path that multiprocessing could bind no socket in it is not used."""
    long = tmp_path / ("long" * 20)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    scratch = make_scratch(tmp_path)
    own = scratch / "pymp-12345678"
    own.mkdir()
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(own / "listener-12345678"))
    remove_scratch(tmp_path)
    assert not scratch.exists()


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
