"""`kill -9` of each kind of process of each system, at each moment of a run.

A sweep for each system, a cell for each victim and moment. What a rank does is read from its meter, in a loop without
a pause, and the kill follows at once; a moment that a system does not have (some ranks never learn) is passed over
after a while, and which were reached is said at the end.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from rlbench.harness.contract.traits import Traits
from rlbench.harness.metering.meter_file import MeterFile
from rlbench.harness.plan.registry import load_system
from tests.harness.disks import SharedMemory
from tests.harness.runs import END_LIMIT_S, ZYGOTE, RunningSweep, wait_until

STREAM = "rollout.num_steps=8:rollout.batch=16"
SYSTEMS = {
    name: f"{name}:{STREAM}" if name in {"appo", "impala"} else name
    for name in ("sync", "ddppo", "ver", "nover", "htsrl", "appo", "impala", "gossip", "downpour", "easgd")
}
SERVED = ("downpour", "easgd")
"""By rank 0, whose loss they do not survive; the worker and the fork server that are killed are its own too."""
NUM_RANKS = 2
VICTIMS = ("rank 0", "rank 1", "worker", "fork server", "resource tracker", "keeper", "zygote")
UNNOTICED = ("resource tracker", "zygote")
"""A run goes on without them once it has its processes."""
MOMENTS = {
    "start-up": (),
    "collection": ("infer", "simulate", "wait:inference", "wait:rollout"),
    "learning": ("learn",),
    "all-reduce": ("communicate", "wait:straggler", "wait:learner"),
}
"""The phases in which a rank is found then."""
PATIENCE_ITERATIONS, PATIENCE_S = 60, 15.0
"""After so many, or so long, a system does not have a moment."""
NAMED = {
    "rank 0": "rank 0 was killed by SIGKILL",
    "rank 1": "rank 1 was killed by SIGKILL",
    "worker": "WorkerDied: environment worker rank",
    "fork server": "WorkerDied: environment worker rank",
    "keeper": "the keeper of the run was killed by SIGKILL",
    "zygote": "the process that keepers are forked from was killed by SIGKILL",
}
"""In the reason of a run whose process was killed."""
CELLS = list(itertools.product(VICTIMS, MOMENTS))
NUM_PARTS = 10
"""Sweeps of a system: so many checks, of which a slice takes one."""


def _find(sweep: RunningSweep, victim: str) -> Callable[[], list[psutil.Process]]:
    """Where a victim is found, whatever has started so far."""

    def ranks(rank: int) -> list[psutil.Process]:
        return [one for number, one in sweep.ranks().items() if number == rank]

    def below(rank: int, word: str) -> list[psutil.Process]:
        children = [child for one in ranks(rank) for child in one.children()]
        return [child for child in children if any(word in text for text in child.cmdline())]

    finders: dict[str, Callable[[], list[psutil.Process]]] = {
        "rank 0": lambda: ranks(0),
        "rank 1": lambda: ranks(1),
        "worker": lambda: [worker for server in below(0, "forkserver") for worker in server.children()],
        "fork server": lambda: below(0, "forkserver"),
        "resource tracker": lambda: below(0, "resource_tracker"),
        "keeper": lambda: sweep.of_module("rlbench.harness.run.keeper"),
        "zygote": lambda: sweep.of_module(ZYGOTE),
    }
    return finders[victim]


def _wait_for(meters: list[MeterFile], moment: str) -> bool:
    """Whether a rank came to do what it does at that moment; returns at once when one does."""
    phases = MOMENTS[moment]
    deadline, last = time.monotonic() + PATIENCE_S, _iterations(meters) + PATIENCE_ITERATIONS
    for looks in itertools.count():
        if any(meter.phase(index) in phases for meter in meters for index in (0, meter.lane_index)):
            return True
        if looks % 1000 == 0 and (time.monotonic() > deadline or _iterations(meters) > last):
            break
    return False


def _iterations(meters: list[MeterFile]) -> int:
    return max(meter.count(0, "iteration") for meter in meters)


class Deaths:
    """The cells of one system's sweep, one after the other."""

    def __init__(self, sweep: RunningSweep, system: str, generator: np.random.Generator) -> None:
        self._sweep, self._system, self._generator = sweep, system, generator
        self.reached: list[str] = []
        self.wrong: list[str] = []

    def bring_about(self, number: int, victim: str, moment: str) -> None:
        """Kills the victim in cell `number`, and notes what is wrong with what follows."""
        sweep, name = self._sweep, f"{victim}, {moment}"
        victims = self._starting(number, victim) if moment == "start-up" else self._at(number, victim, moment)
        folder = sweep.partial(number)
        of_run = [one for one in sweep.of_runs() if one not in victims]
        began = time.monotonic()
        for one in victims[:1]:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        survives, is_healed = self._survives(victim), False
        if victim == "fork server" and moment == "start-up" and not survives:
            is_healed = self._is_started_again(number, victims[0])
        if is_healed or survives:  # if it comes to that: ranks that start wait for each other
            sweep.release(f"c{number}")
        record = sweep.wait_published(number)
        _, alive = psutil.wait_procs([one for one in of_run if one.is_running()], timeout=END_LIMIT_S)
        took_s = time.monotonic() - began
        if not (is_healed and record["status"] == "finished"):
            self.wrong += [f"{name}: {what}" for what in self._wrong_with(record, victim, moment, took_s)]
        if alive or (folder is not None and folder.exists()):
            self.wrong.append(f"{name}: left {alive} and {folder}")

    def _starting(self, number: int, victim: str) -> list[psutil.Process]:
        """The victim, anywhere in the start of its run."""
        find = _find(self._sweep, victim)
        found: list[psutil.Process] = []

        def has_started() -> bool:
            with suppress(psutil.Error):
                found[:] = find() if self._sweep.partial(number) else []
            return bool(found)

        wait_until(has_started, f"{victim} has started")
        time.sleep(float(self._generator.uniform(0, 0.5)))
        self.reached.append(f"{victim}, start-up")
        return found

    def _is_started_again(self, number: int, killed: psutil.Process) -> bool:
        """Whether multiprocessing starts another fork server, as it does when it needs one and that has died."""
        find = _find(self._sweep, "fork server")
        others: list[psutil.Process] = []

        def is_decided() -> bool:
            with suppress(psutil.Error):
                others[:] = [one for one in find() if one != killed]
            return bool(others or self._sweep.runs(number))

        wait_until(is_decided, "the run fails, or has another fork server")
        return bool(others)

    def _at(self, number: int, victim: str, moment: str) -> list[psutil.Process]:
        """The victim, at a moment of its rank if that has it, or of another one."""
        self._sweep.wait_collecting(number, NUM_RANKS)
        meters = self._sweep.meters(number, NUM_RANKS)
        wait_until(lambda: _iterations(meters) >= 1, "it learns")
        found = _find(self._sweep, victim)()
        of_victim = meters[1:] if victim == "rank 1" else meters[:1]
        if _wait_for(of_victim, moment) or _wait_for(meters, moment):
            self.reached.append(f"{victim}, {moment}")
        return found

    def _wrong_with(self, record: dict[str, Any], victim: str, moment: str, took_s: float) -> list[str]:
        said = f"{record['status']} after {took_s:.1f} s: {record['reason']}"
        if self._survives(victim):
            if record["status"] == "finished":
                return []
            if moment != "start-up" or victim == "resource tracker":
                return [said]
        wrong = []
        if record["status"] != "failed" or NAMED[victim] not in record["reason"] or took_s > 2 * END_LIMIT_S:
            wrong.append(said)
        if victim not in {"keeper", "zygote"} and not (record["path"] / "processes.txt").exists():
            wrong.append("no processes.txt")
        return wrong

    def _survives(self, victim: str) -> bool:
        """Whether the run goes on without the victim."""
        if victim in UNNOTICED:
            return True
        if victim == "keeper" or (self._system in SERVED and victim != "rank 1"):
            return False
        return Traits.of(load_system(self._system, {})).survives_lost_rank


@pytest.mark.parametrize("part", range(NUM_PARTS))
@pytest.mark.parametrize("system", SYSTEMS)
def check_every_death_ends_its_run_with_its_cause_and_leaves_nothing(
    system: str,
    part: int,
    tmp_path: Path,
    shared_memory: SharedMemory,
    say: Callable[[str], None],
) -> None:
    """The run fails within its limit and names who died, or goes on where the system says so; the sweep goes on."""
    generator = np.random.default_rng([part, *map(ord, system)])
    chosen = CELLS[(part + len(system)) % NUM_PARTS :: NUM_PARTS]  # in a slice not the same of each system
    count = len(chosen)
    scenarios = ",".join(f"faulty/patient:tag=c{number}" for number in range(1, count + 2))
    options = ("--device", "emulated", "--gpus", str(NUM_RANKS), "--systems", SYSTEMS[system], "--scenario", scenarios)
    limits = ("--until", "return>=1", "--stall", "10")
    with RunningSweep(tmp_path, *options, *limits, wrapper=shared_memory.enter) as sweep:
        deaths = Deaths(sweep, system, generator)
        for number, (victim, moment) in enumerate(chosen, start=1):
            deaths.bring_about(number, victim, moment)
        sweep.release(f"c{count + 1}")
        exit_code = sweep.end(2)
        last = sweep.runs(count + 1)[0]
        missed = [f"{victim}, {moment}" for victim, moment in chosen if f"{victim}, {moment}" not in deaths.reached]
        say(f"{system}: {count} deaths; moments that it does not have: {'; '.join(missed) or 'none'}")
        assert deaths.wrong == []
        assert not [name for name in missed if "collection" in name], "every system collects"
        assert last["status"] == "finished"
        assert exit_code in {0, 1}
        assert (sweep.processes(), sweep.files_left()) == ([], [])
        assert "Traceback" not in sweep.stderr


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("system", SYSTEMS)
def check_a_killed_harness_leaves_nothing_and_its_sweep_goes_on(
    system: str, moment: str, tmp_path: Path, shared_memory: SharedMemory
) -> None:
    """`kill -9` of `rlbench run` itself: everything of it ends, and --resume completes the sweep."""
    generator = np.random.default_rng(sum(map(ord, system + moment)))
    options = ("--device", "emulated", "--gpus", str(NUM_RANKS), "--systems", SYSTEMS[system], "--until", "return>=1")
    own = shared_memory.enter
    with RunningSweep(tmp_path, *options, "--scenario", "faulty/patient:tag=a", wrapper=own) as sweep:
        if moment == "start-up":
            wait_until(lambda: sweep.of_module("rlbench.harness.run.keeper"), "it starts")
            time.sleep(float(generator.uniform(0, 1)))
        else:
            sweep.wait_collecting(1, NUM_RANKS)
            meters = sweep.meters(1, NUM_RANKS)
            wait_until(lambda: _iterations(meters) >= 1, "it learns")
            _wait_for(meters, moment)
        os.kill(sweep.process.pid, signal.SIGKILL)
        began = time.monotonic()
        wait_until(lambda: not sweep.processes(), "all have ended")
        assert time.monotonic() - began < END_LIMIT_S
        assert list(sweep.scratch.iterdir()) == []
    with RunningSweep(tmp_path, "--resume", wrapper=own) as resumed:
        resumed.release("a")
        assert resumed.end() == 0
        assert [run["status"] for run in resumed.runs(1)] == ["finished"]
        assert (resumed.processes(), resumed.files_left()) == ([], [])


def check_a_stopped_keeper_ends_its_run_a_minute_after_the_time_limit(tmp_path: Path) -> None:
    """Nobody is left who could end the run but the runner, and it does."""
    options = ("--device", "cpu", "--systems", "sync", "--scenario", "faulty/patient", "--until", "return>=1")
    with RunningSweep(tmp_path, *options, "--time-limit", "20") as sweep:
        sweep.wait_collecting(1)
        sweep.of_module("rlbench.harness.run.keeper")[0].send_signal(signal.SIGSTOP)
        record = sweep.wait_published(1)
        assert (record["status"], record["reason"]) == ("failed", "the keeper of the run stood still and was ended")
        assert sweep.end() == 1
        assert (sweep.processes(), sweep.files_left()) == ([], [])
