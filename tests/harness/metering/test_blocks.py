from __future__ import annotations

import multiprocessing
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbench.harness.metering.blocks import Blocks, add
from rlbench.harness.metering.meter_file import KIND_OF, SPANS, Block, MeterFile, meter_path

SIMULATE = KIND_OF["simulate"]
NUM = 3


@settings(deadline=None)
@given(
    capacity=st.integers(1, 4),
    spans=st.lists(
        st.tuples(
            st.integers(0, len(SPANS) - 1),
            st.none() | st.lists(st.booleans(), min_size=NUM, max_size=NUM).map(np.array),
        ),
        max_size=12,
    ),
)
def test_blocks_write_what_each_block_writes(capacity: int, spans: list[tuple[int, Any]]) -> None:
    """Word by word, whatever the masks and however small the rings, and nothing beside them."""
    with tempfile.TemporaryDirectory() as name:
        files = [MeterFile.create(Path(name) / each, NUM + 2, capacity) for each in ("one", "other")]
        together, apart = Blocks(files[0], 2, NUM), [Block(files[1], 2 + i) for i in range(NUM)]
        assert len(together) == NUM
        for number, (kind, which) in enumerate(spans):
            together.put_spans(kind, number / 8, number / 4, which)
            add(together.counter("frames"), number, which)
            add(together.seconds("step_s"), number / 2, which)
            together.add_cpu(kind, 0.5, number)
            for i, block in enumerate(apart):
                if which is None or which[i]:
                    block.put_span(kind, number / 8, number / 4)
                    block.add("frames", number)
                    block.floats[block.word("step_s")] += number / 2
                block.add_cpu(kind, 0.5, number)
        assert files[0].ints == files[1].ints
        again = Blocks(files[0], 2, NUM)  # goes on where the other has ended
        again.put_spans(SIMULATE, 70.0, 71.0)
        assert [file.spans(2)[-1] for file in files[:1]] == [(70.0, 71.0, "simulate")]
        for block in apart:
            block.put_span(SIMULATE, 70.0, 71.0)
        assert files[0].ints == files[1].ints


def test_the_words_of_blocks_are_aligned(tmp_path: Path) -> None:
    """Every array is of whole words of the file, at addresses that 8 divides, so that no reader sees half of one."""
    blocks = Blocks(MeterFile.create(tmp_path / "meter.bin", 9), 2, 5)
    for column in (blocks.counter("frames"), blocks.seconds("step_s"), blocks.span_seconds(SIMULATE)):
        assert column.flags.aligned
        assert column.ctypes.data % 8 == column.strides[0] % 8 == 0
        assert column.itemsize == 8


class Killed:
    """Words of a process that is killed when it writes to them."""

    def __setitem__(self, places: object, value: object) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize("words", ["_floats", "_ints"])
def test_spans_that_were_left_half_written_are_not_read(words: str, tmp_path: Path) -> None:
    """A process that is killed while it writes the places of spans spoils none of those that are kept."""
    file = MeterFile.create(tmp_path / "meter.bin", NUM, span_capacity=4)
    blocks = Blocks(file, 1, NUM)
    for number in range(9):
        blocks.put_spans(SIMULATE, number, number + 0.25)
    kept = [file.spans(1 + i) for i in range(NUM)]
    setattr(blocks, words, Killed())
    with pytest.raises(KeyboardInterrupt):
        blocks.put_spans(SIMULATE, 9.0, -1.0)
    assert [file.spans(1 + i) for i in range(NUM)] == kept
    assert kept == [[(number, number + 0.25, "simulate") for number in range(5, 9)]] * NUM


def write_for_ever(path: Path) -> None:
    """Counts env steps of all environments, each with a span of 0.25 s that begins at its number."""
    blocks = Blocks(MeterFile(path, writable=True), 1, 64)
    number = 0
    while True:
        number += 1
        add(blocks.counter("env_steps"), 1)
        blocks.put_spans(SIMULATE, number, number + 0.25)


def test_reading_while_another_process_writes_until_it_is_killed(tmp_path: Path) -> None:
    """Counts only grow, spans are whole and follow one another, and what was there when it was killed stays."""
    path = meter_path(tmp_path, 0)
    file = MeterFile.create(path, num_envs=64, span_capacity=7)
    writer = multiprocessing.get_context("spawn").Process(target=write_for_ever, args=(path,))
    writer.start()
    seen = [0]
    while seen[-1] < 64 * 500:
        assert writer.is_alive()
        seen.append(file.total("env_steps"))
        _check(file)
    writer.kill()
    writer.join()
    assert seen == sorted(seen)
    assert file.count(1, "pid") == writer.pid != os.getpid()
    _check(file)
    ends = [file.spans(1 + env)[-1][0] for env in range(64)]
    counts = [file.count(1 + env, "env_steps") for env in range(64)]
    assert all(count - 1 <= end <= count for end, count in zip(ends, counts, strict=True))
    assert max(counts) - min(counts) <= 1


def _check(file: MeterFile) -> None:
    for env in (0, 31, 63):
        spans = file.spans(1 + env)
        assert all(end - begin == 0.25 and kind == "simulate" for begin, end, kind in spans)
        assert [begin for begin, *_ in spans] == [spans[0][0] + number for number in range(len(spans))]
