"""Predictions for tests: of a system on `open-fridge`, or on a small profile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rlbench.harness.contract.budget import Limits
from rlbench.harness.contract.prediction import Prediction
from rlbench.harness.plan.registry import load_system
from rlbench.scenarios.emulated import FAMILY, EmulatedScenario
from rlbench.systems.spec import EngineSystem
from tests.systems.model.profiles import BUSY, Changes


def load(text: str) -> EngineSystem:
    """A system, as on the command line: `ver:preempt=never`."""
    name, *settings = text.split(":")
    system = load_system(name, dict(setting.split("=") for setting in settings))
    assert isinstance(system, EngineSystem)
    return system


def scenario_of(changes: Changes = BUSY, workload: str = "homogeneous", **fields: Any) -> EmulatedScenario:
    """`open-fridge` with values of its profile replaced, and fields of the scenario."""
    made = FAMILY.make("open-fridge", workload)
    tables = {name: getattr(made.profile, name).model_copy(update=values) for name, values in changes.items()}
    profile = made.profile.model_copy(update=tables)
    collect = {"num_envs": profile.collect.num_envs, "rollout_steps": profile.collect.rollout_steps}
    return replace(made, profile=profile, **(collect | fields))


def predicted(
    system: str,
    num_ranks: int = 1,
    *,
    scenario: EmulatedScenario | None = None,
    seed: int = 0,
    limits: Limits | None = None,
) -> Prediction:
    """What the system would do; 4 iterations on the small profile unless told otherwise."""
    loaded = load(system)
    checked = loaded.check(scenario or scenario_of())
    return loaded.predict(checked, num_ranks, seed, limits or Limits(iterations=4))


def ends_of(prediction: Prediction, rank: int = 0) -> list[float]:
    """When the iterations of a rank end."""
    return [row["end_s"] for row in prediction.rows if row["rank"] == rank]
