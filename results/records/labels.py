"""Labels of systems and scenarios: the name with its settings, as the command line takes it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rlbench.results.records.schema import CellRecord

SCENARIO_PREFIX = "scenario."
"""Prefix of settings that belong to the scenario, not to the system."""


def system(cell: CellRecord) -> str:
    """The system as `--systems` takes it: `ddppo:preempt.p=0.8`."""
    own = {name: value for name, value in cell.settings.items() if not name.startswith(SCENARIO_PREFIX)}
    return ":".join([cell.system, *(f"{name}={_typed(value)}" for name, value in own.items())])


def scenario(cell: CellRecord) -> str:
    """The scenario with its settings, and ` (strong scaling)` where ranks share its environments."""
    label = typed_scenario(cell)
    return f"{label} (strong scaling)" if cell.scaling == "strong" else label


def typed_scenario(cell: CellRecord) -> str:
    """The scenario as `--scenario` takes it: `vizdoom:num_envs=4`."""
    settings = cell.settings.items()
    own = {name.removeprefix(SCENARIO_PREFIX): value for name, value in settings if name.startswith(SCENARIO_PREFIX)}
    return ":".join([cell.scenario, *(f"{name}={_typed(value)}" for name, value in own.items())])


def ranks(num: int, device: str) -> str:
    """A number of ranks in words, by what each rank owns: `8 emulated GPUs`, `1 CPU rank`."""
    kind = {"cpu": "CPU rank", "emulated": "emulated GPU", "predicted": "predicted GPU"}.get(device, "GPU")
    return f"{num} {kind}" if num == 1 else f"{num} {kind}s"


def parent(variant: str, systems: Iterable[str]) -> str | None:
    """The system that a variant changes: the one with the most of the variant's settings and no others, if any.

    It is the plain system, or, where settings were changed one after another, the previous variant.
    """
    base, settings = parts(variant)
    below = [each for each in systems if parts(each)[0] == base and parts(each)[1] < settings]
    return max(below, key=lambda each: len(parts(each)[1]), default=None)


def parts(system: str) -> tuple[str, frozenset[str]]:
    """A system's name and its settings: `ver`, {`preempt=never`}."""
    base, *settings = system.split(":")
    return base, frozenset(settings)


def number(value: float) -> str:
    """Writes a number with three significant digits, but never fewer than all before the point: 1,234, 56.7, 0.0321."""
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:#.3g}".rstrip(".")


def _typed(value: Any) -> str:
    """A setting as the command line takes it."""
    if value is None:
        return "none"
    return "+".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
