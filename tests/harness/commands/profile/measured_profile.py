"""A profile that runs are emulated with and profiles are measured of, whose costs are all small, or all large."""

from __future__ import annotations

from pathlib import Path


def write_truth(path: Path, *, factor: float, step_sigma: float, collision_ms: float) -> None:
    """Writes the profile.

    Args:
        path: of the new file.
        factor: on the times of a step, a reset, inference and learning; large, what the machine adds is little.
        step_sigma: how much steps differ.
        collision_ms: median of a slow step.
    """
    path.write_text(f"""
about = "costs of a test"
[collect]
num_envs = 4
rollout_steps = 32
[step]
median_ms = {12.0 * factor}
sigma = {step_sigma}
[collision]
median_ms = {collision_ms}
share = 0.1
mean_stay_steps = 2.0
[episode]
mean_steps = 20.0
sigma = 0.1
reset_ms = {10.0 * factor}
[heterogeneous]
sigma = 0.5
[cpu]
cores_per_gpu = 4
actor_infer_ms = 20.0
[gpu]
render_ms = 0.0
infer_fixed_ms = {4.8 * factor}
infer_item_ms = {1.6 * factor}
prepare_ms = 0.0
learn_fixed_ms = {20.0 * factor}
learn_item_ms = {0.3 * factor}
render_while_learning_factor = 1.0
learn_while_rendering_factor = 1.0
[network]
synchronize_ms = 0.0
synchronize_doubling_ms = 0.0
latency_ms = 0.05
bandwidth_mb_per_s = 10000.0
weights_mb = 20.0
""")
