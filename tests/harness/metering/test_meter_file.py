from __future__ import annotations

import itertools
import multiprocessing
import os
import resource
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from rlbench.harness.metering.meter_file import (
    COUNTERS,
    HEADER_WORDS,
    KIND_OF,
    RING_AT,
    SPAN_CAPACITY,
    SPANS,
    Block,
    MeterFile,
    meter_path,
)

SIMULATE = KIND_OF["simulate"]


def test_layout(tmp_path: Path) -> None:
    """The file is a header and equal blocks, for the rank, each environment and the second lane, all of them at 0."""
    file = MeterFile.create(tmp_path / "meter.bin", num_envs=3, span_capacity=5)
    assert (tmp_path / "meter.bin").stat().st_size == 8 * (HEADER_WORDS + 5 * (RING_AT + 18))
    assert [file.block_at(i + 1) - file.block_at(i) for i in range(4)] == [RING_AT + 18] * 4
    assert file.lane_index == 4
    again = MeterFile(tmp_path / "meter.bin", writable=False)
    assert again.num_envs == 3
    assert [again.span_capacity(index) for index in range(5)] == [5] * 5
    assert not any(again.ints[HEADER_WORDS:])


@pytest.mark.parametrize(
    ("num_envs", "capacity", "most_mb"), [(1, 4096, 0.4), (64, 4096, 6.6), (65, 4032, 6.6), (4096, 64, 8.3)]
)
def test_many_environments_keep_fewer_spans_each(num_envs: int, capacity: int, most_mb: float, tmp_path: Path) -> None:
    """Files stay small: up to 64 environments keep as many spans as threads, more of them as many together."""
    file = MeterFile.create(tmp_path / "meter.bin", num_envs)
    assert [file.span_capacity(index) for index in (0, 1, num_envs, file.lane_index)] == [
        4096,
        capacity,
        capacity,
        4096,
    ]
    assert (tmp_path / "meter.bin").stat().st_size < most_mb * 1e6
    words = [file.block_at(index) for index in range(num_envs + 2)]
    sizes = [after - at for at, after in itertools.pairwise([*words, len(file.ints)])]
    assert sizes == [RING_AT + 3 * 4097, *[RING_AT + 3 * (capacity + 1)] * num_envs, RING_AT + 3 * 4097]
    for index in (0, 1, num_envs, file.lane_index):
        block = Block(file, index)
        for number in range(5000):
            block.put_span(SIMULATE, number, number + 0.25)
    for index in (0, 1, num_envs, file.lane_index):
        kept = range(5000 - file.span_capacity(index), 5000)
        assert file.spans(index) == [(number, number + 0.25, "simulate") for number in kept]


def test_blocks_do_not_touch_each_other(tmp_path: Path) -> None:
    """What one writer counts is seen in its block alone, and in no other counter of it."""
    file = MeterFile.create(tmp_path / "meter.bin", num_envs=3, span_capacity=2)
    for index in range(5):
        block = Block(file, index)
        for number, name in enumerate(COUNTERS):
            if name != "pid" and not name.endswith(("_s", "_squared")):
                block.set(name, 100 * index + number)
        block.put_span(SIMULATE, 1.0, 1.0 + index)
    for index in range(5):
        assert file.count(index, "pid") == os.getpid()
        assert file.count(index, "learned") == 100 * index + COUNTERS.index("learned")
        assert file.count(index, "episodes") == 100 * index + COUNTERS.index("episodes")
        assert file.seconds(index, "simulate") == index
        assert file.spans(index) == [(1.0, 1.0 + index, "simulate")]
    assert file.total("env_steps") == 600 + 3 * COUNTERS.index("env_steps")


@pytest.mark.parametrize("num_spans", [0, 1, 7, 8, 9, 23])
def test_ring_keeps_the_newest_spans_and_totals_are_exact(num_spans: int, tmp_path: Path) -> None:
    """However many spans there were, the ring holds the latest, oldest first, and the totals hold all of them."""
    file = MeterFile.create(tmp_path / "meter.bin", num_envs=1, span_capacity=8)
    block = Block(file, 1)
    for i in range(num_spans):
        block.put_span(i % len(SPANS), float(i), i + 0.5)
    assert file.spans(1) == [
        (float(i), i + 0.5, SPANS[i % len(SPANS)]) for i in range(max(0, num_spans - 8), num_spans)
    ]
    assert sum(file.seconds(1, kind) for kind in SPANS) == num_spans * 0.5


def write_spans(path: Path, count: int, looked: Event | None = None) -> None:
    """Counts so many env steps of environment 0, each with a span of 0.25 s; waits in the middle for a look."""
    block = Block(MeterFile(path, writable=True), 1)
    for i in range(1, count + 1):
        if looked is not None and i == count // 2:
            looked.wait(60)
        block.add("env_steps", 1)
        block.put_span(SIMULATE, float(i), i + 0.25)


def test_reading_while_another_process_writes(tmp_path: Path) -> None:
    """A reader never waits and never sees a torn count or span: counts only grow, spans follow one another."""
    path = meter_path(tmp_path, 0)
    reader = MeterFile.create(path, num_envs=1)
    count = 20_000
    context = multiprocessing.get_context("spawn")
    looked = context.Event()
    writer = context.Process(target=write_spans, args=(path, count, looked))
    writer.start()
    seen = [0]
    while writer.is_alive():
        seen.append(reader.total("env_steps"))
        spans = reader.spans(1)
        assert all(end - begin == 0.25 for begin, end, _ in spans)
        assert [begin for begin, *_ in spans] == [spans[0][0] + number for number in range(len(spans))]
        assert len(spans) <= SPAN_CAPACITY
        if spans:
            looked.set()
    writer.join()
    assert writer.exitcode == 0
    assert looked.is_set()
    assert seen == sorted(seen)
    assert reader.total("env_steps") == count
    assert reader.seconds(1, "simulate") == count * 0.25
    assert reader.spans(1)[-1] == (float(count), count + 0.25, "simulate")


def test_what_a_killed_writer_counted_stays(tmp_path: Path) -> None:
    """A process that is killed leaves what it had counted."""
    path = meter_path(tmp_path, 0)
    reader = MeterFile.create(path, num_envs=1)
    if (pid := os.fork()) == 0:
        write_spans(path, 5)
        os.kill(os.getpid(), 9)
    os.waitpid(pid, 0)
    assert (reader.total("env_steps"), reader.count(1, "pid")) == (5, pid)


def test_a_span_that_was_left_half_written_is_not_read(tmp_path: Path) -> None:
    """A process that is killed while it writes a span spoils none of those that are kept."""
    file = MeterFile.create(tmp_path / "meter.bin", num_envs=1, span_capacity=4)
    block = Block(file, 1)
    for number in range(9):
        block.put_span(SIMULATE, float(number), number + 0.25)
    kept = file.spans(1)
    file.floats[block._at + RING_AT + 3 * (9 % 5)] = -1.0  # the begin of a tenth, and no more
    assert file.spans(1) == kept == [(float(number), number + 0.25, "simulate") for number in range(5, 9)]


def test_other_files_are_refused(tmp_path: Path) -> None:
    """A file of another version is not read as a meter."""
    path = tmp_path / "meter.bin"
    path.write_bytes(bytes(8 * 64))
    with pytest.raises(ValueError, match=r"meter\.bin: not a meter file of this version"):
        MeterFile(path, writable=False)


def test_no_room_is_an_error_at_the_start(tmp_path: Path) -> None:
    """A meter whose file cannot be allocated is an error when it is made, not a signal while it is written."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match=r"File too large"):
            MeterFile.create(meter_path(tmp_path, 0), num_envs=4)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not meter_path(tmp_path, 0).exists()
