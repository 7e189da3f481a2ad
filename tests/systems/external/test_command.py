from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.lanes import deep
from tests.systems.external.trainer_runs import Ran, run_trainer, run_trainers

EXAMPLES = Path(__file__).parents[3] / "examples"
TORCHRUN = "{python} -m torch.distributed.run --nproc-per-node={gpus}"
NOT_REPORTED = {"reused": None, "discarded": None, "in_flight": None}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """One sweep of trainers of one rank; its budget is more env steps than the first plays before it ends."""
    folder = tmp_path_factory.mktemp("alone")
    shutil.copytree(EXAMPLES, folder / "examples")
    trainers: dict[str, Mapping[str, Any] | Path] = {
        "three-lines": {"command": "{python} {trainers}/three_lines.py 3200"},
        "zero-lines": {"command": "{python} {trainers}/zero_lines.py {env}", "environment": "ours"},
        "ppo": Path("examples/ppo.toml"),
    }
    return run_trainers(folder, trainers, "--env-steps", "12000", scenario="pointnav:num_envs=4")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """One sweep of trainers of two ranks; its budget is more iterations than the first has before it ends."""
    trainers = {
        "its-own": {"command": f"{TORCHRUN} {{trainers}}/two_ranks.py", "ranks": "its own"},
        "forever": {"command": "{python} {trainers}/two_ranks.py forever"},
    }
    return run_trainers(tmp_path_factory.mktemp("pairs"), trainers, "--gpus", "2", "--iterations", "40")


def test_a_trainer_of_three_lines(alone: dict[str, Ran]) -> None:
    """It ends by itself; env steps are those that its environment counted itself, and what it reports is recorded."""
    ran = alone["three-lines"]
    assert (ran.code, ran.record["status"], ran.num_left) == (0, "finished", 0)
    assert int((ran.trainer_folder / "own-count").read_text()) == 3200
    assert ran.record["counters"] == {
        **NOT_REPORTED,
        "env_steps": 3200,
        "agent_steps": None,
        "frames": 3200,
        "learned": 3200,
        "episodes": 320,
    }
    assert ran.record["figures"]["steps_counted"] == "learned"
    assert ran.record["figures"]["episode_return"] == 10
    assert ran.record["figures"]["lag"] is None
    assert "learned_is_collected" not in ran.series


def test_a_trainer_of_no_line(alone: dict[str, Ran]) -> None:
    """It takes the run's environment by an id; it is ended with the budget, and its rate is of env steps collected."""
    ran = alone["zero-lines"]
    assert (ran.code, ran.record["status"], ran.num_left) == (0, "finished", 0)
    counters, figures = ran.record["counters"], ran.record["figures"]
    assert counters["env_steps"] >= 4000
    assert {name: counters[name] for name in ("learned", *NOT_REPORTED)} == {**NOT_REPORTED, "learned": None}
    assert figures["steps_counted"] == "collected"
    assert figures["steps_per_s"] > 0
    assert list(ran.series["learned"]) == list(ran.series["env_steps"])
    assert set(ran.series["learned_is_collected"]) == {True}
    scenario = ran.record["configuration"]["scenario"]
    assert scenario["kind"] == "PointNav"
    assert "learn" not in scenario


def test_the_example_runs_as_documented(alone: dict[str, Ran]) -> None:
    """PPO in one file trains beside a system of ours; its three marked lines are all that name rlbench."""
    ran = alone["ppo"]
    assert (ran.code, ran.record["status"]) == (0, "finished"), ran.reason
    counters, num_learned = ran.record["counters"], 4 * 64
    assert counters["learned"] >= 4000
    assert counters["learned"] % num_learned == 0
    assert 0 <= counters["env_steps"] - counters["learned"] <= num_learned
    assert ran.record["figures"]["lag"] == {"mean": 0.0, "max": 0.0}
    assert ran.record["figures"]["episode_return"] > 5
    lines = [line for line in (EXAMPLES / "ppo.py").read_text().splitlines() if "rlbench_client" in line]
    assert [line.partition("  # ")[2] for line in lines] == [f"rlbench, line {number}" for number in (1, 2, 3)]


def assert_two_ranks(ran: Ran) -> None:
    """Each rank's counts are its own, and they are conserved."""
    assert (ran.code, ran.record["status"], ran.num_left) == (0, "finished", 0), ran.reason
    own = [(ran.trainer_folder / f"own-count-{rank}").read_text() for rank in range(2)]
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


def test_a_trainer_of_two_ranks(pairs: dict[str, Ran]) -> None:
    """With torchrun: each rank's counts are its own, and they are conserved."""
    assert_two_ranks(pairs["its-own"])


@deep  # in the other lane they go on for ever, below
def test_a_trainer_that_is_started_for_each_rank(tmp_path: Path) -> None:
    """The same where each of our ranks starts the command."""
    assert_two_ranks(run_trainer(tmp_path, "{python} {trainers}/two_ranks.py", "--gpus", "2", "--seconds", "60"))


def test_ranks_are_ended_together(pairs: dict[str, Ran]) -> None:
    """When the budget is spent, all ranks are ended, and what breaks off between them is no failure."""
    ran = pairs["forever"]
    assert (ran.code, ran.record["status"], ran.num_left) == (0, "finished", 0), ran.reason
    assert ran.record["counters"]["in_flight"] is None, "nobody knows what was in flight when it was ended"
    assert ran.record["figures"]["time_shares"]["communicate"] > 0


@deep
def test_ranks_of_its_own_are_ended_together(tmp_path: Path) -> None:
    """The budget ends torchrun and its ranks, and each of our ranks has what its counterpart had counted in the end."""
    command = f"{TORCHRUN} {{trainers}}/two_ranks.py forever"
    ran = run_trainer(tmp_path, command, "--gpus", "2", "--env-steps", "1500", ranks="its own")
    assert (ran.code, ran.record["status"], ran.num_left) == (0, "finished", 0), ran.reason
    counters = ran.record["counters"]
    assert counters["learned"] >= 1500
    assert counters["in_flight"] is None
    assert 0 <= counters["env_steps"] - counters["learned"] <= 41
