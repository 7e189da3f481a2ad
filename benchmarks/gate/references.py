"""Reference work, none of it our code, of the kinds that hot paths do: their times are divided by its times."""

from __future__ import annotations

import fcntl

import numpy as np


class Interpreted:
    """Interpreted code: calls, attributes, floats, a dictionary."""

    def __init__(self) -> None:
        self._total, self._of = 0.0, dict.fromkeys(range(8), 0.0)

    def __call__(self) -> None:
        """Adds 8 numbers up, and their squares by key."""
        for key in self._of:
            self._add(key, 0.5)

    def _add(self, key: int, amount: float) -> None:
        self._total += amount
        self._of[key] += amount * amount


class Grouping:
    """Interpreted code over many objects, with arrays made of them."""

    def __init__(self, num: int, num_keys: int) -> None:
        generator = np.random.default_rng(0)
        self._pairs = [(int(key), value) for value, key in enumerate(generator.integers(num_keys, size=num))]

    def __call__(self) -> None:
        """Groups pairs by key, makes an array of each group, and sorts all of them."""
        groups: dict[int, list[int]] = {}
        for key, value in self._pairs:
            groups.setdefault(key, []).append(value)
        np.argsort(np.concatenate([np.array(group) for group in groups.values()]), kind="stable")


class SmallArrays:
    """Numpy on a few hundred numbers, where most of the time goes into getting from one operation to the next."""

    def __init__(self) -> None:
        generator = np.random.default_rng(0)
        self._rows, self._weights = generator.random((4, 64), np.float32), generator.random(64, np.float32)
        self._column, self._chosen = np.zeros(256, np.int64), np.arange(4)

    def __call__(self) -> None:
        """Multiplies, applies a function, and copies chosen entries; without BLAS, which differs by processor."""
        out = self._rows * self._weights
        np.tanh(out, out=out)
        self._column[self._chosen] = self._column[self._chosen + 4]


class Writing:
    """Interpreted code that looks at a frame, and writes it and some numbers to arrays."""

    def __init__(self) -> None:
        self._frame, self._frames = np.ones((64, 64), np.float32), np.zeros((8, 64, 64), np.float32)
        self._columns = [np.zeros(8, np.float32) for _ in range(4)]
        self._interpreted = Interpreted()

    def __call__(self) -> None:
        """Writes one row."""
        self._interpreted()
        flat = self._frame.ravel()
        for column in self._columns:
            column[4] = flat.dot(flat) if column is self._columns[0] else 1.0
        self._frames[4] = self._frame


class Layers:
    """Products of a few rows with two layers of weights, each followed by a function, in numpy.

    The weights lie as in torch, [out, in], and are as many as those of an LSTM's gates, because OpenBLAS with AVX-512
    has special code for some shapes, which takes a quarter of the time.
    """

    def __init__(self) -> None:
        generator = np.random.default_rng(0)
        self._rows = generator.random((4, 128), np.float32)
        self._layers = generator.random((2, 512, 128), np.float32)

    def __call__(self) -> None:
        """Passes the rows through."""
        rows = self._rows
        for weights in self._layers:
            gates = rows @ weights.T
            np.tanh(gates, out=gates)
            rows = gates[:, :128].copy()


class Sorting:
    """Sorting of doubles."""

    def __init__(self, num: int) -> None:
        self._numbers = np.random.default_rng(0).random(num)

    def __call__(self) -> None:
        """Sorts a copy."""
        np.sort(self._numbers)


class Locking:
    """Kernel calls for a record lock on a file, around interpreted code."""

    def __init__(self, fd: int) -> None:
        self._fd, self._interpreted = fd, Interpreted()

    def __call__(self) -> None:
        """Takes the lock and frees it."""
        fcntl.lockf(self._fd, fcntl.LOCK_EX)
        self._interpreted()
        fcntl.lockf(self._fd, fcntl.LOCK_UN)
