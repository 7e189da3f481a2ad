"""Cells and profiles that tests of whole systems share; imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.budget import Limits
from harness.plan import Cell
from tests.systems.engine.ranks import LIMIT_S

PROFILE = """
about = "times of a test"
[collect]
num_envs = 4
rollout_steps = 16
[step]
median_ms = {step_ms}
sigma = 0.2
[collision]
median_ms = {step_ms}
share = 0.0
mean_stay_steps = 1.0
[episode]
mean_steps = {episode_steps}
sigma = 0.1
reset_ms = 0.0
[heterogeneous]
sigma = {spread}
[gpu]
render_ms = {render_ms}
infer_fixed_ms = {infer_ms}
infer_item_ms = 0.0
prepare_ms = {prepare_ms}
learn_item_ms = 0.0
render_while_learning_factor = 1.0
learn_while_rendering_factor = 1.0
[network]
synchronize_ms = 0.0
"""
TIMES: dict[str, float] = {
    "step_ms": 1.0,
    "episode_steps": 30.0,
    "spread": 0.0,
    "render_ms": 0.1,
    "infer_ms": 0.1,
    "prepare_ms": 1.0,
}


def profile(folder: Path, name: str = "profile", **times: float) -> str:
    """Writes an emulated profile; returns the scenario that it is. `times` replace some of `TIMES`."""
    path = folder / f"{name}.toml"
    path.write_text(PROFILE.format(**(TIMES | times)))
    return f"emulated/{path}"


def make_cell(system: str, scenario: str, *, iterations: int, **fields: Any) -> Cell:
    """A cell; `system` as on the command line, `name:key=value:...`, and so is `scenario`."""
    system, *of_system = system.split(":")
    scenario, *of_scenario = scenario.split(":")
    defaults: dict[str, Any] = {
        "workload": "homogeneous",
        "gpus": 1,
        "seed": 0,
        "device": "cpu",
        "protocol": "steady",
        "stall_s": 60.0,
        "time_limit_s": LIMIT_S,
    }
    return Cell(
        system=system,
        system_settings=dict(text.split("=", 1) for text in of_system),
        scenario=scenario,
        scenario_settings=dict(text.split("=", 1) for text in of_scenario),
        limits=Limits(iterations=iterations),
        **(defaults | fields),
    )
