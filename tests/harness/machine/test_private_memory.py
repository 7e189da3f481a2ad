from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rlbench.harness.machine.telemetry import processes
from rlbench.harness.machine.telemetry.private_memory import most_private_bytes, private_bytes
from rlbench.harness.machine.telemetry.processes import ProcessSampler
from rlbench.harness.processes.priority import before_others

MIB = 2**20
FORKS = r"""
import os, time
taken = bytearray(200 << 20)
for child in range(3):
    if os.fork() == 0:
        own = bytearray((10 << 20) * child)
        os.write(1, b"up\n")
        time.sleep(600)
os.write(1, b"up\n")
time.sleep(600)
"""


@pytest.fixture(scope="module")
def family() -> Iterator[list[psutil.Process]]:
    """A process with 200 MiB, and three that were forked from it: they share these, and two have some of their own."""
    with subprocess.Popen([sys.executable, "-c", FORKS], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        for _ in range(4):
            assert parent.stdout.readline() == "up\n"
        children = psutil.Process(parent.pid).children()
        yield [psutil.Process(parent.pid), *children]
        for one in children:
            one.kill()
        parent.kill()


def test_what_processes_share_by_fork_is_divided_among_them(family: list[psutil.Process]) -> None:
    """The sum is what they take together; counted whole for each it would be three times as much."""
    total = sum(map(private_bytes, family))
    assert 230 * MIB < total < 290 * MIB
    assert sum(map(most_private_bytes, family)) > 800 * MIB


def test_who_reads_memory_waits_for_no_core(family: list[psutil.Process], monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs before others while the kernel has the memory map locked, where that is permitted, and not afterwards."""
    read_bytes, policies = Path.read_bytes, []

    def note(path: Path) -> bytes:
        policies.append(os.sched_getscheduler(0))
        return read_bytes(path)

    ordinary = os.sched_getscheduler(0)
    with before_others():
        before = os.sched_getscheduler(0)
    monkeypatch.setattr(Path, "read_bytes", note)
    assert private_bytes(family[0]) > 40 * MIB
    assert policies == [before]
    assert os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK == ordinary & ~os.SCHED_RESET_ON_FORK


def test_known_processes_are_read_in_turn(family: list[psutil.Process], monkeypatch: pytest.MonkeyPatch) -> None:
    """New ones are read at once; of known ones the one that was read the longest ago, others as time allows."""
    read: list[int] = []

    def note(one: psutil.Process) -> int:
        read.append(one.pid)
        return 1

    monkeypatch.setattr(processes, "READ_SHARE", 0.0)
    monkeypatch.setattr(processes, "private_bytes", note)
    sampler = ProcessSampler(family[0].pid)
    assert [sampler.sample().memory_bytes for _ in range(5)] == [4] * 5
    assert sorted(read[:4]) == sorted(one.pid for one in family)
    assert read[4:] == read[:4]


def test_one_that_grew_is_read_at_once(family: list[psutil.Process], monkeypatch: pytest.MonkeyPatch) -> None:
    """The cheap bound says that it has more than it had; its turn would be the last."""
    read: list[int] = []
    bounds = dict.fromkeys([one.pid for one in family], MIB)

    def note(one: psutil.Process) -> int:
        read.append(one.pid)
        return bounds[one.pid]

    monkeypatch.setattr(processes, "READ_SHARE", 0.0)
    monkeypatch.setattr(processes, "most_private_bytes", lambda one: bounds[one.pid])
    monkeypatch.setattr(processes, "private_bytes", note)
    sampler = ProcessSampler(family[0].pid)
    assert sampler.sample().memory_bytes == 4 * MIB
    first, *_, last = read
    bounds[last] = 10 * MIB
    read.clear()
    assert sampler.sample().memory_bytes == 13 * MIB
    assert read == [first, last]
