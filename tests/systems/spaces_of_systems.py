"""Which systems take which spaces, and several agents: the tables of docs/scenarios.md.

`python -m tests.systems.spaces_of_systems` writes them. They are made from what the systems themselves say
(`Traits.why_not_spaces`, and `Traits.check` of several agents).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple

from rlbench.harness.contract.scenario import Scenario
from rlbench.harness.contract.settings import LearnSettings
from rlbench.harness.contract.traits import Traits
from rlbench.harness.plan import registry

Space = gymnasium.Space[Any]

PAGE = Path(__file__).parents[2] / "docs" / "scenarios.md"
BEGIN, END = "<!-- spaces -->", "<!-- end of spaces -->"
WORKS = "works"
OURS = "ours"
EXTERNAL = "rlbench.external_systems"

VECTOR = Box(-np.inf, np.inf, (17,), np.float64)
HWC = Box(0, 255, (84, 84, 3), np.uint8)
ARM = Box(np.array([-1.0, 0.0], np.float32), np.array([1.0, 0.5], np.float32))
PIXELS = Dict({"pixels": Box(0, 255, (3, 72, 128), np.uint8)})
ACTIONS: Mapping[str, Space] = {
    "`Discrete`": Discrete(4),
    "`Discrete` that starts at another number than 0": Discrete(4, start=-1),
    "`MultiDiscrete`": MultiDiscrete([3, 2, 21]),
    "`MultiBinary`": MultiBinary(3),
    "`Box` with bounds": ARM,
    "`Box` without bounds": Box(-np.inf, np.inf, (3,)),
    "`Box` of whole numbers": Box(0, 9, (2,), np.int64),
    "`Tuple` of `Discrete`, `MultiDiscrete` and `Box`": Tuple((Discrete(3), MultiDiscrete([2, 2]), ARM)),
    "other `Tuple`, nested ones too": Tuple((MultiBinary(2), Tuple((ARM, Discrete(2))))),
    "`Dict`": Dict({"move": ARM, "fire": Discrete(2), "mode": MultiDiscrete([2, 3])}),
    "`Text`, or another kind without a fixed size": Text(3),
}
"""Spaces of actions by what the table calls them."""
OBSERVATIONS: Mapping[str, Space] = {
    "vector: `Box` of one axis": VECTOR,
    "`Discrete`": Discrete(500),
    "`MultiDiscrete`": MultiDiscrete([5, 3]),
    "`MultiBinary`": MultiBinary(4),
    "image, bytes, [H, W, C]": HWC,
    "image, bytes, [C, H, W]": Box(0, 255, (4, 84, 84), np.uint8),
    "image, bytes, [H, W]": Box(0, 255, (84, 84), np.uint8),
    "small grid, 7x7x3 bytes": Box(0, 255, (7, 7, 3), np.uint8),
    "image, floats from 0 to 1": Box(0, 1, (1, 64, 64), np.float32),
    "`pixels` alone, as of `vizdoom` and `atari`": PIXELS,
    "`depth` and `goal`, as of `pointnav`": Dict(
        {"depth": Box(0, 10, (1, 64, 64), np.float32), "goal": Box(-np.inf, np.inf, (2,), np.float32)}
    ),
    "`Dict` of vectors": Dict({"position": VECTOR, "room": Discrete(9)}),
    "`Dict` of two images of different size": Dict({"near": HWC, "far": Box(0, 255, (64, 64, 3), np.uint8)}),
    "`Dict` of images and vectors": Dict({"camera": HWC, "arm": VECTOR}),
    "nested `Tuple` and `Dict`": Tuple((VECTOR, Dict({"room": Discrete(9), "seen": Tuple((HWC, MultiBinary(4)))}))),
    "`Text`, or another kind without a fixed size": Dict({"arm": VECTOR, "said": Text(3)}),
}
"""Spaces of observations by what the table calls them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """As much of a scenario as checks look at, with any spaces."""

    observation_space: Space
    action_space: Space
    name: str = "given"
    workload: str = "homogeneous"
    num_envs: int = 4
    rollout_steps: int = 32
    policy: str = "auto"
    action_bounds: str = "clip"
    action_std: str = "shared"
    image_order: str = "auto"
    learn: LearnSettings = field(default_factory=LearnSettings)


@dataclass(frozen=True, kw_only=True, slots=True)
class OfAgents(Given):
    """The same, of environments with two agents."""

    agents_per_env: int = 2
    envs_per_batch: int = 2


def refusal(name: str, scenario: Given) -> str | None:
    """None if a system takes the scenario, else what it says before anything runs."""
    check = Traits.of(registry.load_system(name, {})).check
    assert check is not None
    try:
        check(cast("Scenario", scenario))
    except ValueError as error:
        return str(error)
    return None


def why_not(name: str, observation_space: Space, action_space: Space) -> str | None:
    """None, or why a system does not take these spaces."""
    asked = Traits.of(registry.load_system(name, {})).why_not_spaces
    assert asked is not None, name
    return asked(observation_space, action_space)


def pairs_for(name: str) -> Iterator[tuple[str, Space, Space]]:
    """Each row with its spaces of observations and actions; one of the two is such that the system takes it."""
    seen = next(space for space in (VECTOR, PIXELS) if why_not(name, space, Discrete(4)) is None)
    for row, space in ACTIONS.items():
        yield row, seen, space
    for row, space in OBSERVATIONS.items():
        yield row, space, Discrete(4)


def columns() -> dict[str, list[str | None]]:
    """Answers to `pairs_for` by the heading of a column; systems of a library, and ours, share one where they agree."""
    found: dict[tuple[str, tuple[str | None, ...]], list[str]] = {}
    for name in (*registry.names(registry.SYSTEMS), *registry.names(EXTERNAL)):
        library = Traits.of(registry.load_system(name, {})).library
        answers = tuple(why_not(name, *spaces) for _, *spaces in pairs_for(name))
        found.setdefault((OURS if library is None else library.name, answers), []).append(name)
    all_ours = registry.names(registry.SYSTEMS)
    return {
        OURS if names == [*all_ours] else ", ".join(f"`{name}`" for name in names): list(answers)
        for (_, answers), names in found.items()
    }


def columns_of_agents() -> dict[str, str | None]:
    """Whether systems take environments with several agents, A, by the heading of a column; they share one if alike."""
    found: dict[str | None, list[str]] = {}
    for name in (*registry.names(registry.SYSTEMS), *registry.names(EXTERNAL)):
        seen = next(space for space in (VECTOR, PIXELS) if why_not(name, space, Discrete(4)) is None)
        said = refusal(name, OfAgents(observation_space=seen, action_space=Discrete(4)))
        rule = None if said is None else re.sub(r"\b2\b", "A", said.rpartition(": ")[2])
        found.setdefault(rule, []).append(name)
    return {", ".join(f"`{name}`" for name in names): said for said, names in found.items()}


def tables() -> str:
    """All tables, and the rules to which their cells refer, each once."""
    of_systems = columns()
    rules: list[str] = []
    lines: list[str] = []
    for what, first, rows in (("actions", 0, ACTIONS), ("observations", len(ACTIONS), OBSERVATIONS)):
        lines += ["", *_table_head([what, *of_systems])]
        for number, row in enumerate(rows, first):
            cells = [_cell(answers[number], rules) for answers in of_systems.values()]
            lines.append(f"| {' | '.join((row, *cells))} |")
    of_agents = columns_of_agents()
    lines += ["", *_table_head(["environments", *of_agents])]
    lines.append(f"| {' | '.join(('with several agents, A', *(_cell(said, rules) for said in of_agents.values())))} |")
    numbered = [f"{number}. {rule}" for number, rule in enumerate(rules, 1)]
    return "\n".join([*lines[1:], "", *numbered])


def _table_head(cells: Sequence[str]) -> list[str]:
    return [f"| {' | '.join(cells)} |", f"|{' --- |' * len(cells)}"]


def _cell(reason: str | None, rules: list[str]) -> str:
    """What stands in a cell; the part of a reason that follows the space is a rule."""
    if reason is None:
        return WORKS
    rule = reason.rpartition(": ")[2]
    if rule not in rules:
        rules.append(rule)
    return f"no ({rules.index(rule) + 1})"


def main() -> None:
    """Writes the tables into the page."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(f"{BEGIN}\n")
    assert rest, f"{PAGE} must have {BEGIN}"
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{tables()}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
