from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rlbench.harness.plan import registry
from tests.harness.command import Ended, call, launch

PLUGIN = Path(__file__).parents[3] / "examples" / "plugin"


@dataclass(frozen=True, kw_only=True, slots=True)
class Theirs:
    """A package of somebody else's, installed, and a sweep of its system and ours on its scenario."""

    folder: Path
    ended: Ended
    runs: list[dict[str, Any]]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Theirs:
    """Builds it, installs it with pip, and runs it."""
    folder = tmp_path_factory.mktemp("theirs")
    source = shutil.copytree(PLUGIN, folder / "source")  # pip builds in it
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-cache-dir", "install", "--quiet"]
    offline = ["--no-deps", "--no-index", "--no-build-isolation", "--target", str(folder / "site")]
    subprocess.run([*pip, *offline, str(source)], check=True, capture_output=True, text=True)
    ended = launch(
        *("run", "--systems", "turns:batch=6,sync", "--scenario", "corridor", "--workload", "heterogeneous"),
        *("--device", "emulated", "--iterations", "5", "--out", "out"),
        folder=folder,
        environment={"PYTHONPATH": str(folder / "site")},
    )
    results = call("results", str(folder / "out"), "--json")
    return Theirs(folder=folder, ended=ended, runs=json.loads(results.out))


@pytest.fixture
def installed(theirs: Theirs, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Their package is installed for this process too."""
    monkeypatch.chdir(theirs.folder)
    monkeypatch.syspath_prepend(str(theirs.folder / "site"))
    registry._points.cache_clear()
    yield
    registry._points.cache_clear()


def test_their_system_and_scenario_run(theirs: Theirs) -> None:
    """A package with two entry points is all it takes: its system and ours run on its scenario, by name."""
    assert theirs.ended.code == 0, theirs.ended.err
    turns, sync = theirs.runs
    assert [run["status"] for run in theirs.runs] == ["finished", "finished"]
    assert (turns["cell"]["system"], turns["cell"]["settings"]) == ("turns", {"batch": 6})
    assert (sync["cell"]["system"], sync["cell"]["scenario"]) == ("sync", "corridor")
    assert turns["configuration"]["system"] == {
        "kind": "Turns",
        "name": "turns",
        "about": "one environment after the other, in one process",
        "batch": 6,
    }


def test_their_samples_are_conserved(theirs: Theirs) -> None:
    """The harness counts their environments' steps and frames, and holds their system's counts against them."""
    turns, sync = (run["counters"] for run in theirs.runs)
    assert turns == {
        "env_steps": 15,
        "agent_steps": None,
        "frames": 30,
        "learned": 6,
        "reused": 0,
        "discarded": 5,
        "in_flight": 4,
        "episodes": 1,
    }
    assert (sync["env_steps"], sync["frames"], sync["learned"]) == (120, 240, 120)
    assert theirs.runs[0]["figures"]["steps_per_s"] > 0
    assert theirs.runs[0]["figures"]["success"] == 1.0


@pytest.mark.usefixtures("installed")
def test_theirs_are_listed_and_checked_like_ours() -> None:
    """Names, fields and rules of a package of somebody else's are found and refused as ours are."""
    listed = call("list", "--json").out
    assert "one environment after the other" in listed
    assert "a corridor" in listed
    for system, expected in (
        ("turns:batch=0", "rlbench: turns:batch=0: must be at least 1\n"),
        ("turns:speed=3", "rlbench: turns:speed: unknown field; known: batch\n"),
    ):
        ended = call("run", "--systems", system, "--scenario", "corridor")
        assert (ended.code, ended.err) == (2, expected)


def test_theirs_are_unknown_where_they_are_not_installed() -> None:
    """Their package is found because it is there, and by nothing else."""
    known = call("run", "--systems", "turns").err.partition("known: ")[2].strip().split(", ")
    assert {"ddppo", "sync"} <= set(known)
    assert "turns" not in known
