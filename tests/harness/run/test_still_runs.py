"""Runs of still work, as `rlbench run` makes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlbench.harness.run.sweep import Sweep
from rlbench.results.records import store
from rlbench.results.records.work import compare_work, read_work
from tests.harness.command import call
from tests.systems.external.trainer_runs import script, write_trainer

ACTS = """
import rlbench_client

envs = [rlbench_client.make_env() for _ in range(4)]
for env in envs:
    env.reset(seed=1)
for _ in range(4):
    for _ in range(40):
        for env in envs:
            *_, terminated, truncated, _ = env.step(1)
            if terminated or truncated:
                env.reset(seed=1)
    rlbench_client.iteration()
"""
"""A trainer with an environment more than the scenario, which always acts alike and has its own seeds."""


@pytest.mark.parametrize("scenario", ["gym/CartPole-v1", "pointnav", "atari", "vizdoom"])
def test_two_systems_do_the_same_work(scenario: str, tmp_path: Path) -> None:
    """The records of a sweep tell of each environment what it did, up to the steps that both systems took."""
    asked = f"{scenario}:num_envs=4:rollout_steps=32"
    options = ("--gpus", "1", "--device", "cpu", "--scenario", asked, "--iterations", "3")
    ended = call("run", "--systems", "sync,ver", "--protocol", "still", *options, "--out", str(tmp_path))
    assert ended.code == 0, ended.err
    one, other = store.read_runs(Sweep.newest(tmp_path).folder)
    compared = compare_work(read_work(one.path), read_work(other.path))
    assert compared is not None
    assert (compared.num_same, compared.different) == (4, [])
    steps = [dict.fromkeys(zip(*read_work(run.path)[:2].tolist(), strict=True)) for run in (one, other)]
    common = [max(taken for env, taken in steps[0].keys() & steps[1].keys() if env == each) for each in range(4)]
    assert compared.least_steps == min(common) > 1
    assert all(not list(run.path.glob("work-*")) for run in (one, other))


def test_a_trainer_does_the_same_work_in_rlbenchs_environments(tmp_path: Path) -> None:
    """Whatever it acts, and whatever seeds it gives: its environments do what those of our own systems do."""
    write_trainer(tmp_path, script(ACTS), environment="ours")
    options = ("--gpus", "1", "--device", "cpu", "--scenario", "gym/CartPole-v1:num_envs=3", "--iterations", "3")
    systems = f"sync,mine={tmp_path / 'mine.toml'}"
    ended = call("run", "--systems", systems, "--protocol", "still", *options, "--out", str(tmp_path))
    assert ended.code == 0, ended.err
    one, other = store.read_runs(Sweep.newest(tmp_path).folder)
    compared = compare_work(read_work(one.path), read_work(other.path))
    assert compared is not None
    assert (compared.num_same, compared.different) == (3, [])
    assert compared.least_steps >= 64
