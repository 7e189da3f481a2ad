from __future__ import annotations

from pathlib import Path

from rlbench.harness.plan.cells import Cell
from rlbench.harness.plan.options import RunOptions
from rlbench.harness.plan.planning import plan
from rlbench.harness.plan.request import complete
from rlbench.harness.run.sweep import Sweep
from tests.harness.command import assert_refused, call
from tests.systems.external.trainer_runs import write_trainer


def planned(folder: Path, scenario: str = "pointnav") -> Cell:
    """The cell of the trainer that `mine.toml` in a folder describes."""
    asked = RunOptions(systems=f"mine={folder}/mine.toml", device="cpu", scenario=scenario)
    (cell,) = plan(complete(asked)[0])
    return cell


def test_a_plan_keeps_what_the_file_said(tmp_path: Path) -> None:
    """A cell that is written and read back is the same work, whatever has become of the file; another file is other."""
    write_trainer(tmp_path, "{python} train.py")
    first = planned(tmp_path)
    text = first.to_json()
    write_trainer(tmp_path, "{python} train.py --fast")
    assert planned(tmp_path).hash() != first.hash()
    (tmp_path / "mine.toml").unlink()
    assert Cell.from_json(text).hash() == first.hash()
    assert Cell.from_json(text).configuration() == first.configuration()


def test_a_record_says_what_is_known_of_the_work(tmp_path: Path) -> None:
    """Of the run's own environments the work, not how it is learned from; of the trainer's own nothing."""
    write_trainer(tmp_path, "{python} train.py", environment="ours")
    known = planned(tmp_path, "vizdoom/basic").configuration()["scenario"]
    assert known["maps"]
    assert not {"learn", "policy", "num_envs", "rollout_steps"} & known.keys()
    write_trainer(tmp_path, "{python} train.py")
    assert planned(tmp_path).configuration()["scenario"] == {}


def test_a_folder_of_runs_starts_no_command(tmp_path: Path) -> None:
    """What a plan says is not run because it lies there: `--resume` alone is refused, and the same options go on."""
    write_trainer(tmp_path, "{python} -c pass")
    options = ("--systems", f"mine={tmp_path}/mine.toml", "--device", "cpu", "--scenario", "pointnav")
    out = ("--out", str(tmp_path / "runs"))
    asked = RunOptions(systems=options[1], device="cpu", scenario="pointnav")
    Sweep.create(tmp_path / "runs", plan(complete(asked)[0]), ["rlbench", "run", *options])
    assert_refused(call("run", "--resume", *out), "runs a command, mine, that came from a file", "the same options")
    ended = call("run", "--resume", *options, *out, "--dry-run")
    assert ended.code == 0
    assert "0 of 1 cells finished" in " ".join(ended.err.split())
