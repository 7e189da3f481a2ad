from __future__ import annotations

from pathlib import Path

import pytest

from tests.lanes import deep
from tests.systems.external.trainer_runs import run_trainer

NOT_REPORTED = {"reused": None, "discarded": None, "in_flight": None}


def test_a_trainer_of_three_lines(tmp_path: Path) -> None:
    """It ends by itself; env steps are those that its environment counted itself, and what it reports is recorded."""
    ran = run_trainer(tmp_path, "{python} {trainers}/three_lines.py 6400")
    assert (ran.code, ran.record["status"], ran.num_left) == (0, "finished", 0)
    assert int((tmp_path / "own-count").read_text()) == 6400
    assert ran.record["counters"] == {
        **NOT_REPORTED,
        "env_steps": 6400,
        "frames": 6400,
        "learned": 6400,
        "episodes": 640,
    }
    assert ran.record["figures"]["steps_counted"] == "learned"
    assert ran.record["figures"]["episode_return"] == 10
    assert ran.record["figures"]["lag"] is None
    assert "learned_is_collected" not in ran.series


def test_a_trainer_of_no_line(tmp_path: Path) -> None:
    """It takes the run's environment by an id; it is ended with the budget, and its rate is of env steps collected."""
    ran = run_trainer(tmp_path, "{python} {trainers}/zero_lines.py {env}", "--env-steps", "3000", environment="ours")
    assert (ran.code, ran.record["status"], ran.num_left) == (0, "finished", 0)
    counters, figures = ran.record["counters"], ran.record["figures"]
    assert counters["env_steps"] >= 3000
    assert {name: counters[name] for name in ("learned", *NOT_REPORTED)} == {**NOT_REPORTED, "learned": None}
    assert figures["steps_counted"] == "collected"
    assert figures["steps_per_s"] > 0
    assert list(ran.series["learned"]) == list(ran.series["env_steps"])
    assert set(ran.series["learned_is_collected"]) == {True}
    scenario = ran.record["configuration"]["scenario"]
    assert scenario["kind"] == "PointNav"
    assert "learn" not in scenario


@pytest.mark.parametrize(
    ("command", "ranks"),
    [
        ("{python} -m torch.distributed.run --nproc-per-node={gpus} {trainers}/two_ranks.py", "its own"),
        pytest.param("{python} {trainers}/two_ranks.py", "ours", marks=deep),  # ours, but for ever, is below
    ],
)
def test_a_trainer_of_two_ranks(tmp_path: Path, command: str, ranks: str) -> None:
    """With torchrun, or started once for each rank: each rank's counts are its own, and they are conserved."""
    ran = run_trainer(tmp_path, command, "--gpus", "2", "--seconds", "60", ranks=ranks)
    assert (ran.code, ran.record["status"], ran.num_left) == (0, "finished", 0), ran.reason
    own = [(tmp_path / f"own-count-{rank}").read_text() for rank in range(2)]
    assert own == ["600 2", "630 2"]
    counters = ran.record["counters"]
    assert (counters["env_steps"], counters["learned"], counters["discarded"], counters["in_flight"]) == (
        1230,
        1230,
        0,
        0,
    )
    assert counters["reused"] is None
    assert ran.record["figures"]["lag"] == {"mean": 0.0, "max": 0.0}
    assert set(ran.series["rank"]) == {0, 1}


def test_ranks_are_ended_together(tmp_path: Path) -> None:
    """When the budget is spent, all ranks are ended, and what breaks off between them is no failure."""
    command = "{python} {trainers}/two_ranks.py forever"
    ran = run_trainer(tmp_path, command, "--gpus", "2", "--iterations", "40")
    assert (ran.code, ran.record["status"], ran.num_left) == (0, "finished", 0), ran.reason
    assert ran.record["counters"]["in_flight"] is None, "nobody knows what was in flight when it was ended"
    assert ran.record["figures"]["time_shares"]["communicate"] > 0


@deep
def test_ranks_of_its_own_are_ended_together(tmp_path: Path) -> None:
    """The budget ends torchrun and its ranks, and each of our ranks has what its counterpart had counted in the end."""
    command = "{python} -m torch.distributed.run --nproc-per-node={gpus} {trainers}/two_ranks.py forever"
    ran = run_trainer(tmp_path, command, "--gpus", "2", "--env-steps", "1500", ranks="its own")
    assert (ran.code, ran.record["status"], ran.num_left) == (0, "finished", 0), ran.reason
    counters = ran.record["counters"]
    assert counters["learned"] >= 1500
    assert counters["in_flight"] is None
    assert 0 <= counters["env_steps"] - counters["learned"] <= 41
