from __future__ import annotations

import json
import os
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from harness import libraries
from harness.environments import READY
from harness.registry import load_system
from tests.harness.command import launch
from tests.harness.runs import RunningSweep

ADAPTER = """
from dataclasses import dataclass
from pathlib import Path

from systems.external.library import Departure, LibrarySystem, PipLibrary


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

import minilib
import rlbench_client

told = json.loads(sys.argv[1])
print("epochs", told["learn"]["epochs"], "seed", told["seed"], "version", minilib.VERSION)
envs = [rlbench_client.make_env(box=True) for _ in range(told["num_envs"])]
shapes = {env.reset()[0].shape for env in envs}
assert shapes == {(3, 72, 128)}, shapes
while True:
    for env in envs:
        *_, terminated, truncated, _ = env.step(1)
        if terminated or truncated:
            env.reset()
    rlbench_client.learned(len(envs))
    rlbench_client.reused((told["learn"]["epochs"] - 1) * len(envs))
    rlbench_client.iteration()
"""


@pytest.fixture
def mini(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system of somebody's library, as pip would leave it, and the library's virtual environment; their folder."""
    site, cache = tmp_path / "theirs", tmp_path / "cache"
    about = site / "mini_system-1.0.dist-info"
    about.mkdir(parents=True)
    (site / "mini_system.py").write_text(ADAPTER)
    (site / "train.py").write_text(TRAIN)
    (site / "requirements.txt").write_text("minilib==1.5\n")
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mini-system\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[rlbench.external_systems]\nmini = mini_system:SYSTEM\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")])))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    place = libraries.place_of(load_system("sb3-ppo", {}).library)  # type: ignore[attr-defined]  # one that has some
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


def run(folder: Path, *options: str) -> tuple[dict[str, Any], Path]:
    """The record of a run of the system, and its folder."""
    work = folder / "work"
    work.mkdir()
    common = ("--systems", "mini", "--device", "cpu", "--scenario", "vizdoom:num_envs=2")
    with RunningSweep(work, *common, *options) as sweep:
        assert sweep.end() in {0, 1}, sweep.stderr
        assert not sweep.processes()
        (record,) = sweep.out.glob("*/*/run.json")
    return json.loads(record.read_text()), record.parent


@pytest.mark.usefixtures("mini")
def test_a_system_of_a_library_runs_in_its_own_environment(tmp_path: Path) -> None:
    """Its trainer makes the run's environments there, and its record says with what versions it learned, and how."""
    record, folder = run(tmp_path, "--seconds", "3")
    assert record["status"] == "finished", record["reason"]
    counters = record["counters"]
    assert counters["env_steps"] >= counters["learned"] > 0
    assert counters["reused"] == 2 * counters["learned"]
    assert (counters["discarded"], record["figures"]["lag"]) == (None, None)
    assert record["packages"]["minilib"] == "1.5"
    assert record["packages"]["rlbench"]
    assert record["configuration"]["system"]["departures"] == {"initialisation": "zeros"}
    assert record["configuration"]["scenario"]["learn"]["epochs"] == 3
    assert "epochs 3 seed 0 version 1.5" in (folder / "stdout.txt").read_text()


def test_an_environment_that_changes_is_not_used(mini: Path, tmp_path: Path) -> None:
    """What was installed since in another version is refused with the command that mends it."""
    about = next(mini.glob("lib/python3*/site-packages/minilib-1.5.dist-info"))
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: minilib\nVersion: 1.4\n")
    ended = launch("run", "--systems", "mini", "--device", "cpu", "--scenario", "vizdoom", folder=tmp_path)
    assert ended.code == 2
    why = "mini: its environment has minilib 1.4 where 1.5 is needed; use: rlbench systems install mini"
    assert ended.err == f"rlbench: {why}\n"


def test_a_run_whose_library_is_gone_fails(mini: Path, tmp_path: Path) -> None:
    """One that was removed after the sweep was planned ends the run as failed, with the command."""
    work = tmp_path / "gone"
    work.mkdir()
    options = ("--systems", "sync,mini", "--device", "cpu", "--scenario", "vizdoom:num_envs=2", "--seconds", "2")
    with RunningSweep(work, *options) as sweep:
        sweep.wait_collecting(1)
        (mini / READY).unlink()
        assert sweep.end(2) == 1
        records = [json.loads(path.read_text()) for path in sorted(sweep.out.glob("*/*/run.json"))]
    assert [record["status"] for record in records] == ["finished", "failed"]
    assert "minilib is not installed; use: rlbench systems install mini" in records[1]["reason"]


def test_this_python_is_not_the_librarys(mini: Path) -> None:
    """Else these tests would show nothing."""
    assert Path(sys.executable).parents[1] != mini
