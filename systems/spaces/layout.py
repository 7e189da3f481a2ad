"""What policy networks read from an observation space: images and vectors, by the keys of the space's leaves.

Letters: C channels, H x W pixels, K numbers of a vector.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import gymnasium
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from rlbench.systems.spaces.images import USUAL_CHANNELS, Image, image_of
from rlbench.systems.spaces.observations import Leaf, leaves_of

PIXELS = "pixels"
DEPTH = "depth"
LEAST_SIZES: Mapping[str, int] = {"small": 24, "conv": 36, "nature": 36, "resnet": 64, "auto": 36}
"""The fewest pixels in a row or column of an image that the convolutions of each kind of policy read; `auto` has others
for smaller images."""
MOST_CLASSES = 65_536
"""Most numbers to which the counted values of a leaf are spread."""


USUAL = {PIXELS: ("chw", 255), DEPTH: ("chw", 1)}
"""The order and the divisor of the images that are known by name, unless `Layout.readings` says otherwise."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Classes:
    """The counted values of a leaf, each of which is read as a one-hot vector."""

    sizes: tuple[int, ...]
    """How many classes each value has."""
    starts: tuple[int, ...]
    """The first class of each value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """The leaves of an observation space, sorted into images and vectors."""

    images: Mapping[str, tuple[int, int, int]]
    """(C, H, W) of each image: `pixels` and `depth`, where the space has them, and others that `image_of` finds."""
    vectors: Mapping[str, int]
    """K of every other leaf that holds a number: a vector is the flattened Box or MultiBinary, or its classes."""
    readings: Mapping[str, Image] = field(default_factory=dict)
    """How the images besides `pixels` and `depth` are read. Those two are [C, H, W] if they are not here."""
    classes: Mapping[str, Classes] = field(default_factory=dict)
    """The vectors that are Discrete or MultiDiscrete."""
    numbers: Mapping[str, int] = field(default_factory=dict)
    """K of the vectors that are Boxes, which may be normalised."""

    @classmethod
    def of(cls, space: gymnasium.Space[Any], image_order: str = "auto") -> Layout:
        """Sorts a space's leaves.

        Args:
            space: any of Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple.
            image_order: one of `systems.spaces.images.ORDERS`.

        Raises:
            ValueError: no policy network reads this space.
        """
        images: dict[str, tuple[int, int, int]] = {}
        vectors: dict[str, int] = {}
        readings: dict[str, Image] = {}
        classes: dict[str, Classes] = {}
        numbers: dict[str, int] = {}
        for leaf in leaves_of(space):
            image = _image_of(leaf, image_order)
            if image is not None:
                images[leaf.key] = image.shape
                if (image.order, image.divisor) != USUAL.get(leaf.key):
                    readings[leaf.key] = image
            elif isinstance(leaf.space, Discrete | MultiDiscrete):
                classes[leaf.key] = _classes_of(leaf.key, leaf.space)
                vectors[leaf.key] = sum(classes[leaf.key].sizes)
            elif size := prod(leaf.shape):
                vectors[leaf.key] = size
                if isinstance(leaf.space, Box):
                    numbers[leaf.key] = size
        if not images and not vectors:
            raise ValueError("observation space: must have an entry, is empty")
        return cls(images=images, vectors=vectors, readings=readings, classes=classes, numbers=numbers)

    @property
    def vector_size(self) -> int:
        """K of all vectors together."""
        return sum(self.vectors.values())

    @property
    def stacked(self) -> tuple[str, ...]:
        """The images' keys in the order in which they are stacked: `pixels`, `depth`, and others as in the space."""
        return tuple(sorted(self.images, key=lambda key: (key != PIXELS, key != DEPTH)))

    def with_images(self, *keys: str) -> Layout:
        """The same with these images alone, and without vectors."""
        return Layout(images={key: self.images[key] for key in keys}, vectors={}, readings=self.readings)

    @property
    def pictures(self) -> Layout:
        """The images besides `depth` alone, which are all that the convolutions of policy `small` read."""
        return self.with_images(*(key for key in self.stacked if key != DEPTH))

    def check(self, kind: str) -> None:
        """Raises ValueError if policies of this kind do not read these observations."""
        if kind == "small" and self.pictures.images:
            self.pictures.image_shape(kind)
        elif kind not in {"small", "auto"}:
            self.image_shape(kind)

    def image_shape(self, kind: str) -> tuple[int, int, int]:
        """(C, H, W) of all images stacked by channel, for the convolutions of a kind of policy.

        Raises:
            ValueError: there is no image, their sizes differ, or they are smaller than `LEAST_SIZES` says.
        """
        sizes = {shape[1:] for shape in self.images.values()}
        if not sizes:
            raise ValueError(
                f"policy {kind}: must have '{PIXELS}' or '{DEPTH}' or another image to look at, "
                f"got {', '.join(self.vectors)}; use policy small or auto"
            )
        if len(sizes) > 1:
            names = " and ".join(f"'{key}'" for key in self.stacked)
            raise ValueError(f"policy {kind}: {names} must have one size, have {dict(self.images)}; use policy auto")
        least = LEAST_SIZES[kind]
        height, width = sizes.pop()
        if min(height, width) < least:
            raise ValueError(
                f"policy {kind}: images must be at least {least}x{least}, are {height}x{width}; "
                "raise the resolution or use policy small or auto"
            )
        return sum(shape[0] for shape in self.images.values()), height, width


def _image_of(leaf: Leaf, image_order: str) -> Image | None:
    """How a leaf is read as an image; `pixels` and `depth` must be such, channels first unless the scenario says so."""
    if leaf.key not in {PIXELS, DEPTH}:
        return image_of(leaf.key, leaf.space, image_order) if isinstance(leaf.space, Box) else None
    if not isinstance(leaf.space, Box):
        raise ValueError(f"observation '{leaf.key}': must be a Box, is {leaf.space}")  # noqa: TRY004  # a user's error
    if len(leaf.shape) != 3:
        raise ValueError(f"observation '{leaf.key}': must have shape (C, H, W), has {leaf.shape}")
    first, second, third = leaf.shape
    if image_order == "auto" and third in USUAL_CHANNELS and min(first, second) > max(USUAL_CHANNELS):
        raise ValueError(
            f"observation '{leaf.key}': must have shape (C, H, W), has {leaf.shape}; "
            "set image_order=hwc if the channels come last"
        )
    if leaf.key == DEPTH and leaf.dtype.kind != "f":
        raise ValueError(f"observation '{DEPTH}': must be metres as floats, is {leaf.dtype}; rename it with a wrapper")
    divisor = 255 if leaf.dtype == "u1" else 1
    if image_order == "hwc":
        return Image(order="hwc", shape=(third, first, second), divisor=divisor)
    return Image(order="chw", shape=(first, second, third), divisor=divisor)


def _classes_of(key: str, space: Discrete[Any] | MultiDiscrete) -> Classes:
    """The classes of a leaf; raises ValueError if they are too many to be spread."""
    if isinstance(space, Discrete):
        classes = Classes(sizes=(int(space.n),), starts=(int(space.start),))
    else:
        sizes, starts = space.nvec.reshape(-1).tolist(), space.start.reshape(-1).tolist()
        classes = Classes(sizes=tuple(sizes), starts=tuple(starts))
    if sum(classes.sizes) > MOST_CLASSES:
        raise ValueError(
            f"observation '{key}': must have at most {MOST_CLASSES} classes, has {sum(classes.sizes)}; "
            "give the numbers as a Box"
        )
    return classes
