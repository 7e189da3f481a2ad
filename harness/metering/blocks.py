"""The blocks of neighbouring environments in a meter file, which the process that steps them as one writes together.

Neighbours' blocks lie at equal distances, so a counter of all of them is an array with a stride, [B]. All that is said
of one block in `harness/metering/meter_file.py` holds: every word is 8 aligned bytes and written whole; a span's place
is written before the number of spans goes up; a killed process leaves what it had counted, perhaps of some blocks only.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from rlbench.harness.metering.meter_file import (
    CPU_AT,
    CPU_OF_AT,
    INT_COUNTERS,
    NUM_SPANS_AT,
    RING_AT,
    SPANS,
    TOTALS_AT,
    WORD_OF,
    MeterFile,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float64]
    Mask = npt.NDArray[np.bool_]


class Blocks:
    """B neighbouring environments' blocks of one writer."""

    def __init__(self, file: MeterFile, first: int, num: int) -> None:
        """From block `first` on, `num` of them."""
        self._ints: Ints = np.frombuffer(file.ints, np.int64)
        self._floats: Floats = self._ints.view(np.float64)
        self._at = file.block_at(first)
        self._stride = file.block_at(first + 1) - self._at
        self._num = num
        self._num_spans: Ints = self._ints[self._column(NUM_SPANS_AT)]
        rings = self._at + RING_AT + self._stride * np.arange(num)
        num_places = file.span_capacity(first) + 1
        self._ring_words, self._ring_ends = 3 * num_places, rings + 3 * num_places
        self._places = rings + 3 * (self._num_spans % num_places)
        """Where the next span of each block begins, [B]; kept here, since this process is their only writer."""
        self._totals: list[Floats] = [self._floats[self._column(TOTALS_AT + kind)] for kind in range(len(SPANS))]
        self.counter("pid")[:] = os.getpid()

    def __len__(self) -> int:
        """B."""
        return self._num

    def _column(self, word: int) -> slice:
        begin = self._at + word
        return slice(begin, begin + self._stride * (self._num - 1) + 1, self._stride)

    def counter(self, name: str) -> Ints:
        """An integer counter of each block, [B]; to write to it is to count."""
        assert name in INT_COUNTERS
        return self._ints[self._column(WORD_OF[name])]

    def seconds(self, name: str) -> Floats:
        """A float counter of each block, [B]; to write to it is to count."""
        assert name not in INT_COUNTERS
        return self._floats[self._column(WORD_OF[name])]

    def span_seconds(self, kind: int) -> Floats:
        """Seconds spent in a kind of span, [B], of each block; to write to it is to count."""
        return self._totals[kind]

    def add_cpu(self, kind: int, used_s: float, took_s: float) -> None:
        """Adds CPU time to that of a kind of span of each block, and the time in which it was used."""
        for word, amount in ((CPU_AT + kind, used_s), (CPU_OF_AT + kind, took_s)):
            add(self._floats[self._column(word)], amount)

    def put_spans(self, kind: int, begin: float, end: float, which: Mask | None = None) -> None:
        """Records the same span in each block, or in those of the mask [B]."""
        add(self._totals[kind], end - begin, which)
        places = self._places if which is None else self._places[which]
        self._floats[places] = begin
        self._floats[places + 1] = end
        self._ints[places + 2] = kind
        add(self._num_spans, 1, which)
        add(self._places, 3, which)
        if (over := self._places >= self._ring_ends).any():
            self._places[over] -= self._ring_words

    def put_spans_of(self, kind: int, begins: Floats, end: float, of: npt.NDArray[np.intp]) -> None:
        """Records in the blocks `of` [K], each once, a span from their own begins, [K], to the same end."""
        self._totals[kind][of] += end - begins
        places = self._places[of]
        self._floats[places] = begins
        self._floats[places + 1] = end
        self._ints[places + 2] = kind
        self._num_spans[of] += 1
        places += 3
        self._places[of] = np.where(places >= self._ring_ends[of], places - self._ring_words, places)


def add(column: Ints | Floats, amount: float | Ints | Floats, which: Mask | None = None) -> None:
    """Adds a number, or one for each block, [B], to a counter of each block, or of those of the mask [B]."""
    np.add(column, amount, out=column, where=True if which is None else which)
