from __future__ import annotations

import math

import pytest
import torch

from rlbench.harness.contract.settings import LearnSettings
from rlbench.systems.learn.schedules import EntropyCoefficient, decayed

SPENT = (0.0, 0.25, 0.5, 0.75, 1.0)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [1, 1, 1, 1, 1]),
        ("linear", [1, 0.75, 0.5, 0.25, 0]),
        ("cosine", [1, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2, 0]),
        ("step", [1, 1, 0.1, 0.01, 0.01]),
    ],
)
def test_what_is_left(schedule: str, expected: list[float]) -> None:
    """At quarters of the budget, as their formulas have it; a step is made where its part is spent."""
    found = [decayed(schedule, spent, LearnSettings()) for spent in SPENT]
    assert found == pytest.approx(expected)


def test_a_coefficient_follows_its_schedule() -> None:
    """It begins at the settings' value, and nothing is learned."""
    coefficient = EntropyCoefficient(LearnSettings(entropy_coef=0.04, entropy_schedule="linear"), "cpu")
    found = []
    for spent in SPENT:
        coefficient.spend(spent, 1.0)
        found.append(coefficient.value)
    assert found == pytest.approx([0.04, 0.03, 0.02, 0.01, 0])
    assert coefficient.note(torch.tensor(1.0)) == []


@pytest.mark.parametrize(("entropy", "rises"), [(0.2, True), (0.9, False)])
def test_a_learned_coefficient_rises_below_its_target(entropy: float, rises: bool) -> None:
    """Its gradient is alpha (H - target), by its logarithm; Adam's first step is the learning rate."""
    settings = LearnSettings(
        entropy_coef=0.01, entropy_schedule="learned", entropy_target=0.5, learning_rate=0.1, weight_decay=0.5
    )
    coefficient = EntropyCoefficient(settings, "cpu")
    (parameter,) = coefficient.note(torch.tensor(entropy))
    assert parameter.grad is not None
    assert parameter.grad.item() == pytest.approx(0.01 * (entropy - 0.5))
    coefficient.step()
    step = 0.1 if rises else -0.1
    assert float(coefficient.value) == pytest.approx(0.01 * math.exp(step), rel=1e-2)


def test_a_learned_coefficient_steps_at_the_scheduled_rate() -> None:
    """At the end of a schedule it learns no more."""
    settings = LearnSettings(entropy_schedule="learned", schedule="linear")
    coefficient = EntropyCoefficient(settings, "cpu")
    before = float(coefficient.value)
    coefficient.spend(1.0, 0.0)
    coefficient.note(torch.tensor(3.0))
    coefficient.step()
    assert float(coefficient.value) == before
