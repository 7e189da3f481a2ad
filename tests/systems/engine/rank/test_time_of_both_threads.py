from __future__ import annotations

from pathlib import Path

import pytest

from rlbench.harness.contract.budget import Limits
from rlbench.harness.metering.meter import LANE_PREFIX
from tests.systems.model.agreement import cell_of
from tests.systems.model.profiles import BUSY
from tests.systems.model.virtual_engine import run_virtually

SLOW = BUSY | {"gpu": BUSY["gpu"] | {"prepare_ms": 1e4}}


@pytest.mark.parametrize("system", ["htsrl", "appo:rollout.num_steps=8:rollout.batch=64"])
def test_the_time_of_the_thread_that_samples_is_accounted_for(system: str, tmp_path: Path) -> None:
    """The learner takes most of the time: the sampler's waiting for it is in the series, and all else too.

    On virtual time: the engine's two threads, and a clock on which nothing but what the profile says takes any.
    """
    run = run_virtually(tmp_path / "run", cell_of(tmp_path, system, SLOW, num_ranks=1, limits=Limits(iterations=6)))
    rows = run.rows(0)[2:]
    lasted = sum(row["end_s"] - row["begin_s"] for row in rows)
    lane = {name: sum(row[name] for row in rows) for name in rows[0] if name.startswith(LANE_PREFIX)}
    assert sum(lane.values()) == pytest.approx(lasted, rel=1e-6)
    assert lane[f"{LANE_PREFIX}wait:learner"] > 0.4 * lasted
