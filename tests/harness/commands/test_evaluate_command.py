from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from rlbench.harness.commands.evaluate import EVALUATE_ERR, EVALUATE_OUT, METRICS
from rlbench.harness.plan import registry
from rlbench.harness.processes.raised import in_a_line
from rlbench.harness.run.sweep import PLAN_FILE
from rlbench.results.records.store import write_run
from tests.harness.command import assert_refused, call, launch
from tests.results.made_records import make_record, write_series

GOSSIP = (
    *("--systems", "gossip", "--gpus", "2", "--device", "cpu", "--iterations", "2"),
    *("--scenario", "emulated/open-fridge:num_envs=2:rollout_steps=8", "--time-scale", "0.02"),
)
STEPS_OF_RETURN_1 = 200
"""Right actions of `emulated/open-fridge` for a return of 1."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run of gossip on two CPU ranks."""
    out = tmp_path_factory.mktemp("evaluate")
    ended = launch("run", *GOSSIP, "--out", str(out), folder=out)
    assert ended.code == 0, ended.out + ended.err
    (folder,) = out.glob("*/001-*")
    return folder


@pytest.fixture(scope="module")
def rows(run: Path) -> list[dict[str, Any]]:
    """What `evaluate --json` says of the newest sweep."""
    ended = call("evaluate", "--out", str(run.parents[1]), "--episodes", "3", "--json")
    assert ended.code == 0, ended.err
    document: list[dict[str, Any]] = json.loads(ended.out)
    return document


def leave_run(folder: Path, system: str = "sync", **fields: Any) -> Path:
    """A run folder with a record and a series, and no policy."""
    folder.mkdir(parents=True)
    write_run(folder, make_record(system, **fields))
    write_series(folder, [(0, 0, 0.0, 1.0, 32)], lost=False)
    return folder


LOUD = """
import ctypes, os, gymnasium, numpy as np

class Loud(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        os.write(2, b"SSD Load Failure\\n")
        ctypes.CDLL(None).puts(b"held back by C")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action):
        return np.zeros(3, np.float32), 1.0, True, False, {}
"""


def test_what_simulators_print_goes_to_files_of_the_run(tmp_path: Path) -> None:
    """From C too: stdout has the results alone, and stderr nothing of it; a later evaluation replaces the files."""
    (tmp_path / "mine.py").write_text(LOUD)
    scenario = ("--scenario", "gym/./mine.py:Loud:num_envs=2:rollout_steps=8")
    options = ("--systems", "sync", "--device", "cpu", *scenario, "--iterations", "1", "--out", "runs")
    ended = launch("run", *options, folder=tmp_path)
    assert ended.code == 0, ended.err
    for _ in range(2):
        played = launch("evaluate", "--out", "runs", *scenario, "--episodes", "2", "--json", folder=tmp_path)
        assert played.code == 0, played.err
        assert json.loads(played.out)[0]["return"]["mean"] == 1
        assert "SSD" not in played.err
        (run,) = tmp_path.glob("runs/*/001-*")
        assert set((run / EVALUATE_ERR).read_text().splitlines()) == {"SSD Load Failure"}
        assert set((run / EVALUATE_OUT).read_text().splitlines()) == {"held back by C"}
        assert (run / EVALUATE_ERR).read_text().count("SSD") < 10


def test_gossip_leaves_the_mean_and_one_rank(run: Path, rows: list[dict[str, Any]]) -> None:
    """A run of two ranks has a row for the mean of both and one for rank 0, whose weights are others."""
    assert [row["policy"] for row in rows] == ["mean of 2 ranks", "rank 0 alone"]
    assert [Path(row["file"]).name for row in rows] == ["policy.pt", "policy-rank0.pt"]
    assert {row["run"] for row in rows} == {run.name}
    mean, alone = (torch.load(row["file"]) for row in rows)
    assert mean.keys() == alone.keys()
    assert not all(torch.equal(mean[name], alone[name]) for name in mean)


def test_rows_have_means_and_standard_errors(rows: list[dict[str, Any]]) -> None:
    """Two environments play 3 episodes as 2 each; returns are of raw rewards; what there is not is null."""
    for row in rows:
        assert row["episodes"] == 4
        assert 0 <= row["success"]["mean"] <= 1
        assert 0 < row["return"]["mean"] <= row["length"]["mean"] / STEPS_OF_RETURN_1
        assert row["return"]["standard_error"] > 0
        assert row["spl"] == {"mean": None, "standard_error": None}


def test_the_newest_sweep_is_what_is_evaluated_without_names(run: Path, rows: list[dict[str, Any]]) -> None:
    """Naming the only run gives the same rows, figures included."""
    assert json.loads(call("evaluate", str(run), "--episodes", "3", "--json").out) == rows


@pytest.mark.parametrize("width", [80, 160])
def test_the_table_fits_its_width(run: Path, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """What rows share stands above the table; each row says whose weights they are and has every metric."""
    monkeypatch.setenv("COLUMNS", str(width))
    shared, *lines = call("evaluate", str(run), "--episodes", "1").out.splitlines()
    assert shared.startswith("scenario emulated/open-fridge")
    assert max(len(line.rstrip()) for line in lines) <= width
    text = "\n".join(lines)
    assert all(metric in text for metric in METRICS)
    assert ("mean of 2 ranks" in text and "rank 0 alone" in text) or width == 80
    assert "n/a" in text


def test_an_earlier_run_of_one_policy_has_one_row(run: Path, tmp_path: Path) -> None:
    """Where there is no second file, there is no second row."""
    earlier = tmp_path / run.name
    shutil.copytree(run, earlier)
    (earlier / "policy-rank0.pt").unlink()
    ended = call("evaluate", str(earlier), "--episodes", "1", "--json")
    assert [row["policy"] for row in json.loads(ended.out)] == ["mean of 2 ranks"]


def test_a_lost_rank_is_not_in_the_mean(run: Path, tmp_path: Path) -> None:
    """The mean is called after the ranks that lasted, as the series has them."""
    lost = tmp_path / run.name
    shutil.copytree(run, lost)
    series = pd.read_parquet(lost / "series.parquet")
    series.assign(lost=series["rank"] == 1).to_parquet(lost / "series.parquet")
    ended = call("evaluate", str(lost), "--episodes", "1", "--json")
    assert [row["policy"] for row in json.loads(ended.out)] == ["final", "rank 0 alone"]


@pytest.mark.parametrize("episodes", ["0", "-3"])
def test_no_episodes(run: Path, episodes: str) -> None:
    """There must be at least one."""
    assert_refused(call("evaluate", str(run), "--episodes", episodes), f"--episodes {episodes}: must be at least 1;")


def test_what_is_no_run_folder(tmp_path: Path) -> None:
    """A folder that is not there, and one that holds no record, are refused, with what to give instead."""
    assert_refused(
        call("evaluate", str(tmp_path / "nope")), "nope: is not there; give the folders that hold a run.json"
    )
    assert_refused(call("evaluate", str(tmp_path)), "is no run folder; give the folders that hold a run.json")


def test_a_run_that_did_not_finish(tmp_path: Path) -> None:
    """Its status is said, and how to run it again."""
    folder = leave_run(tmp_path / "run", status="failed", reason="it broke")
    assert_refused(call("evaluate", str(folder)), "run: the run is failed, it must be finished;", "--resume")


def test_a_run_without_a_policy(tmp_path: Path) -> None:
    """The file that is missing is named, and nothing is played before that."""
    assert_refused(call("evaluate", str(leave_run(tmp_path / "run"))), "run: holds no policy.pt; run that cell again")


def test_a_prediction(tmp_path: Path) -> None:
    """It has no policy, whatever is run again; what to name instead is said."""
    folder = leave_run(tmp_path / "run", cell={"device": "predicted"})
    assert_refused(call("evaluate", str(folder)), "run: a model predicted it, so it has no policy; name runs of")


def test_a_system_that_cannot_be_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system of somebody else's need not have the methods; that is said with their names."""
    folder = leave_run(tmp_path / "run", system="theirs")
    monkeypatch.setattr(registry, "load_system", lambda _name, _settings: object())
    assert_refused(call("evaluate", str(folder)), "system theirs cannot be evaluated", "`policies` and `evaluate`")


def test_nothing_to_evaluate(tmp_path: Path) -> None:
    """A folder without a sweep, and a sweep without a finished run, are refused, with what to do."""
    assert_refused(call("evaluate", "--out", str(tmp_path)), "holds no sweep; name folders of runs")
    sweep = tmp_path / "20260101-000000-abcd"
    sweep.mkdir()
    (sweep / PLAN_FILE).write_text(json.dumps({"command": ["rlbench"], "cells": []}))
    assert_refused(call("evaluate", "--out", str(tmp_path)), "holds no finished run; `rlbench run --resume --out")


def test_a_damaged_sibling_is_a_warning(run: Path, tmp_path: Path) -> None:
    """The other runs of the newest sweep are evaluated; stdout is what it is without."""
    sweep = tmp_path / run.parent.name
    shutil.copytree(run.parent, sweep)
    damaged = sweep / "002-damaged"
    damaged.mkdir()
    (damaged / "run.json").write_text("{")
    ended = call("evaluate", "--out", str(tmp_path), "--episodes", "1", "--json")
    assert ended.code == 0
    assert [row["run"] for row in json.loads(ended.out)] == [run.name] * 2
    assert ended.err.startswith(f"rlbench: warning: {damaged}")
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("error", [LookupError("no wall"), SystemExit("bye"), BrokenPipeError()], ids=repr)
def test_what_an_environment_raises_is_a_line_with_the_run(
    run: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """Whatever it is, the exit code is that of an error."""

    def fail(*_: object) -> None:
        raise error

    scenario = registry.load_scenario("emulated/open-fridge", "homogeneous", {})
    monkeypatch.setattr(type(scenario), "make_env", fail)
    expected = f"rlbench: environment 0 of {run.name} raised {in_a_line(error)}\n"
    assert_refused(call("evaluate", str(run), "--episodes", "1"), expected)


def test_whatever_a_system_raises_is_a_line_with_the_run(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system of somebody else's that cannot say whose weights there are, or fails to play."""

    def fail(*_: object) -> None:
        raise LookupError("no wall")

    system = type(registry.load_system("gossip", {}))
    for call_of_system in ("evaluate", "policies"):
        monkeypatch.setattr(system, call_of_system, fail)
        assert_refused(call("evaluate", str(run), "--episodes", "1"), run.name, "raised LookupError: no wall")
