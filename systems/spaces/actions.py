"""How an action of any space lies in one row of numbers, as a policy chooses it, and what the environment gets of it.

    layout = ActionLayout.of(scenario.action_space)     # parts, in order: Categorical, Bits, Numbers
    env.step(layout.to_env(row))                        # row [K]

A row holds, part by part: the index of a choice, from 0; bits, 0 or 1; numbers, not yet cut to their bounds. `to_env`
adds what a Discrete starts with, and cuts or squashes the numbers, so that what it returns always lies in the space.

Letters: B rows, K numbers of a row, n numbers of a Box.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from numpy.typing import NDArray

from rlbench.harness.contract.scenario import Scenario

Bounds = Literal["clip", "tanh"]
BOUNDS: tuple[Bounds, ...] = get_args(Bounds)
Std = Literal["shared", "learned"]
STDS: tuple[Std, ...] = get_args(Std)
"""Whether all states share the deviation of numbers, or the network gives it."""

RULE = "must be a Discrete, MultiDiscrete, MultiBinary or Box, or Dict and Tuple of these"
EXACT = 2.0**53
"""Up to here float64 has every whole number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Categorical:
    """One choice among `num`; one number of a row."""

    num: int
    start: int
    """What the environment calls the first of them."""

    @property
    def size(self) -> int:
        """How many numbers of a row it takes."""
        return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Bits:
    """As many independent choices between 0 and 1; `num` numbers of a row."""

    num: int

    @property
    def size(self) -> int:
        """How many numbers of a row it takes."""
        return self.num


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Numbers:
    """The n numbers of a Box, the last axis fastest."""

    low: NDArray[np.float32]
    """[n]; -inf where there is none."""
    high: NDArray[np.float32]
    """[n]; inf where there is none."""
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    """The environment's; numbers of an integer Box are rounded."""

    @property
    def size(self) -> int:
        """How many numbers of a row it takes."""
        return len(self.low)


Part = Categorical | Bits | Numbers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ActionLayout:
    """The parts of an action, in the order of their numbers in a row; made by `of`."""

    parts: tuple[Part, ...]
    bounds: Bounds
    """How numbers come within the bounds of their Box: cut (`clip`), or squashed by a `tanh`."""
    reader: _Reader = field(repr=False)

    @classmethod
    def of(cls, space: Space[Any], bounds: Bounds = "clip") -> ActionLayout:
        """Lays out the actions of a space.

        Args:
            space: Discrete, MultiDiscrete, MultiBinary, Box, or Dict and Tuple of these, one inside the other.
            bounds: how numbers come within the bounds of their Box.

        Raises:
            ValueError: no policy acts in the space, or a Box has no bounds that a `tanh` could squash into.
        """
        if bounds not in BOUNDS:
            raise ValueError(f"action bounds {bounds!r}: unknown; must be one of: {', '.join(BOUNDS)}")
        parts: list[Part] = []
        reader = _lay_out(space, "", bounds, parts)
        if not parts:
            raise ValueError(f"action space {_line(space)}: has nothing to choose; {RULE}, and not empty")
        return cls(parts=tuple(parts), bounds=bounds, reader=reader)

    @property
    def size(self) -> int:
        """K, how many numbers one action is."""
        return sum(part.size for part in self.parts)

    @property
    def dtype(self) -> type[np.int64 | np.float32]:
        """Of rows: int64, or float32 if there is a Box."""
        return np.float32 if any(isinstance(part, Numbers) for part in self.parts) else np.int64

    @property
    def is_discrete(self) -> bool:
        """Whether an action is one choice, and nothing else."""
        return len(self.parts) == 1 and isinstance(self.parts[0], Categorical)

    def to_env(self, rows: NDArray[Any]) -> Any:
        """What environments get; it shares no memory with the rows.

        A row [K]: an int for a Discrete, else arrays, in dicts and tuples. Rows [B, K]: the same values in arrays
        [B, ...], as vector environments of gymnasium get them.
        """
        return self.reader.read(rows)


def layout_of(scenario: Scenario) -> ActionLayout:
    """The layout of a scenario's actions. Raises ValueError as `ActionLayout.of`."""
    return ActionLayout.of(scenario.action_space, getattr(scenario, "action_bounds", "clip"))


class _Reader(Protocol):
    """Reads its own columns of rows."""

    def read(self, rows: NDArray[Any]) -> Any:
        """The action of one row [K], or those of a batch [B, K]."""


@dataclass(frozen=True, slots=True)
class _Choice:
    at: int
    start: int
    dtype: np.dtype[Any]

    def read(self, rows: NDArray[Any]) -> Any:
        if rows.ndim == 1:
            return int(rows[self.at]) + self.start
        return (rows[:, self.at].astype(np.int64) + self.start).astype(self.dtype, copy=False)


@dataclass(frozen=True, slots=True, eq=False)
class _Integers:
    columns: slice
    start: NDArray[np.int64]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def read(self, rows: NDArray[Any]) -> NDArray[Any]:
        values = rows[..., self.columns].astype(np.int64) + self.start
        return values.astype(self.dtype, copy=False).reshape((*rows.shape[:-1], *self.shape))


@dataclass(frozen=True, slots=True, eq=False)
class _Bounded:
    columns: slice
    low: NDArray[np.floating[Any]]  # [n], finite, as high
    high: NDArray[np.floating[Any]]
    half: NDArray[np.float64] | None  # (high - low) / 2 if numbers are squashed
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def read(self, rows: NDArray[Any]) -> NDArray[Any]:
        values = rows[..., self.columns]
        if self.half is not None:
            values = self.low + (np.tanh(values.astype(np.float64)) + 1) * self.half
        if self.dtype.kind != "f":
            values = np.rint(values)
        values = np.minimum(np.maximum(values, self.low), self.high)
        numbers: NDArray[Any] = values.astype(self.dtype, copy=False)
        return numbers.reshape((*rows.shape[:-1], *self.shape))


@dataclass(frozen=True, slots=True)
class _Entries:
    entries: tuple[tuple[Any, _Reader], ...]

    def read(self, rows: NDArray[Any]) -> dict[Any, Any]:
        return {key: entry.read(rows) for key, entry in self.entries}


@dataclass(frozen=True, slots=True)
class _Items:
    items: tuple[_Reader, ...]

    def read(self, rows: NDArray[Any]) -> tuple[Any, ...]:
        return tuple(item.read(rows) for item in self.items)


def _lay_out(space: Space[Any], path: str, bounds: Bounds, parts: list[Part]) -> _Reader:
    """Appends the space's parts; returns what reads them. `path` is where it lies in the whole, with a slash behind."""
    at = sum(part.size for part in parts)
    match space:
        case Discrete():
            parts.append(Categorical(num=int(space.n), start=int(space.start)))
            return _Choice(at, int(space.start), space.dtype)
        case MultiDiscrete():
            start = space.start.ravel().astype(np.int64)
            nums = zip(space.nvec.ravel().tolist(), start.tolist(), strict=True)
            parts.extend(Categorical(num=num, start=first) for num, first in nums)
            return _Integers(slice(at, at + start.size), start, space.nvec.shape, space.dtype)
        case MultiBinary():
            shape = tuple(space.shape or ())
            num = int(np.prod(shape))
            parts.extend([Bits(num=num)] if num else [])
            return _Integers(slice(at, at + num), np.zeros(num, np.int64), shape, np.dtype(np.int8))
        case Box():
            return _lay_out_box(space, path, bounds, parts, at)
        case Dict():
            entries = space.spaces.items()
            return _Entries(tuple((key, _lay_out(of, f"{path}{key}/", bounds, parts)) for key, of in entries))
        case Tuple():
            items = enumerate(space.spaces)
            return _Items(tuple(_lay_out(of, f"{path}{index}/", bounds, parts) for index, of in items))
        case _:
            raise ValueError(f"action space {_named(space, path)}: no policy acts in it; {RULE}")


def _lay_out_box(space: Box, path: str, bounds: Bounds, parts: list[Part], at: int) -> _Reader:
    low, high = space.low.ravel(), space.high.ravel()
    shape, dtype = space.low.shape, space.low.dtype
    with np.errstate(over="ignore"):
        numbers = Numbers(low=low.astype(np.float32), high=high.astype(np.float32), shape=shape, dtype=dtype)
    half = None
    if bounds == "tanh":
        is_finite = space.is_bounded() and bool(np.isfinite(numbers.low).all() and np.isfinite(numbers.high).all())
        if not (is_finite and (numbers.low < numbers.high).all()):
            raise ValueError(
                f"action space {_named(space, path)}: action bounds tanh need a finite low below a finite high for "
                "every number; use clip, or a space with such bounds"
            )
        half = (high.astype(np.float64) - low.astype(np.float64)) / 2
    parts.extend([numbers] if numbers.size else [])
    return _Bounded(slice(at, at + numbers.size), _limits(low), _limits(high), half, shape, dtype)


def _limits(bounds: NDArray[Any]) -> NDArray[np.floating[Any]]:
    """Bounds as floats, all finite, that never lie outside of the given ones."""
    if bounds.dtype.kind == "f":  # what is too large for the environment's precision would become infinite
        return np.clip(bounds, np.finfo(bounds.dtype).min, np.finfo(bounds.dtype).max)
    floats = bounds.astype(np.float64)
    return np.where(np.abs(floats) > EXACT, np.nextafter(floats, 0), floats)  # they may have been rounded outwards


def _named(space: Space[Any], path: str) -> str:
    return f"{path[:-1]!r}, {_line(space)}" if path else _line(space)


def _line(space: Space[Any]) -> str:
    """The space in one line; long arrays of bounds are written over several."""
    return " ".join(str(space).split())
