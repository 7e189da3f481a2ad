"""Our Python interface and the trainer's client, in a project that has packages named as our folders are."""

from __future__ import annotations

import json
from pathlib import Path

from tests.harness.command import launch
from tests.harness.sweeps import write_sweep
from tests.rlbench.theirs import CHECK, make_project, run_python

INTERFACE = f"""
{CHECK}
import rlbench

before = rlbench.load("made")
ran = rlbench.run(
    "sync", scenario="emulated/open-fridge:num_envs=2:rollout_steps=8", time_scale=0.02, device="emulated", iterations=2
)
print(len(before), list(ran.runs.status), rlbench.report([before.folders[0], "rlbench-runs"]).name)
{CHECK}
"""
TRAINER = f"""
{CHECK}
import rlbench_client

env = rlbench_client.make_env()
env.reset()
for _ in range(20):
    for _ in range(50):
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            env.reset()
    rlbench_client.learned(50)
    rlbench_client.iteration()
{CHECK}
"""


def test_the_interface(tmp_path: Path) -> None:
    """It loads, runs and reports; their packages are theirs before and after."""
    write_sweep(tmp_path / "made")
    printed = run_python(INTERFACE, tmp_path, make_project(tmp_path / "project"))
    assert printed.splitlines()[-1] == "4 ['finished'] rlbench-report.html"


def test_the_client_of_a_trainer(tmp_path: Path) -> None:
    """A trainer of such a project takes the run's own environments: those are made by our packages, beside theirs."""
    project = make_project(tmp_path / "project")
    (project / "train.py").write_text(TRAINER, encoding="utf-8")
    trainer = {"command": "{python} train.py", "environment": "ours"}
    (project / "trainer.toml").write_text("\n".join(f"{key} = {json.dumps(value)}" for key, value in trainer.items()))
    run = ("run", "--systems", "mine=./trainer.toml", "--scenario", "gym/CartPole-v1:num_envs=1", "--device", "cpu")
    ended = launch(*run, "--seconds", "60", folder=project, environment={"PYTHONPATH": str(project)})
    assert ended.code == 0, ended.err
    (record,) = (json.loads(path.read_bytes()) for path in project.rglob("run.json"))
    assert (record["status"], record["counters"]["learned"]) == ("finished", 1000)
