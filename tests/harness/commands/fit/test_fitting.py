from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest

from rlbench.harness.commands.fit.command import numbers_of
from rlbench.harness.commands.fit.fitting import fit
from rlbench.harness.commands.fit.keys import Key, keys_to_fit
from rlbench.scenarios.emulated.profile import read_profile, shipped_profiles

NUMBERS = {
    "step.median_ms": 3.0,
    "collision.share": 0.1,
    "gpu.learn_fixed_ms": 0.0,
    "gpu.render_while_learning_factor": 1.0,
    "cpu.cores_per_gpu": 10,
}


def test_keys_have_a_coordinate_and_stay_within_their_rules() -> None:
    """A step of 0.1 is 10 % of a time, and of the odds of a share; a factor does not fall below 1."""
    time, share = Key("step.median_ms", 3.0), Key("collision.share", 0.1)
    assert (time.number(0.0), share.number(0.0)) == pytest.approx((3.0, 0.1))
    assert time.number(0.1) == pytest.approx(3.0 * math.exp(0.1))
    assert share.number(0.1) / (1 - share.number(0.1)) == pytest.approx(math.exp(0.1) / 9)
    assert share.number(share.bounds[1]) <= 0.9991
    factor = Key("gpu.render_while_learning_factor", 2.0)
    assert factor.number(factor.bounds[0]) == pytest.approx(1.0)
    assert Key("step.sigma", 1.0).number(Key("step.sigma", 1.0).bounds[1]) == pytest.approx(3.0)


def test_all_keys_are_fitted_that_may_be() -> None:
    """By default those above what they are at least; counts are known, and 0 is no time to begin with."""
    assert [key.name for key in keys_to_fit(NUMBERS, [])] == ["step.median_ms", "collision.share"]
    assert keys_to_fit(NUMBERS, ["gpu.render_while_learning_factor"])[0].start == 1.0
    for name, rule in (
        ("step.nope", "unknown; known: step.median_ms"),
        ("cpu.cores_per_gpu", "is known, and not fitted"),
        ("gpu.learn_fixed_ms", "is 0; give it a value to begin with"),
    ):
        with pytest.raises(ValueError, match=rf"--keys {name}: {rule}"):
            keys_to_fit(NUMBERS, [name])


@pytest.mark.parametrize("name", shipped_profiles())
def test_every_shipped_profile_can_be_fitted(name: str) -> None:
    """All keys that are fitted by default may have other numbers, one by one."""
    profile = read_profile(name)
    for key in keys_to_fit(numbers_of(profile.document), []):
        for coordinate in (-0.1, 0.1):
            number = key.number(max(key.bounds[0], coordinate))
            assert numbers_of(profile.changed({key.name: number}).document)[key.name] == number


def _rates(numbers: Mapping[str, float]) -> list[float]:
    """What a loop of three times gives: 16 env steps in a + b, in a + 4 b, in a, and in a + 16 b."""
    a, b = numbers["a"], numbers["b"]
    return [16 / (a + share * b) for share in (1, 4, 0, 16)]


def test_keys_are_found_again() -> None:
    """From twice and half of the truth, exact figures give the truth, and what is held out is predicted."""
    figures = _rates({"a": 2.0, "b": 3.0, "c": 1.0})
    keys = [Key("a", 4.0), Key("b", 1.5), Key("c", 7.0)]
    fitted = fit(keys, [*figures[:3], None], _rates)
    assert fitted.numbers == pytest.approx({"a": 2.0, "b": 3.0, "c": 7.0}, rel=0.01)
    assert fitted.predicted == pytest.approx(figures, rel=0.01)
    assert [key.is_determined for key in fitted.keys] == [True, True, False]
    assert fitted.num_figures == 3
    unknown = fitted.keys[2]
    assert unknown.low < 2.0
    assert unknown.high > 20.0
    with pytest.raises(ValueError, match="no figure to fit to"):
        fit(keys, [None] * 4, _rates)


def test_intervals_hold_the_truth() -> None:
    """Of figures that are off by 5 %, 95 % intervals of keys and of what is predicted hold the truth in 19 of 20 cases.

    200 draws; binomially, 95 % less three standard deviations is 90.4 %.
    """
    random = np.random.default_rng(0)
    truth = {"a": 2.0, "b": 3.0}
    shares = (0, 1, 2, 4, 6, 8, 12, 16)

    def rates(numbers: Mapping[str, float]) -> list[float]:
        return [16 / (numbers["a"] + share * numbers["b"]) for share in (*shares, 32)]

    right = np.array(rates(truth))
    within = []
    for _ in range(200):
        figures = (right * np.exp(random.normal(0, 0.05, len(right)))).tolist()
        fitted = fit([Key("a", 1.5), Key("b", 4.0)], [*figures[:-1], None], rates)
        a, b = fitted.keys
        is_predicted = fitted.low[-1] <= figures[-1] <= fitted.high[-1]
        within.append((a.low <= 2.0 <= a.high, b.low <= 3.0 <= b.high, is_predicted))
    assert np.mean(within, axis=0).min() >= 0.904
    assert np.mean(within, axis=0).max() < 1.0
