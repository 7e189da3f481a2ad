"""Death, exceptions and interrupts in systems whose processes and threads differ from those of `sync`."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.harness.runs import END_LIMIT_S, RunningSweep, wait_until

STREAM = "rollout.num_steps=8:rollout.batch=16"
PATIENT = ("--scenario", "faulty/patient", "--until", "return>=1")
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  where names of shared memory are


def _worker(sweep: RunningSweep, number: int) -> psutil.Process:
    """The last environment's; it has the first one too, if it has several."""
    return sweep.worker(number, rank=0, env=1)


def _rank(which: int) -> Callable[[RunningSweep, int], psutil.Process]:
    def find(sweep: RunningSweep, number: int) -> psutil.Process:
        del number
        return sweep.of_module("harness.rank")[which]

    return find


@dataclass(frozen=True, slots=True)
class Fault:
    """Whom to kill in a system, and what the record then says."""

    system: str
    victim: Callable[[RunningSweep, int], psutil.Process]
    reason: str


DIED = "rank 0: WorkerDied: environment worker"
KILLED_ALONE = {
    "worker-of-two-environments": Fault(f"appo:{STREAM}", _worker, f"{DIED} rank0-env0 was killed by SIGKILL"),
    "worker-with-the-policy": Fault(f"impala:{STREAM}", _worker, f"{DIED} rank0-env1 was killed by SIGKILL"),
}
"""On one rank."""
KILLED_OF_TWO = {
    "learner-of-all": Fault(f"appo:{STREAM}", _rank(0), "rank 0 was killed by SIGKILL"),
    "owner-of-a-device": Fault(f"appo:{STREAM}:average.placement=together", _rank(1), "rank 1 was killed by SIGKILL"),
    "rank-of-ver": Fault("ver", _rank(1), "rank 1 was killed by SIGKILL"),
    "rank-of-nover": Fault("nover", _rank(0), "rank 0 was killed by SIGKILL"),
    "rank-of-htsrl": Fault("htsrl", _rank(1), "rank 1 was killed by SIGKILL"),
}
RAISING = ("appo", "htsrl", "impala")
"""Systems whose environments are received from in a thread of its own, or step in the policy's process."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Swept:
    """What a sweep left whose cells were killed."""

    records: dict[str, dict[str, Any]]
    outlived_s: dict[str, float]
    memory_left: list[str]
    left: list[psutil.Process]
    files: list[Path]
    exit_code: int
    stderr: str


def kill_all(folder: Path, faults: Mapping[str, Fault], num_ranks: int, *options: str) -> Swept:
    """A sweep with a cell for each fault, which it brings about while the cell collects and learns."""
    records, outlived_s = {}, {}
    names: set[str] = set()
    systems = ",".join(fault.system for fault in faults.values())
    with RunningSweep(folder, "--systems", systems, "--gpus", str(num_ranks), *options, *PATIENT) as sweep:
        for number, (name, fault) in enumerate(faults.items(), start=1):
            sweep.wait_collecting(number, num_ranks)
            learner = sweep.meters(number, num_ranks)[0]
            wait_until(lambda learner=learner: learner.count(0, "iteration") >= 2, "it learns")  # type: ignore[misc]
            names |= sweep.shared_memory()
            outlived_s[name] = sweep.kill(fault.victim(sweep, number), number)
            records[name] = sweep.wait_published(number)
        exit_code = sweep.end()
        return Swept(
            records=records,
            outlived_s=outlived_s,
            memory_left=[name for name in names if (SHARED_MEMORY / name).exists()],
            left=sweep.processes(),
            files=sweep.files_left(),
            exit_code=exit_code,
            stderr=sweep.stderr,
        )


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    """Deaths on one rank."""
    return kill_all(tmp_path_factory.mktemp("alone"), KILLED_ALONE, 1, "--device", "cpu")


@pytest.fixture(scope="module")
def of_two(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    """Deaths of one of two ranks."""
    return kill_all(tmp_path_factory.mktemp("of_two"), KILLED_OF_TWO, 2, "--device", "emulated")


def assert_failed_at_once(swept: Swept, faults: Mapping[str, Fault]) -> None:
    """Each run failed with the reason of its fault, at once, with what it had counted; nothing is left of the sweep."""
    for name, fault in faults.items():
        record = swept.records[name]
        assert record["status"] == "failed"
        assert record["reason"].startswith(fault.reason)
        assert record["counters"]["env_steps"] > 0
        assert record["counters"]["learned"] > 0
        assert swept.outlived_s[name] < END_LIMIT_S
    assert (swept.left, swept.files, swept.memory_left, swept.exit_code) == ([], [], [], 1)
    assert "Traceback" not in swept.stderr


def test_a_killed_worker_of_several_environments_or_with_the_policy_fails_the_run(alone: Swept) -> None:
    """While the main thread learns and another receives, the run ends within 5 s with the worker named."""
    assert_failed_at_once(alone, KILLED_ALONE)


def test_a_killed_rank_fails_the_run_whatever_it_does(of_two: Swept) -> None:
    """The learner of all, a rank that owns a device and does nothing, and ranks that plan together are all named."""
    assert_failed_at_once(of_two, KILLED_OF_TWO)


def test_an_environment_that_raises_beside_the_main_thread_fails_the_run(tmp_path: Path) -> None:
    """The reason names the environment, and traceback.txt holds its traceback, whichever thread or process saw it."""
    systems = ",".join(f"{name}:{STREAM}" if name != "htsrl" else name for name in RAISING)
    options = ("--device", "cpu", "--systems", systems, "--scenario", "faulty/raise-in-step", "--until", "return>=1")
    with RunningSweep(tmp_path, *options) as sweep:
        assert sweep.end(len(RAISING)) == 1
        for number in range(1, 1 + len(RAISING)):
            (record,) = sweep.runs(number)
            assert record["status"] == "failed"
            assert record["reason"].startswith(f"{DIED} rank0-env")
            assert "raised LookupError: no wall behind the wall" in record["reason"]
            assert "in _go_wrong" in (record["path"] / "traceback.txt").read_text()
        assert (sweep.processes(), sweep.files_left()) == ([], [])
        assert "Traceback" not in sweep.stderr


@pytest.fixture(scope="module")
def gossip(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The record of a gossip run of three ranks, one of which was killed while they learned."""
    options = ("--device", "cpu", "--systems", "gossip", "--gpus", "3", "--scenario", "faulty/patient:tag=a")
    # The last episodes of the killed rank stay in the mean, with 0.
    with RunningSweep(tmp_path_factory.mktemp("gossip"), *options, "--until", "return>=0.5") as sweep:
        sweep.wait_collecting(1, 3)
        meters = sweep.meters(1, 3)
        wait_until(lambda: min(meter.count(0, "iteration") for meter in meters) >= 8, "all have ended many episodes")
        sweep.of_module("harness.rank")[1].kill()
        wait_until(lambda: "rank 1 was killed" in sweep.stdout, "it is said")
        before = [meters[rank].count(0, "iteration") for rank in (0, 2)]
        wait_until(
            lambda: all(
                meters[rank].count(0, "iteration") >= count + 3 for rank, count in zip((0, 2), before, strict=True)
            ),
            "the others go on",
        )
        sweep.release("a")
        record = sweep.wait_published(1)
        assert sweep.end() == 0
        assert (sweep.processes(), sweep.files_left()) == ([], [])
        yield record


def test_gossip_goes_on_without_a_killed_rank(gossip: dict[str, Any]) -> None:
    """The others skip it and finish, the record warns of it by name, and env steps are conserved."""
    assert (gossip["status"], gossip["reason"]) == ("finished", None)
    assert any(warning.startswith("rank 1 was killed by SIGKILL in iteration") for warning in gossip["warnings"])
    counters = gossip["counters"]
    assert counters["env_steps"] == counters["learned"] + counters["discarded"] + counters["in_flight"]
    assert (gossip["path"] / "policy.pt").exists()


@pytest.mark.parametrize("system", [f"appo:{STREAM}", "htsrl"])
def test_ctrl_c_ends_a_run_whose_threads_collect_and_learn(tmp_path: Path, system: str) -> None:
    """SIGINT in the middle: exit code 130 within seconds, no traceback, and neither process nor file is left."""
    with RunningSweep(tmp_path, "--device", "cpu", "--systems", system, *PATIENT) as sweep:
        sweep.wait_collecting(1)
        names = sweep.shared_memory()
        os.killpg(sweep.process.pid, signal.SIGINT)  # as a terminal does
        assert sweep.end() == 130
        wait_until(lambda: not sweep.processes(), "all have ended")
        assert sweep.files_left() == []
        assert [name for name in names if (SHARED_MEMORY / name).exists()] == []
        assert "Traceback" not in sweep.stderr
