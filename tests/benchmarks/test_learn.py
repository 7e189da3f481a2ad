from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from benchmarks.learn import TASKS, Trainings, main, with_settings
from benchmarks.learn_table import Task, Trained
from rlbench.results.records.schema import Counters, Status
from tests.results.made_records import make_record, write_run_folder

TASK = Task(scenario="pointnav", until="success>=0.9", seeds=(0, 1))


def trainings(out: Path, system: str = "ver:preempt=never") -> Trainings:
    """Of one system."""
    return Trainings(system=system, task=TASK, limit_s=600, out=out)


def leave_run(
    folder: Path,
    seed: int,
    success: list[float | None],
    *,
    name: str,
    status: Status = "finished",
    metric: str = "success",
) -> None:
    """Leaves a run of 1,500 env steps whose iterations, of 2 s each, ended with these means."""
    record = make_record(
        "ver",
        status=status,
        reason=None if status == "finished" else "killed",
        cell={"seed": seed},
        counters=Counters(env_steps=1500, learned=1500),
        id=name,
    )
    run_folder = write_run_folder(folder / "sweep", record)
    rows = [
        {"rank": 0, "iteration": i, "begin_s": 2.0 * i, "end_s": 2.0 * (i + 1), "learned": 500, metric: mean}
        for i, mean in enumerate(success)
    ]
    pd.DataFrame(rows).to_parquet(run_folder / "series.parquet")


def test_runs_are_reduced_to_when_they_ended_and_how(tmp_path: Path) -> None:
    """The last iteration says whether the threshold was reached; seconds are those of training."""
    own = trainings(tmp_path)
    leave_run(own.folder, 0, [None, 0.5, 0.9], name="a")
    leave_run(own.folder, 1, [None, 0.95, 0.89, 0.7], name="b")
    assert own.results() == [
        Trained(system=own.system, seed=0, reached=True, env_steps=1500, seconds=6),
        Trained(system=own.system, seed=1, reached=False, env_steps=1500, seconds=8),
    ]


def test_a_run_without_enough_episodes_has_not_reached_anything(tmp_path: Path) -> None:
    """There are no means before 100 episodes have ended."""
    own = trainings(tmp_path)
    leave_run(own.folder, 0, [None, None], name="a")
    assert [result.reached for result in own.results()] == [False]


def test_a_run_that_goes_on_is_reduced_to_when_it_reached_the_threshold(tmp_path: Path) -> None:
    """Of a system whose curve is compared the first iteration at the threshold counts, not the last one."""
    task = replace(TASK, env_steps=1500, peer="sb3-ppo", peer_scenario="pointnav:num_envs=1")
    own = Trainings(system="sync", task=task, limit_s=600, out=tmp_path)
    leave_run(own.folder, 0, [None, 0.95, 0.7], name="a")
    leave_run(own.folder, 1, [None, 0.5, 0.7], name="b")
    assert own.results() == [
        Trained(system="sync", seed=0, reached=True, env_steps=1000, seconds=4),
        Trained(system="sync", seed=1, reached=False, env_steps=1500, seconds=6),
    ]
    assert [list(curve.values) for curve in own.curves()] == [[0.95, 0.7], [0.5, 0.7]]


def test_systems_whose_curves_are_compared_are_not_ended_early(tmp_path: Path) -> None:
    """Only the others have an --until; the library's has the scenario with its published settings."""
    task = replace(TASK, env_steps=1500, peer="sb3-ppo", peer_scenario="pointnav:num_envs=1")
    commands = {
        system: Trainings(system=system, task=task, limit_s=600, out=tmp_path).command
        for system in ("sync", "sync:learn.epochs=3", "sb3-ppo", "ver")
    }
    assert {system for system, command in commands.items() if "--until" in command} == {"ver"}
    assert {system for system, command in commands.items() if "pointnav:num_envs=1" in command} == {"sb3-ppo"}


@pytest.mark.parametrize("asked", ["all", "sb3-ppo", "sync:learn.epochs=3,sb3-ppo"])
def test_the_compared_system_is_the_one_that_was_asked_for(
    asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has the settings that it was asked for with, and else those that it needs for the task."""
    own = "sync:learn.epochs=3" if "epochs" in asked else with_settings("sync", "halfcheetah")
    for system in (own, "sb3-ppo"):
        folder = Trainings(system=system, task=TASKS["halfcheetah"], limit_s=9, out=tmp_path).folder
        for seed in (0, 1):
            leave_run(folder, seed, [None, 1500, 1500 + 40 * seed], name=str(seed), metric="return")
    words = ["learn", "--tasks", "halfcheetah", "--systems", asked, "--seconds", "9", "--out", str(tmp_path), "--table"]
    monkeypatch.setattr("sys.argv", words)
    assert main() == 0
    assert "sync 1,510 (1,500, 1,520), sb3-ppo 1,510 (1,500, 1,520); difference +0" in capsys.readouterr().out


def test_what_is_missing_is_run_again(tmp_path: Path) -> None:
    """Failed runs do not count, so their seeds are still to be run; the sweep that is there is resumed."""
    own = trainings(tmp_path)
    assert "--resume" not in own.command
    leave_run(own.folder, 0, [0.9], name="a")
    leave_run(own.folder, 1, [0.9], name="b", status="failed")
    (own.folder / "sweep" / "sweep.json").touch()
    assert not own.is_complete
    assert own.command[-1] == "--resume"
    leave_run(own.folder, 1, [0.9], name="c")
    assert own.is_complete


def test_other_settings_have_other_folders(tmp_path: Path) -> None:
    """A system with settings, and another limit, are not taken for each other."""
    folders = {
        trainings(tmp_path).folder,
        trainings(tmp_path, "ver").folder,
        Trainings(system="ver", task=TASK, limit_s=60, out=tmp_path).folder,
        *(Trainings(system="ver", task=task, limit_s=60, out=tmp_path).folder for task in TASKS.values()),
    }
    assert len(folders) == 2 + len(TASKS) + (TASKS["pointnav"].until != TASK.until)


@pytest.mark.parametrize("task", TASKS.values())
def test_thresholds_are_from_below(task: Task) -> None:
    """The tables speak of reaching a threshold, so every one of them is a >=."""
    assert ">=" in task.until
