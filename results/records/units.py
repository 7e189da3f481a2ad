"""What the steps of a run are called: whatever names a unit of steps derives it from the run's record by this.

Where environments have several agents, samples are agent steps, and everything that counts samples counts these. Where
one environment has one agent, its env steps are its agent steps too, so a table of both kinds may call all of them so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

StepUnit = Literal["env steps", "agent steps"]
"""An env step is one step of a whole environment, an agent step one agent's action applied in it."""
ENV_RATE = "env steps/s"
"""What stands beside the rate of agent steps."""


def common(units: Iterable[StepUnit]) -> StepUnit:
    """What the steps of all of these are called together: agent steps, if some are."""
    return "agent steps" if "agent steps" in units else "env steps"


def rate(unit: StepUnit) -> str:
    """The unit of a rate: `steps/s`, `agent steps/s`."""
    return "steps/s" if unit == "env steps" else "agent steps/s"


def rates(unit: StepUnit) -> list[str]:
    """The units of the rates that are shown: of agent steps, and beside it of env steps."""
    return [rate(unit)] if unit == "env steps" else [rate(unit), ENV_RATE]


def defined(unit: StepUnit) -> str:
    """What the rates are, in one line."""
    said = f"{rate(unit)}: fresh {unit} learned per second, over all ranks"
    return said if unit == "env steps" else f"{said}; {ENV_RATE}: those of an environment's agents counted as one"


def capitalised(text: str) -> str:
    """The text as it begins a title: `Steps/s`."""
    return text[:1].upper() + text[1:]
