"""Checks how near the profile of an emulated run is to the one that it was made with: `nox -s gate -- --deep`."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlbench.scenarios.emulated.profile import read_profile
from tests.harness.command import launch
from tests.harness.commands.profile.measured_profile import write_truth
from tests.lanes import deep


@deep
def check_a_profile_of_an_emulated_run_is_its_profile(tmp_path: Path) -> None:
    """A profile gives back the costs that its run was given: inference and steps within 10 %, the others roughly.

    The run goes twice as fast as its profile; a machine that wakes a sleeper 1 ms late adds 3 % to its steps.
    """
    write_truth(tmp_path / "truth.toml", factor=5, step_sigma=0.2, collision_ms=400.0)
    ended = launch(
        *("profile", "--scenario", "emulated/truth.toml:time_scale=0.5", "--seconds", "25", "--out", "found.toml"),
        *("--device", "emulated", "--latency-ms", "0.1"),
        folder=tmp_path,
    )
    assert ended.code == 0, ended.err
    truth, found = (read_profile(str(tmp_path / f"{name}.toml")) for name in ("truth", "found"))
    for size in (1, 4):
        given = truth.gpu.infer_fixed_ms + size * truth.gpu.infer_item_ms
        assert found.gpu.infer_fixed_ms + size * found.gpu.infer_item_ms == pytest.approx(given, rel=0.1)
    assert found.gpu.learn_item_ms == pytest.approx(truth.gpu.learn_item_ms, rel=0.3)
    assert found.step.median_ms == pytest.approx(truth.step.median_ms, rel=0.1)
    assert found.collision.median_ms == pytest.approx(truth.collision.median_ms, rel=0.25)
    assert found.collision.share == pytest.approx(truth.collision.share, rel=0.35)
    assert found.episode.reset_ms == pytest.approx(truth.episode.reset_ms, rel=0.2)
