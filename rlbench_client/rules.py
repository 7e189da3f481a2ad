"""What an environment may report of a step or an episode; anything else raises an error that names the value."""

from __future__ import annotations

import math
import operator
from typing import Any

MOST_FRAMES = 2**31
"""Largest number of frames of one env step."""


def frames_of(frames: Any) -> int:
    """`num_frames` as an int. Raises ValueError unless it is a whole number within limits."""
    try:
        number = -1 if isinstance(frames, bool) else operator.index(frames)
    except TypeError:
        number = -1
    if not 0 <= number <= MOST_FRAMES:
        raise ValueError(f"an environment gave num_frames = {frames!r:.60}: must be a whole number to {MOST_FRAMES:,}")
    return number


def fraction_of(name: str, value: Any) -> float:
    """`success` or `spl` of an episode as a float. Raises ValueError unless it is from 0 to 1 or NaN."""
    number = -1.0 if isinstance(value, (str, bytes)) else float(value)
    if not (0 <= number <= 1 or math.isnan(number)):
        raise ValueError(f"an environment gave {name} = {value!r:.60}: must be from 0 to 1, NaN, or left out")
    return number
