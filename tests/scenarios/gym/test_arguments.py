from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlbench.scenarios.gym.arguments import ends, is_range, value_of, within


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("20", 20),
        ("-1.5", -1.5),
        ("1e3", 1000.0),
        ("1_000", 1000),
        ("true", True),
        ("True", True),
        ("none", None),
        ("null", None),
        ('"20"', "20"),
        ("'5..20'", "5..20"),
        ("2020-01-01", "2020-01-01"),
        ("rgb_array", "rgb_array"),
        ("4x4", "4x4"),
        ("a\nb = 1", "a\nb = 1"),
    ],
)
def test_values_are_scalars_or_text(text: str, value: Any) -> None:
    """A number, a truth value, nothing, quoted text; all else is the text itself."""
    assert value_of(text) == value
    assert type(value_of(text)) is type(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5..20", True),
        ("0.5..2", True),
        ("-3..-1", True),
        ("1e-3..1", True),
        ("5", False),
        ("a..b", False),
        ("5..", False),
    ],
)
def test_ranges_are_of_numbers(text: str, expected: bool) -> None:
    """Two numbers with two dots."""
    assert is_range(text) is expected


@pytest.mark.parametrize("text", ["20..5", "5..5"])
def test_a_range_ascends(text: str) -> None:
    """Anything else would make all environments alike."""
    with pytest.raises(ValueError, match="must ascend"):
        ends(text)


@given(low=st.integers(-50, 50), width=st.integers(1, 30), first=st.integers(0, 5000), number=st.integers(0, 3))
def test_whole_numbers_are_spread_evenly(low: int, width: int, first: int, number: int) -> None:
    """Whatever environments one looks at, all values come, and none comes much more often than it should."""
    values = [int(within(f"{low}..{low + width}", first + index, number)) for index in range(20 * (width + 1))]
    counts = [values.count(value) for value in range(low, low + width + 1)]
    assert sum(counts) == len(values)
    assert min(counts) >= 10
    assert max(counts) <= 30


@given(index=st.integers(0, 100_000), number=st.integers(0, 3))
def test_numbers_stay_within(index: int, number: int) -> None:
    """The text of a value reads back as the value."""
    assert 0.5 <= value_of(within("0.5..2", index, number)) <= 2


def test_the_first_environment_has_the_lower_end() -> None:
    """And always the same."""
    assert within("5..20", 0, 0) == "5"
    assert value_of(within("0.5..2", 0, 1)) == 0.5
