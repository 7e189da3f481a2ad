"""How near the profile of an emulated run is to the profile that it was made with: `nox -s gate`."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenarios.emulated.profile import read_profile
from tests.harness.command import launch

TRUTH = """
about = "large costs, so that what the machine adds is little"
[collect]
num_envs = 4
rollout_steps = 32
[step]
median_ms = 60.0
sigma = 0.2
[collision]
median_ms = 400.0
share = 0.1
mean_stay_steps = 2.0
[episode]
mean_steps = 20.0
sigma = 0.1
reset_ms = 50.0
[heterogeneous]
sigma = 0.5
[cpu]
cores_per_gpu = 4
actor_infer_ms = 20.0
[gpu]
render_ms = 0.0
infer_fixed_ms = 24.0
infer_item_ms = 8.0
prepare_ms = 0.0
learn_item_ms = 1.5
render_while_learning_factor = 1.0
learn_while_rendering_factor = 1.0
[network]
synchronize_ms = 0.0
synchronize_doubling_ms = 0.0
latency_ms = 0.05
bandwidth_mb_per_s = 10000.0
weights_mb = 20.0
"""


def check_a_profile_of_an_emulated_run_is_its_profile(tmp_path: Path) -> None:
    """A measured run gives back the costs it was given: inference, learning and steps; what is shared out, roughly.

    It is measured twice as fast; a machine that wakes a sleeper 1 ms late adds 3 % to its steps.
    """
    (tmp_path / "truth.toml").write_text(TRUTH)
    ended = launch(
        *("profile", "--scenario", "emulated/truth.toml:time_scale=0.5", "--seconds", "25", "--out", "found.toml"),
        *("--device", "emulated", "--latency-ms", "0.1"),
        folder=tmp_path,
    )
    assert (ended.code, ended.err) == (0, "")
    truth, found = (read_profile(str(tmp_path / f"{name}.toml")) for name in ("truth", "found"))
    for size in (1, 4):
        given = truth.gpu.infer_fixed_ms + size * truth.gpu.infer_item_ms
        assert found.gpu.infer_fixed_ms + size * found.gpu.infer_item_ms == pytest.approx(given, rel=0.1)
    assert found.gpu.learn_item_ms == pytest.approx(truth.gpu.learn_item_ms, rel=0.3)
    assert found.step.median_ms == pytest.approx(truth.step.median_ms, rel=0.1)
    assert found.collision.median_ms == pytest.approx(truth.collision.median_ms, rel=0.25)
    assert found.collision.share == pytest.approx(truth.collision.share, rel=0.35)
    assert found.episode.reset_ms == pytest.approx(truth.episode.reset_ms, rel=0.2)
