"""Death, exceptions and interrupts in systems whose processes and threads differ from those of `sync`."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from rlbench.harness.plan.options import RunOptions
from tests.harness.chosen import chosen
from tests.harness.runs import END_LIMIT_S, RunningSweep, install_faulty, plan_sweep, wait_until
from tests.lanes import deep

STREAM = "rollout.num_steps=8:rollout.batch=16"
PATIENT = ("--scenario", "faulty/patient", "--until", "return>=1")
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  where names of shared memory are


def _worker(sweep: RunningSweep, number: int) -> psutil.Process:
    """The last environment's; it has the first one too, if it has several."""
    return sweep.worker(number, rank=0, env=1)


def _rank(which: int) -> Callable[[RunningSweep, int], psutil.Process]:
    def find(sweep: RunningSweep, number: int) -> psutil.Process:
        del number
        return sweep.ranks()[which]

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
ALONE = [pytest.param("worker-of-two-environments", marks=deep), "worker-with-the-policy"]
OF_TWO = [
    "learner-of-all",
    pytest.param("owner-of-a-device", marks=deep),
    "rank-of-ver",
    pytest.param("rank-of-nover", marks=deep),
    pytest.param("rank-of-htsrl", marks=deep),
]
RAISING = (pytest.param("appo", marks=deep), "htsrl", pytest.param("impala", marks=deep))
"""Systems whose environments are received from in a thread of its own, or step in the policy's process."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Swept:
    """What a sweep left whose processes were killed, or whose environments raised."""

    records: dict[str, dict[str, Any]]
    outlived_s: dict[str, float]
    memory_left: list[str]
    left: list[psutil.Process]
    files: list[Path]
    exit_code: int
    stderr: str


@pytest.fixture(scope="module")
def swept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Swept:
    """A sweep with a cell for each fault.

    Processes are killed while a cell collects and learns, first on one rank, then one of two; then environments raise.
    """
    folder, records, outlived_s = tmp_path_factory.mktemp("systems"), {}, {}
    alone = {name: KILLED_ALONE[name] for name in chosen(request, "of_one")}
    of_two = {name: KILLED_OF_TWO[name] for name in chosen(request, "of_both")}
    raising = chosen(request, "raising")
    names: set[str] = set()
    install_faulty(folder / "site")
    plan_sweep(
        folder,
        *(_patient(fault, num_ranks=1, device="cpu") for fault in alone.values()),
        *(_patient(fault, num_ranks=2, device="emulated") for fault in of_two.values()),
        *(_raises(f"{name}:{STREAM}" if name != "htsrl" else name) for name in raising),
    )
    with RunningSweep(folder, "--resume") as sweep:
        for number, (name, fault) in enumerate([*alone.items(), *of_two.items()], start=1):
            num_ranks = 1 if name in alone else 2
            sweep.wait_collecting(number, num_ranks)
            learner = sweep.meters(number, num_ranks)[0]
            wait_until(lambda learner=learner: learner.count(0, "iteration") >= 2, "it learns")  # type: ignore[misc]
            names |= sweep.shared_memory()
            outlived_s[name] = sweep.kill(fault.victim(sweep, number), number)
            records[name] = sweep.wait_published(number)
        exit_code = sweep.end(1 + len(raising))
        for number, name in enumerate(raising, start=1 + len(records)):
            records[name] = sweep.runs(number)[0]
        return Swept(
            records=records,
            outlived_s=outlived_s,
            memory_left=[name for name in names if (SHARED_MEMORY / name).exists()],
            left=sweep.processes(),
            files=sweep.files_left(),
            exit_code=exit_code,
            stderr=sweep.stderr,
        )


def _patient(fault: Fault, num_ranks: int, device: str) -> RunOptions:
    return RunOptions(
        systems=fault.system, scenario="faulty/patient", until="return>=1", gpus=str(num_ranks), device=device
    )


def _raises(system: str) -> RunOptions:
    return RunOptions(systems=system, scenario="faulty/raise-in-step", until="return>=1", device="cpu")


def assert_failed(swept: Swept, name: str, fault: Fault) -> None:
    """The run failed with the reason of its fault, with what it had counted; nothing is left of the sweep."""
    record = swept.records[name]
    assert record["status"] == "failed"
    assert record["reason"].startswith(fault.reason)
    assert record["counters"]["env_steps"] > 0
    assert record["counters"]["learned"] > 0
    assert (swept.left, swept.files, swept.memory_left, swept.exit_code) == ([], [], [], 1)
    assert "Traceback" not in swept.stderr


@pytest.mark.parametrize("of_one", ALONE)
def test_a_killed_worker_of_several_environments_or_with_the_policy_fails_the_run(swept: Swept, of_one: str) -> None:
    """While the main thread learns and another receives, the run ends with the worker named."""
    assert_failed(swept, of_one, KILLED_ALONE[of_one])


@pytest.mark.parametrize("of_both", OF_TWO)
def test_a_killed_rank_fails_the_run_whatever_it_does(swept: Swept, of_both: str) -> None:
    """The learner of all, a rank that owns a device and does nothing, and ranks that plan together are all named."""
    assert_failed(swept, of_both, KILLED_OF_TWO[of_both])


@deep
def test_these_runs_end_within_5_s(swept: Swept) -> None:
    """Whoever is killed, all other processes of the run are gone by then."""
    assert [name for name, s in swept.outlived_s.items() if s >= END_LIMIT_S] == []


@pytest.mark.parametrize("raising", RAISING)
def test_an_environment_that_raises_beside_the_main_thread_fails_the_run(swept: Swept, raising: str) -> None:
    """The reason names the environment, and traceback.txt holds its traceback, whichever thread or process saw it."""
    record = swept.records[raising]
    assert record["status"] == "failed"
    assert record["reason"].startswith(f"{DIED} rank0-env")
    assert "raised LookupError: no wall behind the wall" in record["reason"]
    assert "in _go_wrong" in (record["path"] / "traceback.txt").read_text()
    assert (swept.exit_code, swept.left, swept.files) == (1, [], [])
    assert "Traceback" not in swept.stderr


@pytest.fixture(scope="module")
def gossip(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The record of a gossip run of three ranks, one of which was killed while they learned."""
    options = ("--device", "cpu", "--systems", "gossip", "--gpus", "3", "--scenario", "faulty/patient:tag=a")
    # The last episodes of the killed rank stay in the mean, with 0.
    with RunningSweep(tmp_path_factory.mktemp("gossip"), *options, "--until", "return>=0.5") as sweep:
        sweep.wait_collecting(1, 3)
        meters = sweep.meters(1, 3)
        wait_until(lambda: min(meter.count(0, "iteration") for meter in meters) >= 8, "all have ended many episodes")
        sweep.ranks()[1].kill()
        wait_until(lambda: "rank 1 was killed" in sweep.stderr, "it is said")
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


@deep
def test_gossip_goes_on_without_a_killed_rank(gossip: dict[str, Any]) -> None:
    """The others skip it and finish, the record warns of it by name, and env steps are conserved."""
    assert (gossip["status"], gossip["reason"]) == ("finished", None)
    assert any(warning.startswith("rank 1 was killed by SIGKILL in iteration") for warning in gossip["warnings"])
    counters = gossip["counters"]
    assert counters["env_steps"] == counters["learned"] + counters["discarded"] + counters["in_flight"]
    assert (gossip["path"] / "policy.pt").exists()


@pytest.mark.parametrize("system", [f"appo:{STREAM}", pytest.param("htsrl", marks=deep)])
def test_ctrl_c_ends_a_run_whose_threads_collect_and_learn(tmp_path: Path, system: str) -> None:
    """SIGINT in the middle: exit code 130, no traceback, and neither process nor file is left."""
    with RunningSweep(tmp_path, "--device", "cpu", "--systems", system, *PATIENT) as sweep:
        sweep.wait_collecting(1)
        names = sweep.shared_memory()
        os.killpg(sweep.process.pid, signal.SIGINT)  # as a terminal does
        assert sweep.end() == 130
        wait_until(lambda: not sweep.processes(), "all have ended")
        assert sweep.files_left() == []
        assert [name for name in names if (SHARED_MEMORY / name).exists()] == []
        assert "Traceback" not in sweep.stderr
