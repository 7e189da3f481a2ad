from __future__ import annotations

from pathlib import Path

from harness.plan import Cell, plan
from harness.request import Asked, complete
from tests.systems.external.trainer_runs import write_trainer


def planned(folder: Path, scenario: str = "pointnav") -> Cell:
    """The cell of the trainer that `mine.toml` in a folder describes."""
    asked = Asked(systems=f"mine={folder}/mine.toml", device="cpu", scenario=scenario)
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
