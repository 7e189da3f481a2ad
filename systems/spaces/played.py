"""Whether our policies play a scenario: read its observations, with the network it names, and choose its actions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlbench.systems.spaces.actions import STDS, ActionLayout, layout_of
from rlbench.systems.spaces.layout import Layout

if TYPE_CHECKING:
    import gymnasium

    from rlbench.harness.contract.scenario import Scenario


def why_not_spaces(
    observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any], image_order: str = "auto"
) -> str | None:
    """None, or why no policy reads these observations or chooses these actions; one line."""
    try:
        ActionLayout.of(action_space)
        Layout.of(observation_space, image_order)
    except ValueError as error:
        return str(error)
    return None


def why_not_played(scenario: Scenario) -> str | None:
    """None, or why the policy of a scenario does not play it; one line."""
    std = getattr(scenario, "action_std", "shared")
    if std not in STDS:
        return f"action_std={std}: unknown; must be one of: {', '.join(STDS)}"
    try:
        layout_of(scenario)
        Layout.of(scenario.observation_space, getattr(scenario, "image_order", "auto")).check(scenario.policy)
    except ValueError as error:
        return str(error)
    return None
