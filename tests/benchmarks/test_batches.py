from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import batches
from rlbench.harness.contract.envs import envs_per_batch
from rlbench.harness.plan.overrides import split_scenario, split_settings
from rlbench.harness.plan.registry import load_scenario, load_system
from rlbench.scenarios.atari import FAMILY


@pytest.mark.parametrize(
    ("system", "scenario", "size"),
    [(batches.CARTPOLE_SYSTEM, batches.CARTPOLE, 1024), (batches.PPO_SYSTEM, batches.PPO_SCENARIO, 8)],
)
def test_the_systems_run_the_scenarios_in_one_batch(system: str, scenario: str, size: int) -> None:
    """What the benchmark runs is no usage error, and its environments are one batch."""
    name, settings = split_settings(system, "system")
    work_name, work_settings = split_scenario(scenario, "scenario")
    work = load_scenario(work_name, "homogeneous", work_settings)
    checked: Any = load_system(name, settings)
    assert envs_per_batch(checked.check(work)) == work.num_envs == size


def test_the_time_of_learning_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Collecting for a quarter of the time is four times as fast as the run."""
    figures = SimpleNamespace(time_shares={"learn": 0.75, "infer": 0.2, "simulate": 0.05})
    run = SimpleNamespace(record=SimpleNamespace(figures=figures))
    monkeypatch.setattr(batches, "learned_steps_per_s", lambda _: 100.0)
    monkeypatch.setattr("benchmarks.batches.store.read_runs", lambda _: [run])
    assert batches.collected_per_s(tmp_path) == 400.0


def test_both_sides_count_what_they_step(tmp_path: Path) -> None:
    """With our counting and without, each call is an env step of all environments."""
    scenario = replace(FAMILY.make("breakout", "homogeneous"), vector="native", num_envs=3, batch=3)
    with ExitStack() as opened:
        for step, count in (batches._counted(scenario, tmp_path, opened), batches._bare(scenario, opened)):
            for _ in range(4):
                step(np.zeros(3, np.int64))
            assert count() == 12
