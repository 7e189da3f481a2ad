"""Real runs of environments with several agents, as a user types them."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rlbench.scenarios.pettingzoo_envs import making
from tests.harness.command import assert_refused, call, launch
from tests.scenarios.pettingzoo_envs.written import write_file

SCENARIO = "pettingzoo/./game.py:Tag:num_envs=2:rollout_steps=16"
OPTIONS = ("--device", "cpu", "--iterations", "3", "--scenario", SCENARIO)
ALONE = re.compile(r"(?<!agent )(?<!env )steps/s", re.IGNORECASE)
"""A rate that does not say whose steps it counts."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working folder, with runs of two systems in `runs`."""
    folder = tmp_path_factory.mktemp("game")
    write_file(folder)
    ended = launch("run", "--systems", "sync,ver", *OPTIONS, "--out", "runs", folder=folder)
    (folder / "said.txt").write_text(ended.out + ended.err, encoding="utf-8")
    assert ended.code == 0, ended.out + ended.err
    return folder


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, in which this process then is, and has not loaded `game.py`."""
    monkeypatch.chdir(folder)
    making.TRIALS.known.clear()
    for name in [name for name in sys.modules if name.startswith("rlbench_file_")]:
        del sys.modules[name]
    (folder / "loaded").unlink(missing_ok=True)
    return folder


def runs(folder: Path) -> list[Path]:
    """The run folders."""
    return sorted(path.parent for path in folder.glob("runs/*/*/run.json"))


def records(folder: Path) -> list[dict[str, Any]]:
    """What they recorded."""
    return [json.loads((run / "run.json").read_text(encoding="utf-8")) for run in runs(folder)]


def test_every_agent_step_is_accounted_for(folder: Path) -> None:
    """Of 2 environments, in which of 4 agents some are away at times; what is learned is of taggers and runners."""
    for record in records(folder):
        counters = record["counters"]
        assert record["status"] == "finished", record["reason"]
        assert counters["env_steps"] < counters["agent_steps"] < 4 * counters["env_steps"]
        assert counters["agent_steps"] == counters["learned"] + counters["discarded"] + counters["in_flight"]
        assert counters["frames"] == counters["env_steps"]
        parts = {part["name"]: part for part in record["learned_from"]["parts"]}
        assert list(parts) == ["runner", "tagger"]
        assert parts["runner"]["started"] < parts["tagger"]["started"] == 4 * counters["env_steps"] / 2
        assert record["configuration"]["scenario"]["agents_per_env"] == 4


def test_rates_are_of_agent_steps_and_of_env_steps(folder: Path) -> None:
    """In the record, while it runs and in the table: no rate is of steps alone."""
    for record in records(folder):
        figures, counters = record["figures"], record["counters"]
        share = counters["env_steps"] / counters["agent_steps"]
        assert figures["env_steps_per_s"] == pytest.approx(figures["steps_per_s"] * share)
        assert figures["frames_per_s"] == pytest.approx(figures["env_steps_per_s"])
    said = (folder / "said.txt").read_text(encoding="utf-8")
    assert re.search(r"finished, [\d,]+ agent steps/s, [\d,]+ env steps/s", said)
    assert re.search(r"agent steps/s +\| +env steps/s", said)
    assert not ALONE.search(said)


def test_files_name_environment_and_agent(folder: Path) -> None:
    """What became of each agent's steps, and its stays; spans are of whole environments, which step together."""
    run = runs(folder)[0]
    rows = pd.read_parquet(run / "environments.parquet")
    assert list(zip(rows["environment"], rows["agent"], rows["part"], strict=True)) == [
        (env, agent, "tagger" if agent < 2 else "runner") for env in range(2) for agent in range(4)
    ]
    stays = pd.read_parquet(run / "episodes.parquet")
    assert set(stays["environment"]) <= {0, 1}
    assert set(stays["agent"]) == {0, 1, 2, 3}
    assert stays["length"].max() <= 20
    assert set(pd.read_parquet(run / "spans.parquet")["environment"]) <= {-2, -1, 0, 1}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("profile", "--scenario", SCENARIO, "--out", "game.toml"), "has 4 agents in each environment, profiles are"),
        (("profile", "--from-run", "RUN", "--out", "game.toml"), "environments have several agents, profiles are of"),
        (("predict", "--from-run", "RUN", "--gpus", "8"), "environments have several agents, profiles are of one"),
        (("predict", "--systems", "sync", "--scenario", SCENARIO), "with one agent, not with 4"),
        (("run", "--systems", "sb3-ppo", *OPTIONS), "takes environments with one agent, not with 4"),
        (("run", "--systems", "impala", *OPTIONS), "for one agent and not for the 4 agents of an environment"),
    ],
    ids=lambda value: " ".join(value[:3]) if isinstance(value, tuple) else "",
)
def test_what_takes_one_agent_says_so_in_a_line(here: Path, arguments: tuple[str, ...], told: str) -> None:
    """Before anything starts."""
    run = str(runs(here)[0])
    assert_refused(call(*(run if each == "RUN" else each for each in arguments)), told)


@pytest.mark.usefixtures("here")
def test_policies_are_evaluated_on_what_they_learned_from() -> None:
    """All agents play by the policy; an agent's episode is its stay."""
    typed = ("--scenario", SCENARIO, "--episodes", "8")
    ended = call("evaluate", "--out", "runs", *typed)
    assert (ended.code, ended.err) == (0, "")
    assert "length (agent steps)" in ended.out
    assert "episodes, of agents their stays: " in ended.out
    played = json.loads(call("evaluate", "--out", "runs", *typed, "--json").out)
    assert [row["system"] for row in played] == ["sync", "ver"]
    assert all(row["episodes"] >= 8 and 1 <= row["length"]["mean"] <= 20 for row in played)


@pytest.mark.usefixtures("here")
def test_a_budget_of_steps_is_of_agent_steps() -> None:
    """The dry run says so."""
    options = ("--systems", "sync", "--device", "cpu", "--scenario", SCENARIO, "--env-steps", "1000")
    ended = call("run", *options, "--out", "other", "--dry-run")
    assert (ended.code, ended.err) == (0, "")
    assert "pettingzoo/./game.py:Tag: --env-steps 1000 counts agent steps, of 4 agents each" in ended.out


def test_code_is_loaded_only_if_its_scenario_is_typed(here: Path) -> None:
    """Not because a plan names it, and not by what reads runs."""
    said = ("code that a scenario names", "rlbench run --resume --out runs", f"--scenario {SCENARIO}")
    assert_refused(call("run", "--resume", "--out", "runs"), *said)
    assert_refused(call("evaluate", "--out", "runs"), "its scenario names code")
    assert call("results", "runs").code == 0
    assert call("report", "runs", "--out", "page.html").code == 0
    assert call("list", "scenarios").code == 0
    assert not (here / "loaded").exists()
