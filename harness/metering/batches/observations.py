"""The observations of a batch of environments: are they what the scenario states? An episode's last one is kept.

A batched observation has the structure of the scenario's observation space, dicts and tuples, with an array [B, ...]
for each leaf: each Box, Discrete, MultiDiscrete or MultiBinary. A leaf is named by the path to it, joined with "/".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rlbench.harness.metering.counted import shown

if TYPE_CHECKING:
    import gymnasium
    import numpy.typing as npt

    Array = npt.NDArray[Any]
    Mask = npt.NDArray[np.bool_]

Refuse = Callable[[int | None, str, object, str], ValueError]
"""The error for what environment i of the batch, or all of it, gave: what, the value, the rule."""


@dataclass(frozen=True, slots=True)
class _Leaf:
    path: tuple[Any, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def name(self) -> str:
        return "/".join(map(str, self.path))

    @property
    def about(self) -> str:
        return f"observation {self.name!r}" if self.path else "an observation"


class BatchObservations:
    """Checks batched observations, of B environments with one space."""

    def __init__(self, space: gymnasium.Space[Any], num_envs: int, refuse: Refuse) -> None:
        self._space, self._num_envs, self._refuse = space, num_envs, refuse
        self._leaves = list(_leaves(space, ()))
        self._last: list[Array] | None = None

    def checked(self, observation: Any, rows: Mask | None = None) -> Any:
        """The same observations as arrays of the stated dtypes, [B, ...].

        `rows`, [B], are those that must be finite; None: all. Raises ValueError for anything that a single environment
        may not give either.
        """
        every = np.ones(self._num_envs, np.bool_) if rows is None else rows
        arrays = [self._checked(leaf, observation, (self._num_envs,), every) for leaf in self._leaves]
        return self._packed(arrays)

    def sample(self, observation: Any, rows: npt.NDArray[np.intp]) -> list[Array]:
        """Copies of some environments' rows, for each leaf; of what `checked` gave."""
        return [_read(leaf.path, observation)[rows] for leaf in self._leaves]

    def keep(self, observation: Any, ended: Mask) -> Any:
        """A batched observation with copies of the rows of the mask, [B]; of what `checked` gave.

        Its arrays are used again by the next call.
        """
        for leaf, kept in zip(self._leaves, self._kept(), strict=True):
            kept[ended] = _read(leaf.path, observation)[ended]
        return self._packed(self._kept())

    def keep_each(self, observations: Array, ended: Mask) -> Any:
        """As `keep`, of an array of objects, [B], each one environment's observation, which this checks."""
        one = np.ones(1, np.bool_)
        for i in np.flatnonzero(ended):
            for leaf, kept in zip(self._leaves, self._kept(), strict=True):
                kept[i] = self._checked(leaf, observations[i], (), one, int(i))
        return self._packed(self._kept())

    def spread(self, given: Iterable[tuple[int, Any]]) -> Any:
        """Batched observations of which some rows are given, one by one, and checked here; the others are zeros."""
        arrays = [np.zeros((self._num_envs, *leaf.shape), leaf.dtype) for leaf in self._leaves]
        for row, observation in given:
            for leaf, array in zip(self._leaves, arrays, strict=True):
                array[row] = self._typed(leaf, observation, (), row)
        every = np.ones(self._num_envs, np.bool_)
        for leaf, array in zip(self._leaves, arrays, strict=True):
            self._check_finite(leaf, array, every)
        return self._packed(arrays)

    def _kept(self) -> list[Array]:
        if self._last is None:
            self._last = [np.zeros((self._num_envs, *leaf.shape), leaf.dtype) for leaf in self._leaves]
        return self._last

    def _packed(self, arrays: list[Array]) -> Any:
        return _packed(self._space, iter(arrays))

    def _checked(
        self, leaf: _Leaf, observation: Any, batch: tuple[int, ...], rows: Mask, index: int | None = None
    ) -> Array:
        array = self._typed(leaf, observation, batch, index)
        self._check_finite(leaf, array, rows, index)
        return array

    def _typed(self, leaf: _Leaf, observation: Any, batch: tuple[int, ...], index: int | None) -> Array:
        """A leaf's values in the stated shape and dtype."""
        try:
            array: Array = np.asarray(_read(leaf.path, observation))
        except (LookupError, TypeError, ValueError):
            raise self._refuse(index, "gave the observation", observation, f"one with {leaf.name!r}") from None
        shape = (*batch, *leaf.shape)
        if array.shape != shape:
            raise self._refuse(index, f"gave {leaf.about} of shape", array.shape, f"{shape}")
        return array if array.dtype is leaf.dtype else self._narrowed(leaf, array, index)

    def _check_finite(self, leaf: _Leaf, array: Array, rows: Mask, index: int | None = None) -> None:
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            flat = array.reshape(len(rows), -1)
            bad = np.flatnonzero(rows & ~np.isfinite(flat).all(1))
            if len(bad):
                row = flat[bad[0]]
                at = int(bad[0]) if index is None else index
                raise self._refuse(at, f"gave {leaf.about} with", float(row[~np.isfinite(row)][0]), "finite")

    def _narrowed(self, leaf: _Leaf, array: Array, index: int | None) -> Array:
        """Converts to the stated dtype without loss, or by rounding floats; floats beyond it become infinite."""
        dtype = leaf.dtype
        are_floats = array.dtype.kind == "f" == dtype.kind
        if not are_floats and not np.can_cast(array.dtype, dtype, "safe"):
            raise self._refuse(index, f"gave {leaf.about} of dtype", str(array.dtype), f"{dtype}")
        with np.errstate(over="ignore"):
            return array.astype(dtype)


def _leaves(space: gymnasium.Space[Any], path: tuple[Any, ...]) -> Iterator[_Leaf]:
    for key, inner in _inner(space):
        yield from _leaves(inner, (*path, key))
    if not _is_nested(space):
        if space.shape is None or space.dtype is None:
            raise ValueError(f"observation space {shown(space)}: it has no arrays of one shape, as a batch needs")
        yield _Leaf(path, space.shape, np.dtype(space.dtype))


def _is_nested(space: gymnasium.Space[Any]) -> bool:
    return isinstance(getattr(space, "spaces", None), dict | tuple)


def _inner(space: gymnasium.Space[Any]) -> list[tuple[Any, gymnasium.Space[Any]]]:
    """The spaces in a Dict or Tuple with their keys; none in others."""
    spaces = getattr(space, "spaces", None)
    if isinstance(spaces, dict):
        return list(spaces.items())
    return list(enumerate(spaces)) if isinstance(spaces, tuple) else []


def _read(path: tuple[Any, ...], observation: Any) -> Any:
    for key in path:
        observation = observation[key]
    return observation


def _packed(space: gymnasium.Space[Any], arrays: Iterator[Array]) -> Any:
    if not _is_nested(space):
        return next(arrays)
    packed = [(key, _packed(inner, arrays)) for key, inner in _inner(space)]
    return dict(packed) if isinstance(getattr(space, "spaces", None), dict) else tuple(value for _, value in packed)
