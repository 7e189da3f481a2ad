"""How systems are called."""

from __future__ import annotations

import pytest

from rlbench.results.records import labels
from tests.results.made_records import make_record


@pytest.mark.parametrize(
    ("variant", "expected"),
    [
        ("ver", None),
        ("ver:a=1", "ver"),
        ("ver:a=1:b=2", "ver:a=1"),
        ("ver:b=2:a=1", "ver:a=1"),
        ("ver:b=2", "ver"),
        ("appo:a=1", None),
    ],
)
def test_what_a_variant_hangs_on(variant: str, expected: str | None) -> None:
    """The one that has the most of its settings and no other."""
    assert labels.parent(variant, ["ver", "ver:a=1", "ver:c=3", "ddppo", variant]) == expected


def test_a_scenario_is_shown_with_its_scaling_and_typed_without() -> None:
    """What is shown says that ranks share the environments; what is typed, or read again, is the scenario alone."""
    cell = {"scenario": "pointnav", "settings": {"scenario.num_envs": 16, "learn.epochs": 1}, "scaling": "strong"}
    shared = make_record(cell=cell).cell
    assert labels.scenario(shared) == "pointnav:num_envs=16 (strong scaling)"
    assert labels.typed_scenario(shared) == "pointnav:num_envs=16"
    weak = make_record(cell={**cell, "scaling": "weak"}).cell
    assert labels.scenario(weak) == labels.typed_scenario(weak) == "pointnav:num_envs=16"
