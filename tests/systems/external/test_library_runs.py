from __future__ import annotations

import os
import sys
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rlbench.harness.machine.virtualenvs import READY
from rlbench.harness.plan import libraries, registry
from rlbench.harness.plan.registry import load_system
from tests.harness.command import call
from tests.harness.runs import RunningSweep, wait_until
from tests.systems.external.trainer_runs import script, write_trainer

ADAPTER = """
from dataclasses import dataclass
from pathlib import Path

from rlbench.systems.external.library import Departure, LibrarySystem, PipLibrary


@dataclass(frozen=True, kw_only=True)
class Mini(LibrarySystem):
    library = PipLibrary(name="mini", distribution="minilib", folder=str(Path(__file__).parent))
    policies = {"conv": "conv", "nature": "nature"}

    def list_departures(self, scenario):
        return (Departure(what="initialisation", theirs="zeros"), Departure(what="log", theirs="long", matters=False))


SYSTEM = Mini(name="mini", about="a library of one function", learn={"epochs": 3})
"""
TRAIN = """
import json
import sys
import time

import minilib
import rlbench_client

told = json.loads(sys.argv[1])
print("epochs", told["learn"]["epochs"], "seed", told["seed"], "version", minilib.VERSION)
envs = [rlbench_client.make_env(box=True) for _ in range(told["num_envs"])]
shapes = {env.reset()[0].shape for env in envs}
assert shapes == {(3, 72, 128)}, shapes
for _ in range(20):
    for env in envs:
        *_, terminated, truncated, _ = env.step(1)
        if terminated or truncated:
            env.reset()
    rlbench_client.learned(len(envs))
    rlbench_client.reused((told["learn"]["epochs"] - 1) * len(envs))
    rlbench_client.iteration()
time.sleep(1000)
"""
WAITS = """
import time
from pathlib import Path

import gymnasium
import rlbench_client

env = rlbench_client.count(gymnasium.make("CartPole-v1"))
env.reset()
env.step(0)
while not Path("go-on").exists():
    time.sleep(0.02)
env.step(0)
rlbench_client.iteration()
"""
"""A trainer of two env steps, the second when it may."""


def make_mini(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system of somebody's library, as pip would leave it, and the library's virtual environment, which it returns.

    Both are found from now on, here and by whatever is started.
    """
    site, cache = folder / "theirs", folder / "cache"
    about = site / "mini_system-1.0.dist-info"
    about.mkdir(parents=True)
    (site / "mini_system.py").write_text(ADAPTER)
    (site / "train.py").write_text(TRAIN)
    (site / "requirements.txt").write_text("minilib==1.5\n")
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mini-system\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[rlbench.external_systems]\nmini = mini_system:SYSTEM\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")])))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.syspath_prepend(str(site))
    place = libraries.environment_of(load_system("sb3-ppo", {}).library)  # type: ignore[attr-defined]  # one that has some
    made = place.with_name(place.name.replace("sb3", "mini"))
    venv.create(made, with_pip=False, symlinks=True)
    packages = next(made.glob("lib/python3*/site-packages"))
    ours = [path for path in sys.path if Path(path).name == "site-packages"]
    (packages / "ours.pth").write_text("\n".join(ours))  # what simulators need
    (packages / "minilib.py").write_text("VERSION = '1.5'\n")
    (packages / "minilib-1.5.dist-info").mkdir()
    (packages / "minilib-1.5.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: minilib\nVersion: 1.5\n")
    (made / READY).touch()
    return made


@dataclass(frozen=True, kw_only=True, slots=True)
class Ran:
    """A sweep of three cells: the system, a trainer during which its library is removed, and the system again."""

    made: Path
    """The library's virtual environment."""
    code: int
    num_left: int
    """Processes that were there when `rlbench` had ended."""
    runs: list[dict[str, Any]]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    """Runs it."""
    folder = tmp_path_factory.mktemp("mini")
    work = folder / "work"
    work.mkdir()
    write_trainer(work, script(WAITS), file="waits.toml")
    systems = ("--systems", "mini,waits=waits.toml,mini:num_workers=1")
    options = ("--device", "cpu", "--scenario", "vizdoom:num_envs=2", "--iterations", "20")
    with pytest.MonkeyPatch.context() as patch:
        made = make_mini(folder, patch)
        with RunningSweep(work, *systems, *options) as sweep:
            wait_until(lambda: any(meter.total("env_steps") for meter in sweep.meters(2, 1)), "the second cell steps")
            (made / READY).unlink()
            (work / "go-on").touch()
            code = sweep.end(3)
            num_left = len(sweep.processes())
            runs = [run for number in (1, 2, 3) for run in sweep.runs(number)]
        yield Ran(made=made, code=code, num_left=num_left, runs=runs)
    registry._points.cache_clear()  # what was installed is no more


def test_a_system_of_a_library_runs_in_its_own_environment(ran: Ran) -> None:
    """Its trainer makes the run's environments there, and its record says with what versions it learned, and how."""
    record = ran.runs[0]
    assert (record["status"], ran.num_left) == ("finished", 0), record["reason"]
    counters = record["counters"]
    assert counters["env_steps"] >= counters["learned"] > 0
    assert counters["reused"] == 2 * counters["learned"]
    assert (counters["discarded"], record["figures"]["lag"]) == (None, None)
    assert record["packages"]["minilib"] == "1.5"
    assert record["packages"]["rlbench"]
    assert record["configuration"]["system"]["departures"] == {"initialisation": "zeros"}
    assert record["configuration"]["scenario"]["learn"]["epochs"] == 3
    assert "epochs 3 seed 0 version 1.5" in (record["path"] / "stdout.txt").read_text()


def test_an_environment_that_changes_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was installed since in another version is refused with the command that mends it."""
    made = make_mini(tmp_path, monkeypatch)
    about = next(made.glob("lib/python3*/site-packages/minilib-1.5.dist-info"))
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: minilib\nVersion: 1.4\n")
    registry._points.cache_clear()  # what is installed has changed
    try:
        ended = call("run", "--systems", "mini", "--device", "cpu", "--scenario", "vizdoom", "--out", str(tmp_path))
    finally:
        registry._points.cache_clear()
    assert ended.code == 2
    why = "mini: its environment has minilib 1.4 where 1.5 is needed; use: rlbench systems install mini"
    assert ended.err == f"rlbench: {why}\n"


def test_a_run_whose_library_is_gone_fails(ran: Ran) -> None:
    """One that was removed after the sweep was planned ends the run as failed, with the command."""
    assert ran.code == 1
    assert [run["status"] for run in ran.runs] == ["finished", "finished", "failed"]
    assert "minilib is not installed; use: rlbench systems install mini" in ran.runs[2]["reason"]


def test_this_python_is_not_the_librarys(ran: Ran) -> None:
    """Else these tests would show nothing."""
    assert Path(sys.executable).parents[1] != ran.made
