"""Wrappers that give a library's trainer spaces it can read: rlbench's own adapters use them.

A trainer calls `plain` in the process that steps the environment. This module imports gymnasium.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple

from rlbench_client.flat import leaves_of, order_of, vector_of, vector_space

VECTOR = "vector"
"""Key of all numbers of an observation that has images too."""


def plain(env: Any, *, image_order: str = "auto", actions: str = "as they are") -> Any:
    """An environment that shows one image [C, H, W], one vector float32 [K], or a `Dict` of images and a vector.

    Args:
        env: of `rlbench_client.make_env()`.
        image_order: how its images lie, `hwc`, `chw` or `auto`.
        actions: `as they are`; `row`, a `Box` then is float32 [K] without bounds, and what is chosen is clipped to the
            environment's own; or `parts`, where a `MultiDiscrete` also is a `Tuple` of `Discrete`, and a `Tuple` is one
            of `Discrete` and such a `Box`.
    """
    env = PlainObservations(env, image_order)
    return {"as they are": lambda env: env, "row": RowOfNumbers, "parts": Parts}[actions](env)


class PlainObservations(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Shows one image, one vector, or a `Dict` of images and a vector called `vector`."""

    def __init__(self, env: Any, image_order: str) -> None:
        super().__init__(env)
        leaves = leaves_of(env.observation_space)
        self._images = [(leaf, order) for leaf in leaves if (order := order_of(leaf.space, image_order))]
        images = [leaf for leaf, _ in self._images]
        self._numbers = [leaf for leaf in leaves if leaf not in images]
        spaces: dict[str, Any] = {
            leaf.key: Box(0, 255, channels_first(leaf.space.low, order).shape, np.uint8) for leaf, order in self._images
        }
        if self._numbers:
            spaces[VECTOR] = vector_space(self._numbers)
        self._only = next(iter(spaces)) if len(spaces) == 1 else None
        self.observation_space = spaces[self._only] if self._only else Dict(spaces)

    def observation(self, observation: Any) -> Any:
        """An observation in this form."""
        shown = {leaf.key: channels_first(leaf.read(observation), order) for leaf, order in self._images}
        if self._numbers:
            shown[VECTOR] = vector_of(self._numbers, observation)
        return shown[self._only] if self._only else shown


def channels_first(image: Any, order: str) -> Any:
    """An image [C, H, W] of one whose axes lie in that order."""
    if order == "hw":
        return image[None]
    return np.ascontiguousarray(image.transpose(2, 0, 1)) if order == "hwc" else image


class RowOfNumbers(gymnasium.ActionWrapper[Any, Any, Any]):
    """Takes the numbers of a `Box` as a row without bounds and clips them; other actions pass."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        if isinstance(env.action_space, Box):
            self.action_space = row_of(env.action_space)

    def action(self, action: Any) -> Any:
        """What the environment gets."""
        inside = self.env.action_space
        return clipped(inside, action) if isinstance(inside, Box) else action


class Parts(gymnasium.ActionWrapper[Any, Any, Any]):
    """Takes `Discrete`, a row of numbers, or a `Tuple` of these."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        space = env.action_space
        self._inside = list(space.spaces) if isinstance(space, Tuple) else [space]
        parts = [part for entry in self._inside for part in parts_of(entry)]
        is_one = len(parts) == 1 and not isinstance(space, (Tuple, MultiDiscrete))
        self.action_space = parts[0] if is_one else Tuple(parts)

    def action(self, action: Any) -> Any:
        """What the environment gets of a number, an array, or a sequence of these."""
        parts = action if isinstance(action, (list, tuple)) else [action]
        row = np.concatenate([np.ravel(part) for part in parts])
        taken = []
        for space in self._inside:
            size = sum(np.prod(part.shape, dtype=int) for part in parts_of(space))
            numbers, row = row[:size], row[size:]
            if isinstance(space, Discrete):
                taken.append(int(numbers[0]))
            else:
                taken.append(clipped(space, numbers) if isinstance(space, Box) else numbers.astype(space.dtype))
        return tuple(taken) if isinstance(self.env.action_space, Tuple) else taken[0]


def parts_of(space: Any) -> list[Any]:
    """What a policy chooses for a `Discrete`, `MultiDiscrete` or `Box`, one after the other."""
    if isinstance(space, MultiDiscrete):
        return [Discrete(int(num)) for num in space.nvec]
    return [row_of(space)] if isinstance(space, Box) else [space]


def row_of(space: Any) -> Any:
    """Float32 [K] without bounds."""
    return Box(-np.inf, np.inf, (int(np.prod(space.shape, dtype=int)),), np.float32)


def clipped(space: Any, numbers: Any) -> Any:
    """Numbers [K] as an action of a `Box`, clipped to its bounds."""
    return np.clip(np.reshape(numbers, space.shape), space.low, space.high).astype(space.dtype)
