"""Sweeps as jobs of a real Slurm with two nodes; `nox -s survive` starts and stops it, as root."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from rlbench.harness.live.state import read_live
from rlbench.results.records import store
from rlbench.results.records.schema import RunRecord
from tests.slurm.cluster import Cluster, cluster

RLBENCH = str(Path(sys.executable).parent / "rlbench")
EMULATED = ("--device", "emulated", "--scenario", "emulated/open-fridge:num_envs=2:rollout_steps=32:time_scale=0.05")
SALLOC = ("salloc", "--nodes=2")
IN_IT = ("--gpus", "2", "--launcher", "torchrun", "--gpus-per-node", "1", "--interface", "lo")
pytestmark = pytest.mark.xdist_group("slurm")
"""One process runs these: there is one Slurm for all."""
PLACE = ("--launcher", "slurm", "--partition", "gpu", "--gpus-per-node", "1", "--interface", "lo")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes, `na` and `nb`, for all checks."""
    with cluster(tmp_path_factory.mktemp("slurm")) as made:
        yield made


@pytest.fixture(autouse=True)
def leaves_nothing(slurm: Cluster) -> Iterator[None]:
    """After each check no job is there, and no process of one."""
    yield
    slurm.ask("scancel", "--user=root", "--full")
    until(lambda: not slurm.jobs(), "all jobs end")
    until(lambda: not slurm.steps(), "all processes of jobs end")
    until(lambda: set(slurm.node_states().values()) == {"idle"}, "all nodes are idle")


def start(slurm: Cluster, out: Path, *options: str, within: Sequence[str] = ()) -> subprocess.Popen[str]:
    """Starts `rlbench run` on the login node; `within` another command."""
    words = [*within, RLBENCH, "run", "--out", str(out), *options]
    return subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=slurm.variables, cwd=out.parent
    )


def finish(run: subprocess.Popen[str], limit_s: float = 200.0) -> str:
    """What it printed by its end."""
    return run.communicate(timeout=limit_s)[0]


def records(out: Path) -> list[RunRecord]:
    """Of all runs in a folder of sweeps, in the order of their folders."""
    return [run.record for run in store.read_runs(out)]


def until(holds: Callable[[], object], what: str, limit_s: float = 60.0) -> None:
    """Waits until it holds."""
    deadline = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {limit_s:g} s"
        time.sleep(0.2)


def until_stepping(out: Path, number: int = 1) -> None:
    """Waits until so many runs have stepped their environments."""

    def steps() -> bool:
        found = 0
        for path in out.glob("*/.partial-*/live.json"):
            with suppress(OSError, ValueError):
                found += json.loads(path.read_text())["env_steps"] > 0
        return found >= number

    until(steps, "environments are stepped", 120)


def check_a_sweep(slurm: Cluster, tmp_path: Path) -> None:
    """A job for each cell, on one node or two, with every cell finished once; arrays with a cap on how many run."""
    out = tmp_path / "runs"
    cells = ("--systems", "ddppo,ver", "--gpus", "1,2", "--seconds", "4", "--at-once", "1")
    said = finish(start(slurm, out, *cells, *EMULATED, *PLACE))
    found = records(out)
    assert [record.status for record in found] == ["finished"] * 4, said
    assert sorted((record.cell.system, record.cell.gpus) for record in found) == [
        ("ddppo", 1),
        ("ddppo", 2),
        ("ver", 1),
        ("ver", 2),
    ]
    assert [len(record.nodes) for record in found] == [record.cell.gpus for record in found]
    scripts = [path.read_text() for path in out.glob("*/slurm/*_submission.sh")]
    assert len(scripts) == 2
    assert all("#SBATCH --array=0-1%1" in script for script in scripts)
    assert "device emulated" in said
    assert len({job["job"] for job in json.loads(next(out.glob("*/jobs.json")).read_text()).values()}) == 4


def check_one_allocation(slurm: Cluster, tmp_path: Path) -> None:
    """One job runs all cells."""
    out = tmp_path / "runs"
    cells = ("--systems", "sync,ver", "--gpus", "1,2", "--seconds", "3", "--one-allocation")
    said = finish(start(slurm, out, *cells, *EMULATED, *PLACE))
    assert [record.status for record in records(out)] == ["finished"] * 4, said
    jobs = json.loads(next(out.glob("*/jobs.json")).read_text())
    assert len({each["job"] for each in jobs.values()}) == 1


def check_an_allocation_that_exists(slurm: Cluster, tmp_path: Path) -> None:
    """Inside `salloc`, runs are spread over its nodes, which are reached by srun."""
    out = tmp_path / "runs"
    done = finish(start(slurm, out, "--systems", "ver", "--seconds", "3", *IN_IT, *EMULATED, within=SALLOC))
    (record,) = records(out)
    assert record.status == "finished", done
    assert len(record.nodes) == 2


def check_another_allocation(slurm: Cluster, tmp_path: Path) -> None:
    """What was begun inside one is completed inside another, and not outside of any."""
    out = tmp_path / "runs"
    cell = ("--systems", "ddppo", "--iterations", "100", *IN_IT, *EMULATED)
    run = start(slurm, out, *cell, within=SALLOC)
    until_stepping(out)
    slurm.ask("scancel", "--user=root")
    finish(run)
    assert not [record for record in records(out) if record.status == "finished"]
    outside = start(slurm, out, "--resume")
    said = finish(outside)
    assert outside.returncode == 2
    assert "take it up again inside one (salloc)" in said
    said = finish(start(slurm, out, "--resume", within=SALLOC))
    assert [record.status for record in records(out)].count("finished") == 1, said


def check_another_shell_waits_on(slurm: Cluster, tmp_path: Path) -> None:
    """Who stops waiting stops nothing; --resume waits for the same job, and runs no cell twice.

    Meanwhile those who watch see the time left.
    """
    out = tmp_path / "runs"
    run = start(slurm, out, "--systems", "ver", "--gpus", "2", "--seconds", "15", *EMULATED, *PLACE)
    until_stepping(out)
    (sweep,) = out.iterdir()
    until(lambda: (live := read_live(sweep)) is not None and live.left_s is not None, "the time left is told")
    jobs = slurm.jobs()
    run.send_signal(signal.SIGINT)
    said = finish(run, 20)
    assert run.returncode == 130
    assert "the jobs go on" in said
    assert slurm.jobs() == jobs
    again = finish(start(slurm, out, "--resume"))
    assert "finished" in again
    assert [record.status for record in records(out)] == ["finished"]


def check_a_killed_login_process(slurm: Cluster, tmp_path: Path) -> None:
    """Nor does who is killed; the run that was over meanwhile is not run again."""
    out = tmp_path / "runs"
    run = start(slurm, out, "--systems", "ver", "--gpus", "1", "--seconds", "10", *EMULATED, *PLACE)
    until_stepping(out)
    run.kill()
    finish(run)
    until(lambda: not slurm.jobs(), "the job ends")
    again = start(slurm, out, "--resume")
    finish(again)
    assert again.returncode == 0
    assert [record.status for record in records(out)] == ["finished"]


def check_scancel(slurm: Cluster, tmp_path: Path) -> None:
    """The cell is failed, with the job's number and what Slurm says; --resume completes it."""
    out = tmp_path / "runs"
    run = start(slurm, out, "--systems", "ddppo", "--gpus", "2", "--seconds", "20", *EMULATED, *PLACE)
    until_stepping(out)
    (job,) = slurm.jobs()
    slurm.ask("scancel", job)
    said = finish(run)
    (record,) = records(out)
    assert run.returncode == 1
    assert record.reason is not None
    assert record.reason.startswith(f"job {job} ended as CANCELLED"), said
    assert not list(out.glob("*/.partial*"))
    again = finish(start(slurm, out, "--resume"))
    assert [each.status for each in records(out)] == ["failed", "finished"], again


@pytest.mark.parametrize(("node", "expected"), [("nb", "failed"), ("na", "finished")])
def check_a_killed_node(slurm: Cluster, tmp_path: Path, node: str, expected: str) -> None:
    """A node goes down with all its processes: the cell fails with it named; if it was the first, Slurm runs it again.

    What the job does is on its first node: without it nobody is there to say anything.
    """
    out = tmp_path / "runs"
    run = start(slurm, out, "--systems", "ver", "--gpus", "2", "--seconds", "10", *EMULATED, *PLACE)
    until_stepping(out)
    slurm.kill_node(node)
    until(lambda: slurm.node_states()[node].startswith("down"), "Slurm notices", 90)
    slurm.start_node(node)
    said = finish(run)
    (record,) = records(out)
    assert record.status == expected, said
    if expected == "failed":
        assert node in (record.reason or ""), said
    finish(start(slurm, out, "--resume"))
    assert [record.status for record in records(out)].count("finished") == 1


def check_a_time_limit(slurm: Cluster, tmp_path: Path) -> None:
    """Before the limit the run is given up and the job requeued; what it left counts nowhere."""
    out = tmp_path / "runs"
    more = ("--slurm", "time=1:30,signal=USR1@20")  # it has 70 s to begin to step
    run = start(slurm, out, "--systems", "ver", "--gpus", "1", "--iterations", "100000", *EMULATED, *PLACE, *more)
    until_stepping(out)
    (job,) = slurm.jobs()
    until(lambda: slurm.restarts(job) >= 1, "the job is requeued", 240)
    assert not records(out)
    slurm.ask("scancel", job)
    said = finish(run)
    (record,) = records(out)
    assert record.status == "failed", said
    assert f"job {job} ended as" in (record.reason or "")


def check_a_requeued_job_goes_on(slurm: Cluster, tmp_path: Path) -> None:
    """One that was requeued in the middle runs the cell again, and it is there once."""
    out = tmp_path / "runs"
    run = start(slurm, out, "--systems", "ddppo", "--gpus", "2", "--seconds", "20", *EMULATED, *PLACE)
    until_stepping(out)
    (job,) = slurm.jobs()
    slurm.ask("scontrol", "requeue", job)
    said = finish(run, 300)
    assert [record.status for record in records(out)] == ["finished"], said


@pytest.mark.parametrize("partition", ["gpu", "patient"])
def check_a_preempted_job_goes_on(slurm: Cluster, tmp_path: Path, partition: str) -> None:
    """A job that makes room for another runs its cell again later, with a grace time or without; it is there once."""
    out = tmp_path / "runs"
    cell = ("--systems", "ddppo", "--gpus", "2", "--seconds", "20", *EMULATED, *PLACE, "--partition", partition)
    run = start(slurm, out, *cell)
    until_stepping(out)
    (job,) = slurm.jobs()
    slurm.ask("sbatch", "--partition=urgent", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 3")
    until(lambda: slurm.restarts(job) == 1, "the job is requeued")
    said = finish(run, 300)
    assert [record.status for record in records(out)] == ["finished"], said


def check_what_slurm_refuses(slurm: Cluster, tmp_path: Path) -> None:
    """One line, exit code 2."""
    out = tmp_path / "runs"
    run = start(slurm, out, "--systems", "ver", "--gpus", "1", *EMULATED, *PLACE, "--slurm", "partition=none")
    said = finish(run)
    assert run.returncode == 2
    assert "partition" in said.splitlines()[-1]
    assert "Traceback" not in said
