from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from rlbench.harness.metering.meter_file import Block, MeterFile, MeterFiles, meter_path
from rlbench.harness.run import watch
from rlbench.harness.run.watch import Memory, OutOfMemory, Stalls
from tests.harness.runs import wait_until

STALL_S = 20.0
LIMIT_S = STALL_S * watch.STALL_FACTOR


class Clock:
    """Moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Watched:
    """Progress of two ranks, of one environment each, on a clock moved by hand."""

    def __init__(self, folder: Path, stall_s: float = STALL_S) -> None:
        self.clock = Clock()
        self.files = [MeterFile.create(meter_path(folder, rank), 1) for rank in range(2)]
        self.progress = Stalls(MeterFiles(folder, range(2)), stall_s, self.clock)

    def count(self, rank: int, name: str, block: int = 0) -> None:
        """Adds to a counter of a rank."""
        Block(self.files[rank], block).add(name, 1)

    def after(self, seconds: float) -> list[int]:
        """Who has stalled, so much later."""
        self.clock.now += seconds
        self.progress.look()
        return self.progress.stalled()


@pytest.mark.parametrize(("name", "block"), [*((name, 0) for name in watch.RANK_COUNTERS), ("env_steps", 1)], ids=str)
def test_a_rank_gets_on_while_any_of_its_counters_moves(tmp_path: Path, name: str, block: int) -> None:
    """Samples of every fate, optimiser steps and env steps are progress; the rank that counts none has stalled."""
    watched = Watched(tmp_path)
    watched.count(0, "env_steps", 1)
    watched.count(1, "env_steps", 1)
    assert watched.after(1.0) == []
    assert watched.progress.has_begun()
    watched.count(1, name, block)
    assert watched.after(LIMIT_S) == []
    assert watched.after(1.0) == [0]
    assert watched.progress.stood_still_s({0}) == LIMIT_S + 1
    assert watched.after(LIMIT_S) == [0, 1]


def test_a_run_that_steps_must_learn(tmp_path: Path) -> None:
    """Ranks that have learned, and only step since then, are told apart; one learner is enough, and may be slow."""
    watched = Watched(tmp_path)
    learns = watched.progress.learned_nothing_s

    def step(seconds: float) -> None:
        for rank in range(2):
            watched.count(rank, "env_steps", 1)
        assert watched.after(seconds) == []

    step(3 * LIMIT_S / 4)
    step(3 * LIMIT_S / 4)
    assert not learns({0, 1})  # whether it learns at all is not known
    watched.count(0, "learned")
    assert watched.after(0.0) == []
    step(3 * LIMIT_S / 4)
    assert not learns({0, 1})
    step(LIMIT_S / 2)
    assert learns({0, 1}) > LIMIT_S
    assert not learns({1})  # which never learns
    watched.count(0, "updates")
    assert watched.after(0.0) == []
    for _ in range(12):
        step(LIMIT_S)
        assert not learns({0, 1})  # ten times as long as it took before
    step(LIMIT_S)
    assert learns({0, 1}) > LIMIT_S


def test_a_rank_that_has_not_stepped_has_time_to_start(tmp_path: Path) -> None:
    """A short --stall is no limit on how long processes may take to start; a rank without a meter is one of those."""
    watched = Watched(tmp_path, stall_s=1.0)
    meter_path(tmp_path, 1).unlink()
    watched.count(0, "env_steps", 1)
    assert watched.after(1.0) == []
    assert watched.after(watch.SHORTEST_START_S - 2) == [0]
    assert watched.after(2.0) == [0, 1]
    assert not watched.progress.has_begun()


def test_memory_is_the_tree_s_and_the_largest_process_is_named() -> None:
    """Private memory of all processes below this one, against the limit that was asked for."""
    code = "import time; held = b'x' * 300_000_000; print(flush=True); time.sleep(1000)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        others = sum(one.memory_info().rss for one in psutil.Process().children(recursive=True) if one.pid != child.pid)
        labels = {child.pid: "rank3-env2"}
        assert Memory.of(others + 400_000_000).exceeded(lambda: labels) is None
        said = Memory.of(200_000_000).exceeded(lambda: labels)
        unnamed = Memory.of(200_000_000).exceeded(dict)
        child.kill()
    assert said is not None
    assert "GiB of memory, more than 0.19 GiB (--memory-limit); environment worker rank3-env2 had 0." in said
    assert unnamed is not None
    assert f"python3 ({child.pid}) had" in unnamed or f"python ({child.pid}) had" in unnamed


def test_the_limit_of_memory_is_a_share_of_the_machine_s_unless_one_is_asked_for() -> None:
    """Without --memory-limit a run may have most of the machine, and the reason says of what."""
    memory = Memory.of(None)
    assert 0 < memory.limit_bytes <= watch.MEMORY_SHARE * psutil.virtual_memory().total
    with subprocess.Popen(["sleep", "1000"]) as child:
        said = Memory(limit_bytes=0, is_asked_for=False).exceeded(dict)
        child.kill()
    assert said is not None
    assert "(90 % of the machine's, --memory-limit)" in said


def test_that_the_kernel_ended_processes_for_lack_of_memory_is_seen(tmp_path: Path) -> None:
    """The kernel's counter of such ends, compared with what it was; no counter is none."""
    (tmp_path / "proc").mkdir()
    vmstat = tmp_path / "proc" / "vmstat"
    vmstat.write_text("nr_free_pages 5\noom_kill 3\n")
    out_of_memory = OutOfMemory(tmp_path)
    assert not out_of_memory.happened()
    vmstat.write_text("nr_free_pages 5\noom_kill 4\n")
    assert out_of_memory.happened()
    assert not OutOfMemory(tmp_path / "elsewhere").happened()


def test_processes_of_a_run_are_the_first_to_go_when_memory_is_short() -> None:
    """What the keeper starts inherits its score."""
    code = (
        "import subprocess; from rlbench.harness.run import watch; watch.be_ended_first(); "
        "subprocess.run(['sleep', '1000'])"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[3], env=os.environ) as child:
        try:
            wait_until(lambda: psutil.Process(child.pid).children(), "it has a child")
            (grandchild,) = psutil.Process(child.pid).children()
            assert int(Path(f"/proc/{grandchild.pid}/oom_score_adj").read_text()) == watch.OOM_SCORE
        finally:
            for one in psutil.Process(child.pid).children():
                one.kill()
