"""Where two systems must agree, and lags that are known beforehand.

`test_determinism.py` has the equality of `ddppo` with p = 1 and `sync`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.systems.engine.cells import make_cell, profile
from tests.systems.engine.ranks import same_weights
from tests.systems.engine.recorded import Recorded, run_recorded

NUM_STEPS, NUM_ITERATIONS = 16, 4
ONE = f"num_envs=1:rollout_steps={NUM_STEPS}:learn.num_minibatches=1"
"""One environment, and one mini-batch: the systems split differently."""


def run_both(folder: Path, scenario: str, device: str, iterations: int) -> tuple[Recorded, Recorded]:
    """`sync` and `ver` with one environment."""
    sync, ver = (
        run_recorded(folder / system, make_cell(system, f"{scenario}:{ONE}", iterations=iterations, device=device))
        for system in ("sync", "ver")
    )
    return sync, ver


def assert_same_experience(run: Recorded, other: Recorded, num_samples: int) -> None:
    """Every column of every sample equal to the bit, in the same order, where it has a meaning."""
    ours, theirs = run.samples(), other.samples()
    assert ours.keys() == theirs.keys()
    over = ours["terminated"] | ours["truncated"]
    last = np.arange(num_samples) % NUM_STEPS == NUM_STEPS - 1
    read = {"episode": over, "bootstrap": ours["truncated"] | (last & ~over)}
    for name in ours:
        which = read.get(name, np.ones(num_samples, dtype=np.bool_))
        assert ours[name][which].tobytes() == theirs[name][which].tobytes(), name


@pytest.mark.parametrize("device", ["cpu", "emulated"])
def test_ver_with_one_environment_is_sync(tmp_path: Path, device: str) -> None:
    """`ver` with one environment collects what `sync` does, to the bit, and has the same weights in the end."""
    scenario = profile(tmp_path, step_ms=0.5, episode_steps=1e9)  # sequences would be added up in another order
    sync, ver = run_both(tmp_path, scenario, device, NUM_ITERATIONS)
    assert_same_experience(sync, ver, NUM_ITERATIONS * NUM_STEPS)
    assert same_weights(sync, ver)


def test_ver_with_one_environment_is_sync_where_episodes_end(tmp_path: Path) -> None:
    """The first rollout is equal to the bit, several episodes long; what is learned from it, to rounding.

    The systems lay sequences out in different orders, so sums are rounded differently.
    """
    sync, ver = run_both(tmp_path, "pointnav", "cpu", 1)
    assert_same_experience(sync, ver, NUM_STEPS)
    assert sync.samples()["terminated"].sum() >= 2
    theirs = ver.weights()
    for name, weight in sync.weights().items():
        torch.testing.assert_close(weight, theirs[name], rtol=1e-4, atol=1e-6)
