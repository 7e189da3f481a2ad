"""The systems of other people's libraries as they are: `nox -s libraries` installs them and trains with each."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rlbench.harness.contract.traits import Traits
from rlbench.harness.plan import libraries, registry
from rlbench.harness.plan.registry import load_system
from rlbench.harness.processes.shared_memory import FOLDER as SHARED_MEMORY
from rlbench.systems.external.spaces import LIBRARIES, why_not_spaces
from tests.harness.runs import RunningSweep
from tests.libraries import counting_scenario, spaces_scenario

SYSTEMS = [
    name
    for name in registry.names(registry.EXTERNAL)
    if (library := Traits.of(load_system(name, {})).library)
    and library.unavailable(libraries.environment_of(library)) is None
    and library.name != "habitat-baselines"
]
"""Those of habitat-baselines have a network of their own: see `check_habitat.py`."""
SECONDS = "20"
LONG_ENOUGH = "45"
"""For every environment of `counted-apart` to stand still."""
FIXED = {"sb3-ppo", "torchrl-ppo"}
"""Their batch is a rollout of all environments."""
STALL_S = 30
START_LIMIT_S = 150
"""To start, collect a batch and fail, on a busy machine."""


def quick(system: str) -> str:
    """A system that learns soon, on a slow machine too."""
    return system if system in FIXED else f"{system}:rollout.batch=256"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ran:
    """A run that is over, and what was left when it was."""

    record: dict[str, Any]
    folder: Path
    processes: list[str]
    files: list[str]


def run(folder: Path, *options: str, num_cells: int = 1) -> list[Ran]:
    """The runs of a sweep, one for each cell."""
    shared = set(SHARED_MEMORY.iterdir())
    with RunningSweep(folder, "--device", "cpu", *options) as sweep:
        assert sweep.end(num_cells) in {0, 1}, sweep.stderr
        processes = [str(one) for one in sweep.processes()]
        files = [*sweep.scratch.iterdir(), *(set(SHARED_MEMORY.iterdir()) - shared)]
        paths = sorted(sweep.out.glob("*/*/run.json"))
    assert len(paths) == num_cells
    left = {"processes": processes, "files": [str(path) for path in files]}
    return [Ran(record=json.loads(path.read_text()), folder=path.parent, **left) for path in paths]


@pytest.mark.parametrize("scenario", ["vizdoom", "atari"])
@pytest.mark.parametrize("system", SYSTEMS)
def check_each_trains_and_leaves_nothing(system: str, scenario: str, tmp_path: Path) -> None:
    """Env steps, frames and episodes are counted, what is reported adds up, and nothing is left."""
    (ran,) = run(tmp_path, "--systems", quick(system), "--scenario", f"{scenario}:num_envs=8", "--seconds", SECONDS)
    assert ran.record["status"] == "finished", ran.record["reason"]
    counters = ran.record["counters"]
    assert counters["env_steps"] >= counters["learned"] > 0
    assert counters["frames"] > counters["env_steps"]
    assert ran.record["figures"]["steps_per_s"] > 0
    assert (ran.processes, ran.files) == ([], [])


def plug_in(file: str, family: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a scenario of a module beside this one known to whatever is started, as pip would."""
    module, site = Path(file).stem, folder / "plugged-in"
    about = site / f"{module}-1.0.dist-info"
    about.mkdir(parents=True)
    (site / f"{module}.py").write_text(Path(file).read_text())
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[rlbench.scenarios]\n{family} = {module}:FAMILY\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")])))


@pytest.mark.parametrize(
    ("system", "variant"),
    [
        (system, variant)
        for system in SYSTEMS
        for variant, spaces in spaces_scenario.SPACES.items()
        if why_not_spaces(LIBRARIES[system], *spaces) is None
    ],
)
def check_each_takes_the_spaces_it_says(
    system: str, variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It learns, and each action that the environments get is in their space."""
    plug_in(spaces_scenario.__file__, "any-spaces", tmp_path, monkeypatch)
    (ran,) = run(tmp_path, "--systems", quick(system), "--scenario", f"any-spaces/{variant}", "--seconds", SECONDS)
    assert ran.record["status"] == "finished", ran.record["reason"]
    assert ran.record["counters"]["learned"] > 0
    assert (ran.processes, ran.files) == ([], [])


@pytest.mark.parametrize("system", SYSTEMS)
def check_counts_are_those_of_the_environments(system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Env steps, frames and episodes of the record are what the environments have counted themselves, to the step."""
    counts = tmp_path / "counts"
    counts.mkdir()
    plug_in(counting_scenario.__file__, "counted-apart", tmp_path, monkeypatch)
    monkeypatch.setenv(counting_scenario.VARIABLE, str(counts))
    (ran,) = run(tmp_path, "--systems", quick(system), "--scenario", "counted-apart", "--seconds", LONG_ENOUGH)
    assert ran.record["status"] == "finished", ran.record["reason"]
    counters = ran.record["counters"]
    apart = counting_scenario.total(counts)
    # One that stands still holds up those that its process steps after it, so that none is stepped any more.
    assert 3.9 * counting_scenario.MOST_STEPS < apart[0] <= 4 * counting_scenario.MOST_STEPS
    assert (counters["env_steps"], counters["frames"], counters["episodes"]) == apart


def check_a_learner_that_dies_ends_the_run(tmp_path: Path) -> None:
    """With V-trace, Sample Factory's learner dies on its first summary, and its other processes wait for ever."""
    options = ("--scenario", "vizdoom:num_envs=8", "--seconds", "600", "--stall", str(STALL_S))
    (ran,) = run(tmp_path, "--systems", "sample-factory:learn.correct=vtrace", *options)
    assert ran.record["status"] == "failed"
    assert f"nothing was stepped or learned for {STALL_S} s (--stall) after it had raised" in ran.record["reason"]
    first = (ran.folder / "traceback.txt").read_text().split("\n\n")
    assert "Traceback (most recent call last):" in first[1]
    assert "learner.py" in first[1]
    assert ran.record["duration_s"] < START_LIMIT_S + STALL_S
    assert (ran.processes, ran.files) == ([], [])
    assert "vizdoom" in (ran.folder / "processes-trainer.txt").read_text()


def check_all_libraries_and_ours_stand_in_one_table(tmp_path: Path) -> None:
    """As the command of the README: each system in its own environment, in one sweep, all counted alike."""
    systems = ("appo", *map(quick, SYSTEMS))
    options = ("--systems", ",".join(systems), "--scenario", "vizdoom", "--gpus", "1", "--seconds", SECONDS)
    runs = run(tmp_path, *options, num_cells=len(systems))
    ended = {ran.record["cell"]["system"]: ran.record["status"] for ran in runs}
    assert ended == dict.fromkeys(("appo", *SYSTEMS), "finished")
    assert {ran.record["figures"]["steps_counted"] for ran in runs} == {"learned"}
