from __future__ import annotations

from pathlib import Path

import pytest

from harness.budget import Limits
from harness.meter import LANE_PREFIX
from tests.systems.engine.ranks import run_cell


@pytest.mark.parametrize("system", ["htsrl", "appo"])
def test_the_time_of_the_thread_that_samples_is_accounted_for(system: str, tmp_path: Path) -> None:
    """The learner takes most of the time: the sampler's waiting for it is in the series, and nearly all else too."""
    settings = {"learn.epochs": "40"} | ({"rollout.batch": "64"} if system == "appo" else {})
    run = run_cell(
        tmp_path,
        system,
        "pointnav",
        {"num_envs": "2", "rollout_steps": "32"},
        system=system,
        system_settings=settings,
        limits=Limits(iterations=6),
    )
    rows = run.rows(0)[2:]
    lasted = sum(row["end_s"] - row["begin_s"] for row in rows)
    lane = {name: sum(row[name] for row in rows) for name in rows[0] if name.startswith(LANE_PREFIX)}
    assert sum(lane.values()) == pytest.approx(lasted, rel=0.1)
    assert lane[f"{LANE_PREFIX}wait:learner"] > 0.4 * lasted
