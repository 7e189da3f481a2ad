"""Which spaces policies can read and act in, and where an observation leaves its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium import Space, spaces

Place = tuple[Any, ...]
"""Keys from the top to an inner space."""
Leaf = tuple[Place, Space[Any]]


def leaves(space: Space[Any], place: Place = ()) -> Iterator[Leaf]:
    """The spaces inside Dict and Tuple, depth first, with their places; a bare space is its own only one."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        inner = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, one in inner:
            yield from leaves(one, (*place, key))
    else:
        yield place, space


def unreadable(space: Space[Any]) -> tuple[Place, str] | None:
    """Which inner space no policy can read, or act in, and why; or None."""
    found = list(leaves(space))
    if not found:
        return (), "it is empty"
    for place, leaf in found:
        if not isinstance(leaf, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
            rule = "policies know Box, Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of these"
            return place, f"{_at(place)}a {type(leaf).__name__}, and {rule}"
        if leaf.shape is not None and 0 in leaf.shape:
            return place, f"{_at(place)}its shape {leaf.shape} holds nothing"
    return None


def misfit(space: Space[Any], observation: Any) -> str | None:
    """Where an observation is not as its space says, or None."""
    for place, leaf in leaves(space):
        value = observation
        for key in place:
            try:
                value = value[key]
            except (KeyError, IndexError, TypeError):
                return f"{_at(place)}is missing"
        if problem := _misfit(leaf, value):
            return f"{_at(place)}{problem}"
    return None


def _misfit(leaf: Space[Any], value: Any) -> str | None:
    if isinstance(leaf, spaces.Box):
        if not isinstance(value, np.ndarray) and not (leaf.shape == () and isinstance(value, np.generic)):
            return f"a {type(value).__name__}, its space is of arrays of {leaf.dtype}"
        if not (np.can_cast(value.dtype, leaf.dtype) or value.dtype.kind == leaf.dtype.kind == "f"):
            return f"dtype {value.dtype}, its space says {leaf.dtype}; cast one to the other"
        if value.shape != leaf.shape:
            return f"shape {value.shape}, its space says {leaf.shape}"
        if not np.all((value >= leaf.low) & (value <= leaf.high)):  # NaN neither
            array = np.asarray(value)
            return f"{array[~((array >= leaf.low) & (array <= leaf.high))].flat[0]} is beyond its bounds"
        return None
    return None if leaf.contains(value) else f"{value!r:.60} is not in {leaf}"


def _at(place: Place) -> str:
    return f"{'/'.join(map(str, place))}: " if place else ""
