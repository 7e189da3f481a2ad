"""What stays the same when there are more ranks: the environments of each (weak scaling), or of all (strong)."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Literal, cast, get_args

from rlbench.harness.contract.scenario import Scenario
from rlbench.results.reading.names import known_names

Scaling = Literal["weak", "strong"]


def check_scaling(text: str) -> Scaling:
    """Returns the text if it names one. Raises ValueError."""
    if text not in get_args(Scaling):
        raise ValueError(f"--scaling {text}: unknown; {known_names(text, get_args(Scaling))}")
    return cast("Scaling", text)


def share(scenario: Scenario, num_ranks: int) -> Scenario:
    """The scenario of one of the ranks that share its environments evenly. Raises ValueError where they cannot."""
    if not any(item.name == "num_envs" for item in fields(cast("Any", scenario))):
        raise ValueError(f"--scaling strong: the number of environments of {scenario.name} cannot be set")
    num_envs, rest = divmod(scenario.num_envs, num_ranks)
    if rest:
        counts = [str(count) for count in range(1, scenario.num_envs + 1) if scenario.num_envs % count == 0]
        raise ValueError(
            f"--scaling strong --gpus {num_ranks}: {scenario.name} has {scenario.num_envs} environments, which ranks "
            f"share evenly; use {', '.join(counts)} GPUs, or set num_envs"
        )
    return replace(scenario, num_envs=num_envs)  # type: ignore[type-var]  # scenarios are dataclasses
