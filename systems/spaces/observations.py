"""The leaves of an observation space: its Boxes and counted values, under the names that they have in a table.

A space nests as it likes; a table has one column for each leaf, called by the path that leads to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

BARE = "observation"
"""The key of a space that is a leaf itself."""

Step = str | int
LeafSpace = Box | Discrete[Any] | MultiDiscrete | MultiBinary


@dataclass(frozen=True, kw_only=True, slots=True)
class Leaf:
    """A part of an observation space that has no parts."""

    key: str
    """The steps of its path, joined by `/`; `BARE` without any."""
    path: tuple[Step, ...]
    """What leads to it: keys of Dicts, places in Tuples."""
    space: LeafSpace

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one value; () for a Discrete."""
        return tuple(self.space.shape or ())

    @property
    def dtype(self) -> np.dtype[Any]:
        """A Box's own, int8 for a MultiBinary, int64 for a Discrete or a MultiDiscrete."""
        match self.space:
            case Box():
                return np.dtype(self.space.dtype)
            case MultiBinary():
                return np.dtype(np.int8)
            case _:
                return np.dtype(np.int64)

    def read(self, observation: Any) -> Any:
        """This leaf's value in an observation of the whole space."""
        for step in self.path:
            observation = observation[step]
        return observation


def leaves_of(space: gymnasium.Space[Any]) -> tuple[Leaf, ...]:
    """The leaves of a space, depth first, in the order of its entries.

    Raises:
        ValueError: one is of a kind that has no fixed size, such as Text, or two have the same key.
    """
    leaves = tuple(_walk(space, ()))
    seen = set[str]()
    for leaf in leaves:
        if leaf.key in seen:
            raise ValueError(f"observation '{leaf.key}': must be one entry, are two; rename one")
        seen.add(leaf.key)
    return leaves


def _walk(space: gymnasium.Space[Any], path: tuple[Step, ...]) -> Iterator[Leaf]:
    match space:
        case Dict():
            for name, inner in space.spaces.items():
                yield from _walk(inner, (*path, name))
        case Tuple():
            for place, inner in enumerate(space.spaces):
                yield from _walk(inner, (*path, place))
        case Box() | Discrete() | MultiDiscrete() | MultiBinary():
            yield Leaf(key=_key(path), path=path, space=space)
        case _:
            raise ValueError(
                f"observation '{_key(path)}': must be a Box, Discrete, MultiDiscrete or MultiBinary, "
                f"or a Dict or Tuple of these, is {type(space).__name__}; leave it out with a wrapper"
            )


def _key(path: tuple[Step, ...]) -> str:
    return "/".join(map(str, path)) or BARE
