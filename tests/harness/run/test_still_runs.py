"""Runs of still work, as `rlbench run` makes them."""

from __future__ import annotations

from pathlib import Path

from rlbench.harness.run.sweep import Sweep
from rlbench.results.records import store
from rlbench.results.records.work import compare_work, read_work
from tests.harness.command import call


def test_two_systems_do_the_same_work(tmp_path: Path) -> None:
    """The records of a sweep tell of each environment what it did, up to the steps that both systems took."""
    options = ("--gpus", "1", "--device", "cpu", "--scenario", "gym/CartPole-v1:num_envs=3", "--iterations", "3")
    ended = call("run", "--systems", "sync,ver", "--protocol", "still", *options, "--out", str(tmp_path))
    assert ended.code == 0, ended.err
    one, other = store.read_runs(Sweep.newest(tmp_path).folder)
    compared = compare_work(read_work(one.path), read_work(other.path))
    assert compared is not None
    assert (compared.num_same, compared.different) == (3, [])
    steps = [dict.fromkeys(zip(*read_work(run.path)[:2].tolist(), strict=True)) for run in (one, other)]
    common = [max(taken for env, taken in steps[0].keys() & steps[1].keys() if env == each) for each in range(3)]
    assert compared.least_steps == min(common) > 1
    assert all(not list(run.path.glob("work-*")) for run in (one, other))
