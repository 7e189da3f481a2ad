"""SIGTERM to one rank: who was told to stop, and by whom, is in the record, and the run is not finished."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from rlbench.harness.processes.outcome import Outcome, outcome_of
from rlbench.harness.processes.told import Sender, Told, read_told
from rlbench.results.records.store import read_runs
from tests.harness.chosen import chosen
from tests.harness.runs import RunningSweep
from tests.lanes import deep

NUM_RANKS = 2
CELLS = ["sync", pytest.param("gossip", marks=deep), pytest.param("impala", marks=deep)]
EARLYOOM = Sender(pid=812, uid=0, name="earlyoom")
PROGRAM = """
import signal, sys, time
from rlbench.harness.processes.told import StopRequests, as_usual
requests = StopRequests()
requests.listen()
if "take" in sys.argv:
    requests.take()
print(flush=True)
while requests.sender is None:
    time.sleep(0.01)
print(requests.sender.pid, requests.sender.uid, requests.sender.name)
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Interrupted:
    """What a sweep left in whose cells rank 1 was told to stop."""

    records: dict[str, dict[str, Any]]
    blocked: dict[str, bool]
    """Whether SIGTERM was blocked in a worker and in the fork server of rank 1."""
    exit_code: int
    left: list[psutil.Process]
    files: list[Path]
    stderr: str


def _blocks_sigterm(process: psutil.Process) -> bool:
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    blocked = next(line for line in lines if line.startswith("SigBlk:"))
    return bool(int(blocked.split()[1], 16) & 1 << (signal.SIGTERM - 1))


@pytest.fixture(scope="module")
def interrupted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interrupted]:
    """A sweep of systems whose ranks go in step, whose ranks do not, and where rank 0 acts for all."""
    names = chosen(request, "system")
    options = (
        "--device",
        "cpu",
        "--until",
        "return>=1",
        "--gpus",
        str(NUM_RANKS),
        "--scenario",
        "faulty/patient:tag=a",
    )
    records, blocked = {}, {}
    systems = [system if system != "impala" else "impala:rollout.num_steps=8:rollout.batch=32" for system in names]
    with RunningSweep(tmp_path_factory.mktemp("told"), *options, "--systems", ",".join(systems)) as sweep:
        for number, system in enumerate(names, start=1):
            sweep.wait_collecting(number, NUM_RANKS)
            if number == 1:
                blocked = {
                    "worker": _blocks_sigterm(sweep.worker(number, rank=1, env=0, num_ranks=NUM_RANKS)),
                    "fork server": _blocks_sigterm(sweep.fork_server(1)),
                }
            sweep.ranks()[1].terminate()
            records[system] = sweep.wait_published(number)
        yield Interrupted(
            records=records,
            blocked=blocked,
            exit_code=sweep.end(),
            left=sweep.processes(),
            files=sweep.files_left(),
            stderr=sweep.stderr,
        )


@pytest.mark.parametrize("system", CELLS)
def test_a_rank_that_is_told_to_stop_interrupts_its_run(interrupted: Interrupted, system: str) -> None:
    """The run is interrupted, and the reason has who was told and the process that told it."""
    record = interrupted.records[system]
    us = Path("/proc/self/comm").read_text().strip()
    told = f"rank 1 was told to stop by SIGTERM, from {us} (pid {os.getpid()}, user {os.getuid()})"
    assert record["status"] == "interrupted"
    assert record["reason"].startswith(f"{told}, in iteration ")
    assert list(record["path"].glob("told-*")) == []


@pytest.mark.parametrize("system", CELLS)
def test_an_interrupted_run_keeps_its_counts(interrupted: Interrupted, system: str) -> None:
    """It ended in good order: every env step is accounted for."""
    (run,) = read_runs(interrupted.records[system]["path"])
    assert run.record.counters.env_steps > 0
    assert run.record.counters.conserved


def test_an_interrupted_sweep_goes_on_and_exits_with_1(interrupted: Interrupted) -> None:
    """A cell that was interrupted is not finished; nothing is left of it, and its line says so."""
    assert interrupted.exit_code == 1
    assert (interrupted.left, interrupted.files) == ([], [])
    assert interrupted.stderr.count(": interrupted: rank 1 was told to stop") == len(interrupted.records)


def test_what_a_rank_starts_heeds_sigterm(interrupted: Interrupted) -> None:
    """Ranks wait for the signal instead of being ended by it; their workers and fork servers do not."""
    assert interrupted.blocked == {"worker": False, "fork server": False}


@pytest.mark.parametrize("takes", [True, False])
def test_sigterm_is_a_request_once_requests_are_taken(*, takes: bool) -> None:
    """The sender is known as the kernel has it; before, the signal ends the process as it ends any."""
    command = [sys.executable, "-c", PROGRAM, *(["take"] if takes else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        said = process.stdout.read()
    assert process.returncode == (0 if takes else -signal.SIGTERM)
    assert said.split()[:2] == ([str(os.getpid()), str(os.getuid())] if takes else [])


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ([], Outcome("finished")),
        (
            [Told(rank=1, iteration=3, sender=EARLYOOM)],
            Outcome(
                "interrupted",
                "rank 1 was told to stop by SIGTERM, from earlyoom (pid 812, user 0), in iteration 3",
            ),
        ),
        (
            [Told(rank=0, iteration=4, sender=Sender()), Told(rank=2, iteration=3, sender=Sender(pid=7, uid=5))],
            Outcome(
                "interrupted",
                "rank 2 was told to stop by SIGTERM, from a process that is gone (pid 7, user 5), in iteration 3; "
                "so was rank 0",
            ),
        ),
        (
            [Told(rank=0, iteration=4, sender=Sender())],
            Outcome(
                "interrupted",
                "rank 0 was told to stop by SIGTERM, from a process that the kernel does not name, in iteration 4",
            ),
        ),
    ],
)
def test_a_run_is_finished_unless_a_rank_was_told_to_stop(
    tmp_path: Path, told: Sequence[Told], expected: Outcome
) -> None:
    """What ranks have left says who was told first, and who else."""
    for one in told:
        one.leave(tmp_path)
    assert outcome_of(read_told(tmp_path, range(3))) == expected
