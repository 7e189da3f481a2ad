"""Simulators with programs and named shared memory of their own: Doom goes when its worker or the harness goes."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tests.harness.runs import END_LIMIT_S, RunningSweep, wait_until
from tests.lanes import deep

OPTIONS = ("--systems", "sync", "--device", "cpu", "--scenario", "vizdoom/basic:num_envs=2:rollout_steps=8")
KINDS_OF_MEMORY = ("ViZDoomMQCtr", "ViZDoomMQDoom", "ViZDoomSM")
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  it is where POSIX shared memory lies
NUM_ENVS = 2


class Doom:
    """The engines of a running sweep, and the files that they and their workers share memory through."""

    def __init__(self, sweep: RunningSweep) -> None:
        names = sweep.shared_memory()
        self.engines = sweep.of_program("vizdoom")
        self.ids = {Path(name).name.removeprefix(kind) for name in names for kind in KINDS_OF_MEMORY if kind in name}

    @property
    def files(self) -> list[Path]:
        """Those that are left."""
        return [path for name in self.ids for path in SHARED_MEMORY.glob(f"*{name}")]


class Killed:
    """What there was before a SIGKILL, and after; `outlived_s` is how long the run's processes outlived it."""

    def __init__(self, sweep: RunningSweep, number: int, victim: psutil.Process) -> None:
        self.before = Doom(sweep)
        self.num_files = len(self.before.files)
        scratch = list(sweep.scratch.iterdir())
        self.outlived_s = sweep.kill(victim, number)
        self.files = [path for path in scratch if path.exists()]  # others may be the next cell's
        self.record = sweep.wait_published(number) if victim.pid != sweep.process.pid else None

    def gone(self) -> bool:
        """Whether all of it went."""
        engines = [engine for engine in self.before.engines if engine.is_running()]
        return not (self.before.files or self.files or engines)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Killed]:
    """A worker is killed in the first cell, the harness in the second, and again as the second begins anew."""
    folder, deaths = tmp_path_factory.mktemp("vizdoom"), {}
    with RunningSweep(folder, *OPTIONS, "--seeds", "0,1", "--iterations", "1000000") as sweep:
        sweep.wait_collecting(1)
        deaths["worker"] = Killed(sweep, 1, sweep.worker(1, rank=0, env=1))
        sweep.wait_collecting(2)
        deaths["harness"] = Killed(sweep, 2, psutil.Process(sweep.process.pid))
    with RunningSweep(folder, "--resume") as sweep:
        wait_until(lambda: Doom(sweep).engines, "an engine starts")
        deaths["harness-at-start"] = Killed(sweep, 1, psutil.Process(sweep.process.pid))
    return deaths


@pytest.mark.parametrize("name", ["worker", "harness"])
def test_killing_a_worker_or_the_harness_takes_doom_with_it(killed: dict[str, Killed], name: str) -> None:
    """No engine and no file in /dev/shm is left of any environment of the run."""
    death = killed[name]
    assert len(death.before.engines) == NUM_ENVS
    assert death.num_files == NUM_ENVS * len(KINDS_OF_MEMORY)
    assert death.gone()


@deep
def test_doom_is_gone_within_5_s(killed: dict[str, Killed]) -> None:
    """With all that was started for it."""
    assert all(killed[name].outlived_s < END_LIMIT_S for name in ("worker", "harness"))


def test_killing_the_harness_while_doom_starts_leaves_nothing(killed: dict[str, Killed]) -> None:
    """Shared memory that an engine had made before its first episode goes as well, and what it was started from."""
    assert killed["harness-at-start"].before.engines
    assert killed["harness-at-start"].gone()


def test_the_run_of_a_killed_doom_worker_names_it(killed: dict[str, Killed]) -> None:
    """The record says which worker was killed, and by what."""
    record = killed["worker"].record
    assert record is not None
    assert record["reason"] == "rank 0: WorkerDied: environment worker rank0-env1 was killed by SIGKILL"
