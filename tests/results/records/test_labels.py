"""How systems are called."""

from __future__ import annotations

import pytest

from results.records import labels


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
