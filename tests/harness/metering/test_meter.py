from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlbench.harness.metering.meter import SAMPLED, LagSummary, RankMeter
from rlbench.harness.metering.meter_file import SPANS, Block, MeterFile


@pytest.fixture
def meter(tmp_path: Path) -> Iterator[RankMeter]:
    """The meter of a rank with one environment."""
    meter = RankMeter(tmp_path, rank=0, num_envs=1)
    yield meter
    meter.close()


def rows_of(folder: Path, rank: int = 0) -> list[dict[str, Any]]:
    """The time series that a rank wrote."""
    return [json.loads(line) for line in (folder / f"series-rank{rank}.jsonl").read_text().splitlines()]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Replaces this process's clock, at 100 s; `now_s` moves when a test says so."""
    clock = SimpleNamespace(now_s=100.0)
    monkeypatch.setattr(time, "perf_counter", lambda: clock.now_s)
    return clock


def test_a_span_inside_another_pauses_it(clock: SimpleNamespace, meter: RankMeter) -> None:
    """Nested spans never count a moment twice: the spans of a rank lie end to end and sum to the time that passed."""
    with meter.span("other"):
        clock.now_s += 1
        with meter.span("learn"):
            clock.now_s += 2
            with meter.span("communicate"):
                clock.now_s += 4
            clock.now_s += 8
        with meter.span("learn"):
            pass
    file = MeterFile(meter.path, writable=False)
    spans = file.spans(0)
    assert [kind for *_, kind in spans] == ["other", "learn", "communicate", "learn", "other", "learn", "other"]
    for (_, end, _), (begin_next, _, _) in itertools.pairwise(spans):
        assert begin_next == end
    seconds = {kind: file.seconds(0, kind) for kind in SPANS}
    assert {kind: value for kind, value in seconds.items() if value} == {"other": 1, "learn": 10, "communicate": 4}
    assert (spans[0][0], spans[-1][1]) == (100, 115)


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
    env = Block(MeterFile(meter.path, writable=True), 1)
    env.add("env_steps", 100)
    with meter.span("other"):
        meter.begin()
        for i in (1, 2):
            with meter.span("learn"):
                time.sleep(0.002)
            env.add("env_steps", 15 * i)
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
    assert (first["env_steps"], second["env_steps"]) == (15, 30)  # those before it began are in no row
    assert (file.count(0, "iteration"), file.count(0, "in_flight"), file.count(0, "lag_max")) == (2, 7, 2)
    for row in (first, second):
        assert sum(row[f"span/{kind}"] for kind in SPANS) == pytest.approx(row["end_s"] - row["begin_s"], abs=1e-9)


def test_spans_have_the_cpu_time_of_their_thread(meter: RankMeter) -> None:
    """A thread that sleeps has used next to none; what a span inside another one used is not the outer one's.

    One in seven stretches is read, whatever comes in turn.
    """
    for _ in range(2 * SAMPLED):
        with meter.span("infer"):
            time.sleep(0.01)
            with meter.span("learn"):
                until = time.thread_time() + 0.01
                while time.thread_time() < until:
                    pass
    file = MeterFile(meter.path, writable=False)
    used_s, took_s = file.cpu_seconds(0, "learn")
    assert 0.02 <= used_s <= took_s + 1e-3
    used_s, took_s = file.cpu_seconds(0, "infer")
    assert took_s >= 0.02
    assert used_s < 0.5 * took_s


def test_a_lane_is_a_timeline_of_its_own(meter: RankMeter) -> None:
    """Spans of the two threads do not pause each other; each is in its own block, the lane's in the last one."""
    lane = meter.open_lane()
    in_span, done = threading.Event(), threading.Event()

    def sample() -> None:
        with lane.span("infer"), lane.span("wait:learner"):
            in_span.set()
            done.wait()

    thread = threading.Thread(target=sample)
    with meter.span("learn"):
        thread.start()
        in_span.wait()
        done.set()
        thread.join()
    file = MeterFile(meter.path, writable=False)
    assert [kind for *_, kind in file.spans(0)] == ["learn"]
    assert [kind for *_, kind in file.spans(file.lane_index)] == ["infer", "wait:learner", "infer"]
    assert file.spans(1) == []
    (learn_begin, learn_end, _), (begin, _, _) = file.spans(0)[0], file.spans(file.lane_index)[0]
    assert learn_begin < begin < file.spans(file.lane_index)[-1][1] < learn_end


def test_a_second_lane_is_refused(meter: RankMeter) -> None:
    """There is room for one; who asks for more is told so."""
    meter.open_lane()
    with pytest.raises(ValueError, match="rank 0 has opened its lane already"):
        meter.open_lane()


def test_rows_have_the_lanes_columns_only_when_it_was_opened(meter: RankMeter, tmp_path: Path) -> None:
    """A rank with one thread has no `sampler/` columns; from the opening on, rows have one for each kind of span."""
    meter.end_iteration({})
    meter.open_lane()
    meter.end_iteration({})
    before, after = rows_of(tmp_path)
    assert not [name for name in before if name.startswith("sampler/")]
    assert [name for name in after if name.startswith("sampler/")] == [f"sampler/{kind}" for kind in SPANS]


def test_the_lanes_open_span_is_cut_where_an_iteration_ends(meter: RankMeter, tmp_path: Path) -> None:
    """A span of the other thread that lasts over iterations is counted in each of them, as far as it lay in it."""
    lane = meter.open_lane()
    in_span, done = threading.Event(), threading.Event()

    def wait() -> None:
        with lane.span("wait:learner"):
            in_span.set()
            done.wait()

    meter.begin()
    thread = threading.Thread(target=wait)
    thread.start()
    in_span.wait()
    for _ in range(3):
        meter.end_iteration({})
    done.set()
    thread.join()
    meter.end_iteration({})
    waits = [row["sampler/wait:learner"] for row in rows_of(tmp_path)]
    ((begin, end, _),) = MeterFile(meter.path, writable=False).spans(2)
    assert min(waits) > 0
    assert sum(waits) == pytest.approx(end - begin, abs=1e-9)


def test_two_threads_lose_and_repeat_no_moment(meter: RankMeter, tmp_path: Path) -> None:
    """However iterations end amid another thread's spans, no row is below 0, and the rows sum to what was spent."""
    lane = meter.open_lane()
    over = threading.Event()

    def sample() -> None:
        with lane.span("other"):
            while not over.is_set():
                with lane.span("infer"), lane.span("wait:inference"):
                    pass

    thread = threading.Thread(target=sample)
    meter.begin()
    thread.start()
    with meter.span("other"):
        for _ in range(2000):
            with meter.span("learn"):
                pass
            meter.end_iteration({})
    over.set()
    thread.join()
    meter.end_iteration({})
    file, rows = MeterFile(meter.path, writable=False), rows_of(tmp_path)
    for index, prefix in ((0, "span/"), (file.lane_index, "sampler/")):
        for kind in SPANS:
            seconds = [row[f"{prefix}{kind}"] for row in rows]
            assert min(seconds) >= -1e-9
            assert sum(seconds) == pytest.approx(file.seconds(index, kind), abs=1e-6)
    lane_spans = file.spans(file.lane_index)
    assert all(end == begin for (_, end, _), (begin, _, _) in itertools.pairwise(lane_spans))


def test_seconds_of_another_process_take_the_place_of_ones_own(meter: RankMeter, tmp_path: Path) -> None:
    """A row of a trainer that runs elsewhere has its spans, the rest is `other`, and no core that we waited for."""
    meter.reports({"learned"})
    with meter.span("simulate"):
        time.sleep(0.05)
    meter.end_iteration({"env_steps": 3}, elsewhere_s={"learn": 0.02})
    meter.close()
    (row,) = [json.loads(line) for line in (tmp_path / "series-rank0.jsonl").read_text().splitlines()]
    assert (row["span/learn"], "span/simulate" in row, "core_wait_s" in row) == (0.02, False, False)
    assert row["span/learn"] + row["span/other"] == pytest.approx(row["end_s"] - row["begin_s"])
    file = MeterFile(meter.path, writable=False)
    assert [name for name in ("learned", "reused", "lag_sum") if file.is_reported(name)] == ["learned"]
