from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from harness.plan import registry
from tests.harness.command import Ended, call, launch

PYPROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "theirs"
version = "1.0"

[project.entry-points."rlbench.systems"]
turns = "theirs.system:SYSTEM"

[project.entry-points."rlbench.scenarios"]
corridor = "theirs.scenario:FAMILY"
"""

SYSTEM = '''
from dataclasses import dataclass

from harness.contract.budget import Progress
from harness.contract.system import Context
from harness.metering.meter import LagSummary


@dataclass(frozen=True, kw_only=True, slots=True)
class Turns:
    """Steps one environment after the other in the rank's own process, and 'learns' in batches."""

    name: str = "turns"
    about: str = "one environment after the other, in one process"
    batch: int = 4

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ValueError(f"batch={self.batch}: must be at least 1")

    def run(self, context: Context) -> None:
        meter, waiting, done = context.meter, 0, Progress()
        envs = [context.make_env(i) for i in range(context.scenario.num_envs)]
        for env in envs:
            env.reset()
        meter.begin()
        while not context.budget.is_spent(done):
            with meter.span("simulate"):
                for env in envs:
                    *_, terminated, truncated, _ = env.step(1)
                    if terminated or truncated:
                        env.reset()
                    waiting += 1
            meter.discarded(1)
            waiting -= 1
            with meter.span("learn"), context.device.busy("learn", waiting):
                num_learned = waiting // self.batch * self.batch
                meter.learned(num_learned, LagSummary(0, 0))
                waiting -= num_learned
            meter.end_iteration({})
            done = Progress(iterations=done.iterations + 1, env_steps=meter.num_learned, seconds=meter.elapsed_s)
        meter.in_flight(waiting)
        for env in envs:
            env.close()


SYSTEM = Turns()
'''

SCENARIO = '''
import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from harness.contract.device import Seat
from harness.contract.settings import TYPICAL_GPU_COSTS, GpuCosts, LearnSettings


class CorridorEnv(gymnasium.Env[dict[str, Any], int]):
    """Walk to the end."""

    def __init__(self, length: int) -> None:
        self.length, self.at = length, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.at = 0
        return self._look(), {}

    def step(self, action: int):
        self.at += action
        end = self.at >= self.length
        return self._look(), float(end), end, False, {"success": float(end), "num_frames": 2}

    def _look(self):
        return {"position": np.array([self.at / self.length], dtype=np.float32)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Corridor:
    """A corridor; heterogeneous: their lengths differ."""

    name: str = "corridor"
    workload: str = "homogeneous"
    num_envs: int = 3
    rollout_steps: int = 8
    policy: str = "small"
    learn: LearnSettings = field(default_factory=LearnSettings)
    gpu_costs: GpuCosts = TYPICAL_GPU_COSTS
    preload: tuple[str, ...] = ()
    length: int = 5
    num_actions = 2

    @property
    def observation_space(self) -> gymnasium.spaces.Dict:
        return gymnasium.spaces.Dict({"position": gymnasium.spaces.Box(0, 1, (1,), np.float32)})

    def make_env(self, seat: Seat) -> CorridorEnv:
        return CorridorEnv(self.length + (seat.global_index if self.workload == "heterogeneous" else 0))


class CorridorFamily:
    about = "a corridor"
    variants = ()

    def unavailable(self) -> str | None:
        return None

    def make(self, variant: str, workload: str) -> Corridor:
        return Corridor(workload=workload)


FAMILY = CorridorFamily()
'''


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
    source = folder / "source"
    (source / "theirs").mkdir(parents=True)
    (source / "pyproject.toml").write_text(dedent(PYPROJECT))
    for name, text in (("__init__", ""), ("system", SYSTEM), ("scenario", SCENARIO)):
        (source / "theirs" / f"{name}.py").write_text(text)
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
    assert (theirs.ended.code, theirs.ended.err) == (0, "")
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
