"""How people call a system and a scenario: with what was set, as the command line takes it."""

from __future__ import annotations

from typing import Any

from results.schema import Cell

SCENARIO_PREFIX = "scenario."
"""Of settings that belong to the scenario, not to the system."""


def system(cell: Cell) -> str:
    """The system as `--systems` takes it: `ddppo:preempt.p=0.8`."""
    own = {name: value for name, value in cell.settings.items() if not name.startswith(SCENARIO_PREFIX)}
    return ":".join([cell.system, *(f"{name}={_typed(value)}" for name, value in own.items())])


def scenario(cell: Cell) -> str:
    """The scenario as `--scenario` takes it: `vizdoom:num_envs=4`."""
    settings = cell.settings.items()
    own = {name.removeprefix(SCENARIO_PREFIX): value for name, value in settings if name.startswith(SCENARIO_PREFIX)}
    return ":".join([cell.scenario, *(f"{name}={_typed(value)}" for name, value in own.items())])


def ranks(num: int, device: str) -> str:
    """So many ranks, by what each of them owns: `8 emulated GPUs`, `1 CPU rank`."""
    kind = {"cpu": "CPU rank", "emulated": "emulated GPU", "predicted": "predicted GPU"}.get(device, "GPU")
    return f"{num} {kind}" if num == 1 else f"{num} {kind}s"


def _typed(value: Any) -> str:
    """A setting as the command line takes it."""
    if value is None:
        return "none"
    return "+".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
