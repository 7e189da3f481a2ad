"""Where two systems must agree, and lags that are known beforehand.

`test_determinism.py` has the equality of `ddppo` with p = 1 and `sync`.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.systems.engine.cells import make_cell, profile
from tests.systems.engine.ranks import same_weights
from tests.systems.engine.recorded import Recorded, record_alone

NUM_STEPS, NUM_ITERATIONS = 16, 4
DEVICES = ("cpu", "emulated")
ONE = f"num_envs=1:rollout_steps={NUM_STEPS}:learn.num_minibatches=1"
"""One environment, and one mini-batch: the systems split differently."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recorded]:
    """`sync` and `ver` with one environment, each `on` a device without episodes that end, and on pointnav."""
    folder = tmp_path_factory.mktemp("runs")
    scenario = profile(folder, step_ms=0.5, episode_steps=1e9)  # sequences would be added up in another order
    cells = {}
    for system in ("sync", "ver"):
        for device in DEVICES:
            cell = make_cell(system, f"{scenario}:{ONE}", iterations=NUM_ITERATIONS, device=device)
            cells[f"{system} on {device}"] = cell
        cells[f"{system} on pointnav"] = make_cell(system, f"pointnav:{ONE}", iterations=1)
    return record_alone(folder, cells)


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


@pytest.mark.parametrize("device", DEVICES)
def test_ver_with_one_environment_is_sync(runs: dict[str, Recorded], device: str) -> None:
    """`ver` with one environment collects what `sync` does, to the bit, and has the same weights in the end."""
    sync, ver = runs[f"sync on {device}"], runs[f"ver on {device}"]
    assert_same_experience(sync, ver, NUM_ITERATIONS * NUM_STEPS)
    assert same_weights(sync, ver)


def test_ver_with_one_environment_is_sync_where_episodes_end(runs: dict[str, Recorded]) -> None:
    """The first rollout is equal to the bit, several episodes long; what is learned from it, to rounding.

    The systems lay sequences out in different orders, so sums are rounded differently.
    """
    sync, ver = runs["sync on pointnav"], runs["ver on pointnav"]
    assert_same_experience(sync, ver, NUM_STEPS)
    assert sync.samples()["terminated"].sum() >= 2
    theirs = ver.weights()
    for name, weight in sync.weights().items():
        torch.testing.assert_close(weight, theirs[name], rtol=1e-4, atol=1e-6)
