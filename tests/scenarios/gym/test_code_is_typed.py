from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from rlbench.harness.plan import registry
from rlbench.harness.plan.options import RunOptions
from rlbench.harness.plan.planning import plan
from rlbench.harness.plan.request import complete
from rlbench.harness.run.record import cell_record
from rlbench.harness.run.sweep import PLAN_FILE, Sweep
from rlbench.results.records.store import write_run
from rlbench.scenarios.gym import making
from tests.harness.command import assert_refused, call, launch
from tests.results.made_records import make_record, write_series

SCENARIO = "gym/./mine.py:Good:num_envs=2"
OPTIONS = ("--systems", "sync", "--device", "cpu", "--iterations", "2")
OUT = ("--out", "my runs")


def planned(scenario: str) -> Sweep:
    """A sweep of one cell in the folder `my runs`, of which nothing was run."""
    asked = RunOptions(systems="sync", device="cpu", iterations=2, scenario=scenario)
    command = ["rlbench", "run", "--out=runs", *OPTIONS, "--scenario", scenario, "--out", "runs"]
    return Sweep.create(Path(OUT[1]), plan(complete(asked)[0]), command)


def left(sweep: Sweep, **settings: Any) -> Path:
    """The folder of a run of that sweep, as if it had finished; its record says what is given."""
    folder = sweep.folder / "001-run"
    folder.mkdir()
    record = make_record("sync")
    cell = cell_record(sweep.cells[0])
    cell = cell.model_copy(update={"settings": {**cell.settings, **settings}})
    write_run(folder, record.model_copy(update={"cell": cell}))
    write_series(folder, [(0, 0, 0.0, 1.0, 32)], lost=False)
    (folder / "policy.pt").write_bytes(b"")
    return folder


def forget(loaded: Path) -> None:
    """Makes this process one that has not loaded `mine.py` yet."""
    making.TRIALS.known.clear()
    for name in [name for name in sys.modules if name.startswith("rlbench_file_")]:
        del sys.modules[name]
    loaded.unlink(missing_ok=True)


@pytest.fixture
def loaded(mine: Path) -> Path:
    """The file that is there once the code of `mine.py` has run."""
    return mine.with_name("loaded")


@pytest.mark.parametrize(
    ("scenario", "settings", "expected"),
    [
        ("gym/CartPole-v1", {}, False),
        ("gym/ALE/Pong-v5", {"kwargs.frameskip": "4", "without": "x"}, False),
        ("gym/phys2d/CartPole-v1", {}, False),
        ("mujoco/ant", {"kwargs.ctrl_cost_weight": "0.1"}, False),
        ("minigrid", {}, False),
        ("pointnav", {}, False),
        ("no/such:thing", {}, False),
        ("gym/pack:Id-v0", {}, True),
        ("gym/./file.py:It", {}, True),
        ("gym//tmp/file.py:It", {}, True),
        ("gym/file.py", {}, True),
        ("gym", {"ids": "CartPole-v1+pack:Id-v0"}, True),
        ("mujoco/ant", {"wrappers": "pack:Norm"}, True),
        ("mujoco/ant", {"ids": "pack:Norm"}, True),
        ("mujoco/ant", {"kwargs.xml_file": "/home/ant.xml"}, True),
        ("gym/X-v0", {"kwargs.env": "pack:It"}, True),
        *(
            ("gym/X-v0", {"kwargs.a": text}, False)
            for text in ("3", "-1.5e-3", "5..20", "0.1..2e3", "wide", "a-b_c", "none")
        ),
        *(
            ("gym/X-v0", {"kwargs.a": text}, True)
            for text in (".evil.xml", "evil.pkl", "pack.module", "~", "a b", "'x'")
        ),
    ],
)
def test_what_names_code_is_told_without_loading_it(scenario: str, settings: dict[str, str], expected: bool) -> None:
    """Ids of installed packages are data; modules, files, and arguments that may be either are not."""
    assert registry.names_code(scenario, settings) is expected


def test_a_plan_loads_no_code_until_its_scenario_is_typed(loaded: Path) -> None:
    """`--resume` alone is refused in a line that ends with the command to paste; with that the sweep goes on."""
    planned(SCENARIO)
    forget(loaded)
    refused = call("run", "--resume", *OUT)
    assert_refused(refused, f"code that a scenario names, {SCENARIO}; type all its options again")
    assert not loaded.exists()
    program, *words = shlex.split(refused.err.rpartition("so that it is yours: ")[2])
    assert program == "rlbench"
    ended = launch(*words, "--dry-run", folder=loaded.parent)
    assert ended.code == 0
    assert "0 of 1 cells finished" in " ".join(ended.err.split())
    assert loaded.exists()


def test_the_runs_of_a_profile_go_on_by_what_is_printed(loaded: Path) -> None:
    """Its own options are not those of `rlbench run`: these are made of what it planned."""
    asked = RunOptions(systems="sync,sync:learn.num_minibatches=2", device="cpu", seconds=2.5, scenario=SCENARIO)
    command = ["rlbench", "profile", "--system", "sync", "--scenario", SCENARIO, "--seconds", "2.5", "--runs", OUT[1]]
    Sweep.create(Path(OUT[1]), plan(complete(asked)[0]), command)
    refused = call("run", "--resume", *OUT)
    words = shlex.split(refused.err.rpartition("so that it is yours: ")[2])[1:]
    ended = launch(*words, "--dry-run", folder=loaded.parent)
    assert ended.code == 0
    assert "0 of 2 cells finished" in " ".join(ended.err.split())


def test_what_is_typed_gives_leave_for_nothing_else(loaded: Path) -> None:
    """A plan that names another file than the command is refused before that file is looked at."""
    sweep = planned(SCENARIO)
    plan_file = sweep.folder / PLAN_FILE
    document = json.loads(plan_file.read_text(encoding="utf-8"))
    document["cells"][0]["scenario"] = "gym/./theirs.py:Good"
    plan_file.write_text(json.dumps(document), encoding="utf-8")
    loaded.with_name("theirs.py").write_text(loaded.with_name("mine.py").read_text(encoding="utf-8"), encoding="utf-8")
    forget(loaded)
    typed = ("--scenario", "gym/CartPole-v1:num_envs=2")
    assert_refused(call("run", "--resume", *OPTIONS, *typed, *OUT, "--dry-run"), "planned other cells")
    assert not loaded.exists()


@pytest.mark.parametrize(
    "hidden", [{}, {"scenario.wrappers": ["./mine.py:Good"]}, {"scenario.a=1:ids": "./mine.py:Good"}]
)
def test_evaluate_loads_no_code_until_its_scenario_is_typed(loaded: Path, hidden: dict[str, Any]) -> None:
    """Wherever in a record it is named; a scenario that is typed must be the record's."""
    sweep = planned("gym/CartPole-v1" if hidden else SCENARIO)
    folder = left(sweep, **hidden)
    forget(loaded)
    for runs in ([str(folder)], OUT):
        assert_refused(call("evaluate", *runs), "its scenario names code", "rlbench evaluate", "--scenario gym/")
    assert_refused(call("evaluate", str(folder), "--scenario", "gym/CartPole-v0"), "is another than --scenario says")
    assert not loaded.exists()


def test_evaluate_plays_what_is_typed(loaded: Path) -> None:
    """A run of it is refused, and played once its scenario is typed; the order of settings does not matter."""
    more = ("max_episode_steps=5", "rollout_steps=8")
    ended = launch("run", *OPTIONS, "--scenario", ":".join([SCENARIO, *more]), *OUT, folder=loaded.parent)
    assert ended.code == 0, ended.out + ended.err
    forget(loaded)
    assert_refused(call("evaluate", *OUT), "its scenario names code")
    assert not loaded.exists()
    typed = ":".join([SCENARIO, *reversed(more)])
    ended = call("evaluate", *OUT, "--scenario", typed, "--episodes", "2", "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)[0]["return"]["mean"] == 5
    assert loaded.exists()
    mine = loaded.with_name("mine.py")
    mine.write_text(mine.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    forget(loaded)
    assert_refused(call("evaluate", *OUT, "--scenario", typed), "its environments are made from have changed since")


@pytest.mark.parametrize(
    "arguments",
    [
        ("results", OUT[1]),
        ("results", OUT[1], "--json"),
        ("report", OUT[1], "--out", "page.html"),
        ("compare", OUT[1], OUT[1]),
        *(("export", "--format", form, OUT[1]) for form in ("json", "csv", "markdown")),
        ("list", "scenarios"),
    ],
    ids=" ".join,
)
def test_what_reads_runs_loads_no_code(loaded: Path, arguments: tuple[str, ...]) -> None:
    """Records say all that it needs."""
    left(planned(SCENARIO))
    forget(loaded)
    ended = launch(*arguments, folder=loaded.parent)
    assert ended.code in {0, 1}, ended.err
    assert not loaded.exists()
