"""Two processes at once, each on half of the cores, and how long they run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlbench.harness.commands.gate import halves
from rlbench.harness.commands.gate.halves import halves_of, on_cores, swap_until_one_ends
from rlbench.harness.devices import kinds
from tests.harness.command import call
from tests.harness.commands.gate.toy_repository import commit
from tests.harness.processes.test_priority import refuse

MOVED = """
import os, subprocess, sys, threading, time

def until_moved(bound):
    while (now := os.sched_getaffinity(0)) == bound:
        time.sleep(0.005)
    seen.append(sorted(now))

def on_one_core():
    os.sched_setaffinity(0, {max(ours)})  # of this thread alone
    until_moved({max(ours)})

seen, ours = [], os.sched_getaffinity(0)
if sys.argv[1:] == ["child"]:
    until_moved(ours)
else:
    child = subprocess.Popen([sys.executable, __file__, "child"], stdout=subprocess.PIPE, text=True)
    thread = threading.Thread(target=on_one_core)
    thread.start()
    until_moved(ours)
    thread.join()
    seen.append(child.communicate()[0].strip())
print(*sorted(map(str, seen)), sep="; ")
"""


def test_halves_are_as_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """An odd core is left; one core has no halves, and neither has a machine whose GPU both would use."""
    assert halves_of([0, 2, 4, 6], "cpu") == ((0, 2), (4, 6))
    assert halves_of([1, 3, 5], "emulated") == ((1,), (3,))
    assert halves_of([7], "cpu") is None
    assert halves_of([0, 1], "cuda") is None
    monkeypatch.setattr(kinds, "visible_gpus", lambda: [0])
    assert halves_of([0, 1], None) is None
    with pytest.raises(ValueError, match="--device tpu"):
        halves_of([0, 1], "tpu")


def test_what_is_started_is_on_its_cores() -> None:
    """A child keeps the cores that it was started on; ours are as they were, even when its start fails."""
    ours = os.sched_getaffinity(0)
    with on_cores([min(ours)]):
        child = subprocess.run(
            [sys.executable, "-c", "import os; print(os.sched_getaffinity(0))"], check=True, capture_output=True
        )
    assert child.stdout.decode().strip() == str({min(ours)})
    with pytest.raises(RuntimeError), on_cores([min(ours)]):
        raise RuntimeError
    assert os.sched_getaffinity(0) == ours


@pytest.mark.parametrize("permitted", [True, False])
def test_threads_and_children_change_halves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, permitted: bool
) -> None:
    """All threads of all processes of a run move; one that is bound to a core is on the same one of the other half."""
    monkeypatch.setattr(halves, "SWAP_S", 0.1)
    if not permitted:
        monkeypatch.setattr(halves, "QUEUED_SWAP_S", 0.1)
        monkeypatch.setattr(os, "sched_setscheduler", refuse)
    both = halves_of(sorted(os.sched_getaffinity(0)), "cpu")
    assert both is not None
    script = tmp_path / "moved.py"
    script.write_text(MOVED)
    with on_cores(both[0]):
        moving = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    with on_cores(both[1]):
        beside = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], text=True)
    try:
        swap_until_one_ends([moving, beside], both)
        assert moving.poll() == 0  # it has seen all its threads move
        assert os.sched_getaffinity(beside.pid) in [set(half) for half in both]
    finally:
        beside.kill()
        beside.wait()
    seen = moving.communicate()[0].strip().split("; ")
    assert len(seen) == 3
    assert {*seen} <= {str(list(half)) for half in both} | {str([half[-1]]) for half in both}


@pytest.mark.parametrize(
    ("what", "said", "seconds"),
    [
        ("one", "1 of 3 iterations: it does not count, and the others take 60 s", [20, 60, 60, 60]),
        ("few", "2 of 3 iterations: the others take 30 s", [20, 30, 30]),
        ("stands", "1 of 3 iterations: it does not count, and the others take 60 s", [20, 20, 60, 60]),
    ],
)
def test_runs_with_few_iterations_make_others_longer(
    repository: Path, what: str, said: str, seconds: list[int]
) -> None:
    """Those with their warm-up alone do not count; it may be the second repetition that has few."""
    commit(repository, "before", 100.0, what=what)
    commit(repository, "slow", 80.0, what=what)
    ended = call("gate", "--baseline", "before", "--candidate", "slow", "--systems", "ddppo")
    assert ended.code == 1, ended.out + ended.err
    assert ended.out.count(f"a run of 20 s has {said}") == 1
    assert "runs of each side 3, 3" in ended.out
    ran = sorted((repository / "rlbench-runs").glob("gate-*/baseline/cores-*"), key=lambda path: path.name)
    assert [int(path.read_text().split()[1]) for path in ran] == seconds


def test_runs_are_as_long_as_asked(repository: Path) -> None:
    """However few iterations they have."""
    commit(repository, "few", 100.0, what="few")
    commit(repository, "slow", 80.0, what="few")
    ended = call("gate", "--baseline", "few", "--candidate", "slow", "--systems", "ddppo", "--seconds", "20")
    assert ended.code == 1, ended.out + ended.err
    assert "iterations: " not in ended.out
