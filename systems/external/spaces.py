"""Which observations and actions each library takes, and why it does not take others.

A trainer reads observations as `rlbench_client.plain` shows them: images, numbers or both. Of actions each library has
kinds of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from rlbench_client.flat import ORDERS, Leaf, leaves_of, order_of, why_no_vector

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.spaces import Box

    Space = gymnasium.Space[Any]

OURS = ("sync", "ver", "appo", "gossip")
"""Systems of rlbench itself to use instead; they take all spaces that a scenario may have."""
LONGEST_SPACE = 80
SeenAs = Literal["numbers", "one image", "several images", "images and numbers"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Takes:
    """The spaces of a library with its adapter."""

    actions: tuple[str, ...] = ("Discrete",)
    """Names of gymnasium's classes."""
    parts: tuple[str, ...] = ()
    """Those that the parts of a `Tuple` may have."""
    observations: tuple[SeenAs, ...] = ("one image",)
    is_bounded: bool = False
    """Whether a `Box` of actions needs finite bounds."""
    bounds: tuple[str, ...] = ("clip",)
    """What it can do with them: values of a scenario's `action_bounds`."""
    std: tuple[str, ...] = ("shared",)
    """Values of a scenario's `action_std`: a parameter for all observations, or an output of the network."""


SAMPLE_FACTORY = Takes(
    actions=("Discrete", "MultiDiscrete", "Box", "Tuple"),
    parts=("Discrete", "MultiDiscrete", "Box"),
    observations=("numbers", "one image"),
    std=("shared", "learned"),
)
RLLIB = Takes(
    actions=("Discrete", "MultiDiscrete", "Box"),
    observations=("numbers", "one image"),
    std=("shared", "learned"),
)
SB3 = Takes(
    actions=("Discrete", "MultiDiscrete", "MultiBinary", "Box"),
    observations=("numbers", "one image", "several images", "images and numbers"),
    is_bounded=True,
)
TORCHRL = Takes(actions=("Discrete", "Box"), observations=("numbers", "one image"))
LIBRARIES: Mapping[str, Takes] = {
    "sb3-ppo": SB3,
    "sample-factory": SAMPLE_FACTORY,
    "rllib-appo": RLLIB,
    "rllib-impala": RLLIB,
    "torchrl-ppo": TORCHRL,
}
"""Systems of libraries to use instead, where they take a scenario's spaces."""


def why_not_spaces(
    takes: Takes, observation_space: Space, action_space: Space, image_order: str = "auto"
) -> str | None:
    """None, or what a library does not take of a scenario's spaces and what it takes: one line."""
    return why_not_actions(takes, action_space) or why_not_observations(takes, observation_space, image_order)


def why_not_actions(takes: Takes, space: Space) -> str | None:
    """None, or why a library does not take these actions."""
    kind = type(space).__name__
    if kind not in takes.actions:
        return f"actions {in_words(space)}: it takes {_or(takes.actions)}"
    parts = list(getattr(space, "spaces", ())) if kind == "Tuple" else [space]
    for part in parts:
        if kind == "Tuple" and type(part).__name__ not in takes.parts:
            return f"actions {in_words(space)}: it takes a Tuple of {_or(takes.parts)}"
        if reason := _why_not_part(takes, part):
            return f"actions {in_words(part)}: {reason}"
    return None if parts else f"actions {in_words(space)}: must have a part"


def _why_not_part(takes: Takes, space: Any) -> str | None:
    match type(space).__name__:
        case "Discrete":
            return None if int(space.start) == 0 else "it counts actions from 0"
        case "MultiDiscrete":
            if space.nvec.ndim != 1:
                return "it takes one row of numbers"
            return "it counts actions from 0" if getattr(space, "start", space.nvec * 0).any() else None
        case "MultiBinary":
            return None if len(space.shape) == 1 else "it takes one row of bits"
        case _:
            return _why_not_box(takes, space)


def _why_not_box(takes: Takes, box: Box) -> str | None:
    if box.dtype.kind != "f":
        return "it takes a Box of floats"
    if not box.shape or not all(box.shape):
        return "it takes a Box with an axis and at least one number"
    return "it takes a Box with finite bounds" if takes.is_bounded and not box.is_bounded("both") else None


def why_not_observations(takes: Takes, space: Space, image_order: str = "auto") -> str | None:
    """None, or why a library does not take these observations."""
    if image_order not in ORDERS:
        return f"image_order={image_order}: unknown; known: {', '.join(ORDERS)}"
    leaves = leaves_of(space)
    if not leaves:
        return "observations: must have an entry"
    for leaf in leaves:
        if order_of(leaf.space, image_order) is None and (reason := _why_no_number(leaf)):
            return f"observation {leaf.key} {in_words(leaf.space)}: {reason}"
    seen = seen_as(space, image_order)
    if seen in takes.observations:
        return None
    return f"observations {in_words(space)} are {seen}: it takes {_or(takes.observations)}"


def _why_no_number(leaf: Leaf) -> str | None:
    """None, or why a leaf that no library sees as an image is none of the numbers either."""
    if reason := why_no_vector(leaf):
        return reason
    is_image = len(leaf.space.shape or ()) == 3 and min(sorted(leaf.space.shape)[1:]) >= _LEAST_OF_FLOATS
    return "it takes images of uint8" if is_image and leaf.space.dtype.kind == "f" else None


_LEAST_OF_FLOATS = 16
"""Floats with three axes, two of which are at least as long as this, are an image."""


def seen_as(space: Space, image_order: str = "auto") -> SeenAs:
    """What a trainer sees of observations."""
    leaves = leaves_of(space)
    num_images = sum(order_of(leaf.space, image_order) is not None for leaf in leaves)
    if num_images == 0:
        return "numbers"
    if num_images < len(leaves):
        return "images and numbers"
    return "one image" if num_images == 1 else "several images"


def what_else(observation_space: Space, action_space: Space, image_order: str = "auto") -> str:
    """Systems that take these spaces, for a message that says that one does not."""
    spaces = observation_space, action_space, image_order
    return ", ".join((*OURS, *(name for name, takes in LIBRARIES.items() if why_not_spaces(takes, *spaces) is None)))


def has_numbers(space: Space) -> bool:
    """Whether an action has numbers of a `Box`."""
    parts = getattr(space, "spaces", [space])
    return any(type(part).__name__ == "Box" for part in parts)


def in_words(space: Space) -> str:
    """A space on one line."""
    text = " ".join(str(space).split())
    return text if len(text) <= LONGEST_SPACE else f"{text[: LONGEST_SPACE - 1]}…"


def _or(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
