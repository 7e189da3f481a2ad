from __future__ import annotations

from typing import Any

import pytest

from rlbench.harness.contract.settings import LearnSettings


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"correct": "retrace"}, "learn.correct=retrace: must be one of: none, vtrace, truncated_is"),
        ({"optimizer": "lamb"}, "learn.optimizer=lamb: must be one of: adam, sgd"),
        ({"momentum": 1.0}, "learn.momentum=1.0: must be at least 0 and below 1"),
        ({"clip_low": 1.0}, "learn.clip_low=1.0: must be at least 0 and below 1; 0 is for 1 - clip"),
        ({"clip_low": -0.1}, "learn.clip_low=-0.1: must be at least 0 and below 1; 0 is for 1 - clip"),
        ({"rho": 0.0}, "learn.rho=0.0: must be above 0"),
        ({"c": -1.0}, "learn.c=-1.0: must be at least 0"),
        ({"correct": "vtrace", "rho": 0.5}, "learn.c=1.0: must be at most learn.rho=0.5 with correct=vtrace"),
    ],
)
def test_refuses(changes: dict[str, Any], message: str) -> None:
    """Impossible settings are refused in one line that names the setting, its value and the rule."""
    with pytest.raises(ValueError, match="learn") as refusal:
        LearnSettings(**changes)
    assert str(refusal.value) == message


def test_clip_range() -> None:
    """The range is symmetric around 1 unless its lower end is set."""
    assert LearnSettings(clip=0.2).clip_range == (0.8, 1.2)
    assert LearnSettings(clip=0.1, clip_low=1 / 1.1).clip_range == (1 / 1.1, 1.1)
