from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.meter import (
    COUNTERS,
    HEADER_WORDS,
    KIND_OF,
    RING_AT,
    SPAN_CAPACITY,
    SPANS,
    Block,
    LagSummary,
    MeterFile,
    RankMeter,
    meter_path,
)

SIMULATE = KIND_OF["simulate"]


@pytest.fixture
def meter(tmp_path: Path) -> Iterator[RankMeter]:
    """The meter of a rank with one environment."""
    meter = RankMeter(tmp_path, rank=0, num_envs=1)
    yield meter
    meter.close()


def rows_of(folder: Path, rank: int = 0) -> list[dict[str, Any]]:
    """The time series that a rank wrote."""
    return [json.loads(line) for line in (folder / f"series-rank{rank}.jsonl").read_text().splitlines()]


def test_layout(tmp_path: Path) -> None:
    """The file is a header and equal blocks, one for the rank and one for each environment, all of them at 0."""
    file = MeterFile.create(tmp_path / "meter.bin", num_envs=3, span_capacity=5)
    assert (tmp_path / "meter.bin").stat().st_size == 8 * (HEADER_WORDS + 4 * (RING_AT + 15))
    assert [file.block_at(i + 1) - file.block_at(i) for i in range(3)] == [RING_AT + 15] * 3
    again = MeterFile(tmp_path / "meter.bin", writable=False)
    assert (again.num_envs, again.span_capacity) == (3, 5)
    assert not any(again.ints[HEADER_WORDS:])


def test_blocks_do_not_touch_each_other(tmp_path: Path) -> None:
    """What one writer counts is seen in its block alone, and in no other counter of it."""
    file = MeterFile.create(tmp_path / "meter.bin", num_envs=3, span_capacity=2)
    for index in range(4):
        block = Block(file, index)
        for number, name in enumerate(COUNTERS):
            if name != "pid" and not name.endswith(("_s", "_squared")):
                block.set(name, 100 * index + number)
        block.put_span(SIMULATE, 1.0, 1.0 + index)
    for index in range(4):
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


def test_a_span_inside_another_pauses_it(meter: RankMeter) -> None:
    """Nested spans never count a moment twice: the spans of a rank lie end to end and sum to the wall time."""
    begin = time.perf_counter()
    with meter.span("other"):
        time.sleep(0.01)
        with meter.span("learn"):
            time.sleep(0.02)
            with meter.span("communicate"):
                time.sleep(0.01)
            time.sleep(0.01)
        with meter.span("learn"):
            pass
    wall = time.perf_counter() - begin
    file = MeterFile(meter.path, writable=False)
    spans = file.spans(0)
    assert [kind for *_, kind in spans] == ["other", "learn", "communicate", "learn", "other", "learn", "other"]
    for (_, end, _), (begin_next, _, _) in itertools.pairwise(spans):
        assert begin_next == end
    total = sum(file.seconds(0, kind) for kind in SPANS)
    assert total == pytest.approx(spans[-1][1] - spans[0][0], abs=1e-9)
    assert 0.05 <= total <= wall
    assert file.seconds(0, "learn") >= 0.03
    assert 0.01 <= file.seconds(0, "communicate") < file.seconds(0, "learn")


def test_spans_end_when_what_is_in_them_raises(meter: RankMeter) -> None:
    """A span that is left by an exception is counted, and the one around it goes on."""
    with meter.span("other"):
        with pytest.raises(RuntimeError, match="broken"), meter.span("learn"):
            raise RuntimeError("broken")
        assert MeterFile(meter.path, writable=False).phase() == "other"
    assert [kind for *_, kind in MeterFile(meter.path, writable=False).spans(0)] == ["other", "learn", "other"]


def test_phase_is_the_innermost_span(meter: RankMeter) -> None:
    """A progress display sees what the rank is doing right now."""
    reader = MeterFile(meter.path, writable=False)
    with meter.span("infer"), meter.span("wait:straggler"):
        assert reader.phase() == "wait:straggler"
    with pytest.raises(KeyError, match="nap"), meter.span("nap"):
        pass


def test_series_rows_are_differences_that_sum_to_the_counters(tmp_path: Path) -> None:
    """Each row holds what happened since the row before it, lies against it, and all of them sum to the counters."""
    busy = iter([1.0, 1.5, 3.0])
    meter = RankMeter(tmp_path, rank=2, num_envs=1, gpu_busy_s=lambda: next(busy))
    with meter.span("other"):
        meter.begin()
        for i in (1, 2):
            with meter.span("learn"):
                time.sleep(0.002)
            meter.learned(10 * i, LagSummary(5 * i, i))
            meter.reused(20)
            meter.discarded(i)
            meter.end_iteration({"loss": 0.5})
    meter.in_flight(7)
    meter.close()
    first, second = rows_of(tmp_path, rank=2)
    assert (first["rank"], first["iteration"], second["iteration"]) == (2, 0, 1)
    assert second["begin_s"] == first["end_s"]
    file = MeterFile(meter.path, writable=False)
    for name in ("learned", "reused", "discarded", "lag_sum"):
        assert first[name] + second[name] == file.count(0, name)
    assert (second["learned"], second["lag_sum"], second["loss"], second["gpu_busy_s"]) == (20, 10, 0.5, 1.5)
    assert (file.count(0, "iteration"), file.count(0, "in_flight"), file.count(0, "lag_max")) == (2, 7, 2)
    for row in (first, second):
        assert sum(row[f"span/{kind}"] for kind in SPANS) == pytest.approx(row["end_s"] - row["begin_s"], abs=0.05)


def write_spans(path: Path, count: int) -> None:
    """Counts so many env steps of environment 0, each with a span of 0.25 s."""
    block = Block(MeterFile(path, writable=True), 1)
    for i in range(1, count + 1):
        block.add("env_steps", 1)
        block.put_span(SIMULATE, float(i), i + 0.25)


def test_reading_while_another_process_writes(tmp_path: Path) -> None:
    """A reader never waits and never sees a torn count: what it reads only grows, up to what was written."""
    path = meter_path(tmp_path, 0)
    reader = MeterFile.create(path, num_envs=1)
    count = 20_000
    writer = multiprocessing.get_context("spawn").Process(target=write_spans, args=(path, count))
    writer.start()
    seen = [0]
    while writer.is_alive():
        seen.append(reader.total("env_steps"))
        spans = reader.spans(1)
        assert all(0 <= end - begin <= 2 * SPAN_CAPACITY for begin, end, _ in spans)
        assert len(spans) <= SPAN_CAPACITY
    writer.join()
    assert writer.exitcode == 0
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
