from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.harness.command import launch

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_the_example_runs_as_documented(tmp_path: Path) -> None:
    """PPO in one file trains beside a system of ours; its three marked lines are all that name rlbench."""
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    ended = launch(
        *("run", "--systems", "ppo=examples/ppo.toml", "--device", "cpu", "--scenario", "pointnav:num_envs=4"),
        *("--env-steps", "4000", "--out", "runs"),
        folder=tmp_path,
    )
    assert ended.code == 0, ended.out + ended.err
    (path,) = tmp_path.glob("runs/*/*/run.json")
    record = json.loads(path.read_text())
    assert record["status"] == "finished"
    counters, num_learned = record["counters"], 4 * 64
    assert counters["learned"] >= 4000
    assert counters["learned"] % num_learned == 0
    assert 0 <= counters["env_steps"] - counters["learned"] <= num_learned
    assert record["figures"]["lag"] == {"mean": 0.0, "max": 0.0}
    assert record["figures"]["episode_return"] > 5
    lines = [line for line in (EXAMPLES / "ppo.py").read_text().splitlines() if "rlbench_client" in line]
    assert [line.partition("  # ")[2] for line in lines] == [f"rlbench, line {number}" for number in (1, 2, 3)]
