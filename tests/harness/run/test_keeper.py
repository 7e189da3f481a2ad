from __future__ import annotations

import itertools
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlbench.harness.contract.traits import Traits
from rlbench.harness.metering.meter_file import MeterFiles
from rlbench.harness.processes import process
from rlbench.harness.run import stacks
from rlbench.harness.run.keeper import Keeper


@pytest.fixture
def watching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keeper:
    """A keeper that has started nothing yet, of a run in `tmp_path`."""
    made = object.__new__(Keeper)
    given: dict[str, Any] = {"_folder": tmp_path, "_seat": None, "_numbers": range(2), "_stood_still": {}, "_lost": []}
    for name, value in given.items():
        setattr(made, name, value)
    monkeypatch.setattr(Keeper, "_leave_stacks", lambda _: [])
    monkeypatch.setattr(Keeper, "_short_of_memory", lambda _: None)
    return made


def end(folder: Path, killed: bool) -> dict[int, subprocess.Popen[bytes]]:
    """Two ranks that have ended: rank 0 has raised for the end of rank 1, which was killed, or raised before."""
    errors = ("RuntimeError: Connection closed by peer", "KeyError: 'map'")
    for rank, error in enumerate(errors[: 1 if killed else 2]):
        left = {"error": error, "traceback": "Traceback", "at_s": 2.0 - rank}
        (folder / f"error-rank{rank}.json").write_text(json.dumps(left))
    words = ("import sys; sys.exit(1)", "import time; time.sleep(1000)" if killed else "import sys; sys.exit(1)")
    ranks = {rank: subprocess.Popen([sys.executable, "-c", word]) for rank, word in enumerate(words)}
    if killed:
        ranks[1].kill()
    for one in ranks.values():
        os.waitid(os.P_PID, one.pid, os.WEXITED | os.WNOWAIT)
    ranks[0].wait()
    return ranks


@pytest.mark.parametrize(
    ("killed", "reason"),
    [(True, "rank 1 was killed by SIGKILL; stderr.txt may say more"), (False, "rank 1: KeyError: 'map'")],
)
def test_a_killed_rank_is_the_reason_whoever_is_heard_of_first(
    watching: Keeper, tmp_path: Path, killed: bool, reason: str
) -> None:
    """Its connections close before its end can be seen, and who had them may have raised and ended by then."""
    watching._ranks = dict(end(tmp_path, killed))
    assert watching._failed([0]).reason == reason
    for one in watching._ranks.values():
        one.wait()


def test_a_rank_that_aborts_for_the_end_of_another_is_no_reason(watching: Keeper, tmp_path: Path) -> None:
    """What the other has raised is no consequence, so it is the cause."""
    watching._ranks = dict(end(tmp_path, killed=True))
    (tmp_path / "error-rank0.json").write_text(json.dumps({"error": "KeyError: 'map'", "traceback": "", "at_s": 1.0}))
    assert watching._failed([0]).reason == "rank 0: KeyError: 'map'"
    watching._ranks[1].wait()


def test_ranks_that_stand_still_are_asked_at_once_and_the_others_are_not(
    watching: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever goes on would be interrupted for nothing."""
    asked = []
    ranks = {rank: SimpleNamespace(pid=100 + rank, returncode=None, kill=lambda: None) for rank in range(3)}
    given: dict[str, Any] = {
        "_ranks": ranks,
        "_numbers": range(3),
        "_looks": itertools.count(1),
        "_traits": Traits(survives_lost_rank=True),
        "_meters": SimpleNamespace(there=dict),
    }
    for name, value in given.items():
        setattr(watching, name, value)
    monkeypatch.setattr(Keeper, "_look_after_folder", lambda _: None)
    monkeypatch.setattr(stacks, "leave_stacks", lambda _, labels: asked.append(labels))
    progress = SimpleNamespace(
        look=lambda: None, learned_nothing_s=lambda _: None, stalled=lambda: [1, 2], stood_still_s=lambda _: 25.0
    )
    memory = SimpleNamespace(exceeded=lambda _: None)
    assert watching._look(progress, memory, {0, 1, 2}) is None  # type: ignore[arg-type]
    assert asked == [{101: "rank1", 102: "rank2"}]
    assert sorted(watching._stood_still) == [1, 2]


def test_a_rank_that_was_ended_for_standing_still_is_no_reason(watching: Keeper, tmp_path: Path) -> None:
    """The keeper has killed it itself, and the run goes on without it."""
    watching._ranks = dict(end(tmp_path, killed=True))
    watching._stood_still[1] = "stood still for 9 s (--stall) and was ended"
    assert watching._failed([0]).reason == "rank 0: RuntimeError: Connection closed by peer"
    watching._ranks[1].wait()


def test_a_run_that_is_over_is_not_late_even_if_its_keeper_is(
    watching: Keeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has ended is looked at before the time limit, which passes while the keeper has no core."""
    cell = SimpleNamespace(stall_s=60.0, memory_limit_bytes=None)
    given: dict[str, Any] = {"_cell": cell, "_traits": Traits(), "_poll": select.poll(), "_looks": itertools.count()}
    for name, value in {**given, "_meters": MeterFiles(tmp_path, range(2))}.items():
        setattr(watching, name, value)
    watching._ranks = {rank: subprocess.Popen(["true"]) for rank in range(2)}
    for one in watching._ranks.values():
        os.waitid(os.P_PID, one.pid, os.WEXITED | os.WNOWAIT)
    reads, writes = os.pipe()
    with os.fdopen(reads) as stdin, os.fdopen(writes, "w"):
        monkeypatch.setattr("sys.stdin", stdin)
        assert watching._watch(time.monotonic() - 5).status == "finished"


def test_who_is_ending() -> None:
    """A process that lives is not; one that nobody has waited for, or that is gone, is."""
    with subprocess.Popen(["sleep", "1000"]) as one:
        assert not process.is_ending(one.pid)
        one.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, one.pid, os.WEXITED | os.WNOWAIT)
        assert process.is_ending(one.pid)
        one.wait()
        assert process.is_ending(one.pid)
