"""VER and DD-PPO of habitat-baselines; without habitat-sim, with stand-ins for its modules: `nox -s libraries`."""

from __future__ import annotations

import json
import venv
from pathlib import Path

import psutil
import pytest

from rlbench.harness.plan import libraries
from rlbench.harness.processes.shared_memory import FOLDER as SHARED_MEMORY
from rlbench.results.records.index import cache_folder
from tests.harness.runs import RunningSweep, wait_until
from tests.libraries import habitat_stand_ins
from tests.libraries.check_libraries import run

SYSTEMS = ("habitat-ddppo", "habitat-ver")
SMALL = ":policy=resnet:num_envs=2:rollout_steps=16"
SECONDS = "30"
NICE = 10
"""Of VER's processes with an environment."""


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there, and no other library; with stand-ins in a cache folder of its own: nothing else should use them."""
    library = libraries.all_libraries()["habitat-baselines"]
    if library.unavailable(libraries.environment_of(library)) is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(cache_folder() / "with-stand-ins"))
        put_stand_ins(libraries.environment_of(library))
    libraries.install(library, print)


def put_stand_ins(place: Path) -> None:
    """Makes an environment in which they are, unless it is there."""
    if (place / "bin").exists():
        return
    venv.create(place, with_pip=True, symlinks=True)
    (packages,) = place.glob("lib/python*/site-packages")
    (packages / "habitat_stand_ins.py").write_text(Path(habitat_stand_ins.__file__).read_text())
    (packages / "habitat_stand_ins.pth").write_text("import habitat_stand_ins\n")
    (packages / "habitat_sim").mkdir()


@pytest.mark.parametrize("scenario", ["pointnav", "vizdoom"])
@pytest.mark.parametrize("system", SYSTEMS)
def check_each_trains_and_leaves_nothing(system: str, scenario: str, tmp_path: Path) -> None:
    """Env steps are counted, what is reported adds up, and nothing is left."""
    (ran,) = run(tmp_path, "--systems", system, "--scenario", f"{scenario}{SMALL}", "--seconds", SECONDS)
    assert ran.record["status"] == "finished", ran.record["reason"]
    counters = ran.record["counters"]
    assert counters["env_steps"] >= counters["learned"] + counters["discarded"] > 0
    assert counters["reused"] >= counters["learned"]
    if system == "habitat-ddppo":
        assert (ran.record["figures"]["lag"]["max"], counters["discarded"]) == (0, 0)
    assert (ran.processes, ran.files) == ([], [])


def check_a_worker_that_is_killed_ends_the_run(tmp_path: Path) -> None:
    """VER itself would go on with the environments that are left."""
    before = set(SHARED_MEMORY.iterdir())
    options = ("--device", "cpu", "--systems", "habitat-ver", "--scenario", f"pointnav{SMALL}", "--seconds", "600")
    with RunningSweep(tmp_path, *options) as sweep:
        wait_until(lambda: _environments(sweep), "an environment is there")
        _environments(sweep)[0].kill()
        assert sweep.end() == 1, sweep.stderr
        assert sweep.processes() == []
        assert [*sweep.scratch.iterdir(), *(set(SHARED_MEMORY.iterdir()) - before)] == []
        (path,) = sweep.out.glob("*/*/run.json")
    record = json.loads(path.read_text())
    assert record["status"] == "failed"
    assert "its command exited with 1: RuntimeError: a worker process has ended" in record["reason"]


def _environments(sweep: RunningSweep) -> list[psutil.Process]:
    """Processes of VER's environments, which give way to the others."""
    return [one for one in sweep.processes() if one.nice() == NICE]
