"""Observations of any space as images and one vector, for trainers that read nothing else.

A space is a tree of `Dict` and `Tuple`; its leaves are images, or numbers that go end to end into the vector: of a
`Discrete` or `MultiDiscrete` one-hot, of all others as they are. An image is a `Box` of uint8 [H, W], [H, W, C] or
[C, H, W] with at least 36 x 36 pixels, which the networks of all libraries can read; smaller ones are numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

LEAST_PIXELS = 36
"""Height and width that three convolutions with kernels 8, 4 and 3 and strides 4, 2 and 1 need."""
ORDERS = ("auto", "hwc", "chw")
BARE = "observation"
"""Key of a space that is no tree."""


@dataclass(frozen=True)
class Leaf:
    """A part of an observation."""

    key: str
    """The names that lead to it, with `/` between."""
    path: tuple[Any, ...]
    space: Any

    def read(self, observation: Any) -> Any:
        """This part of an observation."""
        for name in self.path:
            observation = observation[name]
        return observation


def leaves_of(space: Any, path: tuple[Any, ...] = ()) -> list[Leaf]:
    """The leaves of a space, in its order."""
    from gymnasium.spaces import Dict, Tuple

    if isinstance(space, Dict):
        entries: list[tuple[Any, Any]] = list(space.spaces.items())
    elif isinstance(space, Tuple):
        entries = [*enumerate(space.spaces)]
    else:
        return [Leaf("/".join(map(str, path)) or BARE, path, space)]
    return [leaf for name, entry in entries for leaf in leaves_of(entry, (*path, name))]


def order_of(space: Any, image_order: str = "auto") -> str | None:
    """How an image's axes lie, `hw`, `hwc` or `chw`; None if the space is no image.

    Args:
        space: any space that is no tree.
        image_order: one of `ORDERS`; with `auto` the smallest axis has the channels.
    """
    from gymnasium.spaces import Box

    shape = space.shape if isinstance(space, Box) and space.dtype == "uint8" else ()
    if len(shape) == 2:
        order = "hw"
    elif len(shape) != 3:
        return None
    elif image_order != "auto":
        order = image_order
    else:
        order = "chw" if shape[0] <= shape[2] else "hwc"
    return order if min(shape[order.index("h")], shape[order.index("w")]) >= LEAST_PIXELS else None


def why_no_vector(leaf: Leaf) -> str | None:
    """None, or why a leaf that is no image cannot go into a vector."""
    from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete

    if not isinstance(leaf.space, (Box, Discrete, MultiBinary, MultiDiscrete)):
        return "must be a Box, Discrete, MultiDiscrete or MultiBinary"
    return None


def vector_space(leaves: list[Leaf]) -> Any:
    """The float32 `Box` [K] of some leaves, end to end."""
    import numpy as np
    from gymnasium.spaces import Box, flatten_space

    boxes = [flatten_space(leaf.space) for leaf in leaves]
    low, high = (np.concatenate([getattr(box, end).astype(np.float32) for box in boxes]) for end in ("low", "high"))
    return Box(low, high, dtype=np.float32)


def vector_of(leaves: list[Leaf], observation: Any) -> Any:
    """The numbers of some leaves in an observation, end to end: float32 [K]."""
    import numpy as np
    from gymnasium.spaces import flatten

    return np.concatenate(
        [np.asarray(flatten(leaf.space, leaf.read(observation)), np.float32).ravel() for leaf in leaves]
    )
