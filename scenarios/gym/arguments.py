"""Arguments of a constructor, from text: one value, or a range over which the environments of a run differ."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

NUMBER = r"[+-]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?"
RANGE = re.compile(rf"({NUMBER})\.\.({NUMBER})")
GOLDEN = (5**0.5 - 1) / 2
"""Its multiples, modulo 1, are spread evenly however many of them one takes."""
WORDS = {"True": True, "False": False, "None": None, "none": None}


def value_of(text: str) -> Any:
    """A scalar as JSON or TOML writes it, `True`, `False` and `none`; anything else is text."""
    if text in WORDS:
        return WORDS[text]
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        value = tomllib.loads(f"value = {text}")["value"] if "\n" not in text else text
    except tomllib.TOMLDecodeError:
        return text
    return value if isinstance(value, (bool, int, float, str)) else text


def is_range(text: str) -> bool:
    """Whether a text is a range of numbers: `5..20`, `0.5..2`."""
    return RANGE.fullmatch(text) is not None


def ends(text: str) -> tuple[str, str]:
    """The lower and the upper end of a range. Raises ValueError where it does not ascend."""
    match = RANGE.fullmatch(text)
    assert match is not None
    low, high = match.groups()
    if not float(low) < float(high):
        raise ValueError("a range must ascend")
    return low, high


def within(text: str, global_index: int, number: int) -> str:
    """The value in a range that one environment of the run has; whole numbers if both ends are whole.

    Args:
        text: the range.
        global_index: of the environment; 0 has the lower end.
        number: of the range among those of a scenario, from 0, so that two ranges do not go together.
    """
    low, high = ends(text)
    share = global_index * GOLDEN * (1 + number) % 1
    if _is_whole(low) and _is_whole(high):
        return str(int(low) + int(share * (int(high) - int(low) + 1)))
    return repr(float(low) + share * (float(high) - float(low)))


def _is_whole(text: str) -> bool:
    return text.lstrip("+-").isdigit()
