from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rlbench.reports.exports.trace import read_trace
from rlbench.results.records.schema import RunRecord
from tests.results.made_records import make_record

SPANS = [
    (0, -1, -0.5, 1.0, "simulate"),
    (0, -1, 1.0, 1.25, "learn"),
    (0, -2, 0.0, 1.25, "infer"),
    (0, 0, 0.1, 0.3, "simulate"),
    (0, 11, 0.1, 0.2, "reset"),
    (3, -1, 0.0, 2.0, "wait:straggler"),
    (3, 0, 0.1, 0.1, "simulate"),
    (3, 0, 0.1, 0.7, "simulate"),
]


def write_spans(folder: Path, spans: list[tuple[int, int, float, float, str]]) -> None:
    """Writes `spans.parquet`, as a run leaves it."""
    frame = pd.DataFrame(spans, columns=["rank", "environment", "begin_s", "end_s", "kind"])
    frame.to_parquet(folder / "spans.parquet", index=False, compression="zstd")


def trace(folder: Path, record: RunRecord | None = None) -> dict[str, Any]:
    """The trace of a run, read back."""
    document = json.loads("".join(read_trace([(folder, record or make_record())]).pieces()))
    assert isinstance(document, dict)
    return document


def slices(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Its complete events."""
    return [event for event in document["traceEvents"] if event["ph"] == "X"]


def named(document: dict[str, Any], kind: str) -> dict[Any, Any]:
    """What metadata events of a kind say, by thread, or by process where they are of that."""
    events = [event for event in document["traceEvents"] if event["ph"] == "M" and event["name"] == kind]
    return {event.get("tid", event["pid"]): next(iter(event["args"].values())) for event in events}


def test_a_process_for_each_rank_and_a_thread_for_each_timeline(tmp_path: Path) -> None:
    """Ranks are processes in their order; a rank's own timeline comes first, then its second, then its environments."""
    write_spans(tmp_path, SPANS)
    document = trace(tmp_path)
    assert list(named(document, "process_name").values()) == ["rank 0", "rank 3"]
    assert list(named(document, "process_sort_index").values()) == [0, 3]
    threads, order = named(document, "thread_name"), named(document, "thread_sort_index")
    process_of = {event["tid"]: event["pid"] for event in slices(document)}
    ranks = named(document, "process_name")
    shown = sorted(threads, key=lambda thread: (ranks[process_of[thread]], order[thread]))
    assert [(ranks[process_of[thread]], threads[thread]) for thread in shown] == [
        ("rank 0", "rank 0"),
        ("rank 0", "rank 0, second thread"),
        ("rank 0", "environment 0"),
        ("rank 0", "environment 11"),
        ("rank 3", "rank 3"),
        ("rank 3", "environment 0"),
    ]


def test_every_event_has_what_the_format_wants(tmp_path: Path) -> None:
    """Every event has a phase, a name and whole numbers for process and thread, none of them the idle one's 0."""
    write_spans(tmp_path, SPANS)
    for event in trace(tmp_path)["traceEvents"]:
        assert event["ph"] in {"M", "X"}
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert event["pid"] > 0
        assert event["ph"] == "M" or event["tid"] > 0


def test_threads_have_numbers_of_their_own(tmp_path: Path) -> None:
    """No two threads share a number, and a process has that of its rank's own timeline, as a main thread has."""
    write_spans(tmp_path, SPANS)
    document = trace(tmp_path)
    threads = named(document, "thread_name")
    assert len(threads) == 6
    assert {threads[process] for process in named(document, "process_name")} == {"rank 0", "rank 3"}


def test_times_are_microseconds_from_the_first_span(tmp_path: Path) -> None:
    """The trace begins at 0, says when that was on the run's clock, and leaves spans that took no time out."""
    write_spans(tmp_path, SPANS)
    document = trace(tmp_path)
    assert document["otherData"]["begin_s"] == -0.5
    events = [(event["name"], event["ts"], event["dur"]) for event in slices(document)]
    assert events == [
        ("simulate", 0.0, 1_500_000.0),
        ("learn", 1_500_000.0, 250_000.0),
        ("infer", 500_000.0, 1_250_000.0),
        ("simulate", 600_000.0, 200_000.0),
        ("reset", 600_000.0, 100_000.0),
        ("wait:straggler", 500_000.0, 2_000_000.0),
        ("simulate", 600_000.0, 600_000.0),
    ]


def test_spans_that_follow_each_other_do_not_overlap(tmp_path: Path) -> None:
    """However long the run and odd its times, the next span begins no earlier than the one before it ends."""
    times = [1e4 + k * 0.2 / 3 for k in range(2000)]
    write_spans(tmp_path, [(0, -1, begin, end, "learn") for begin, end in pairwise(times)])
    ends: dict[int, int] = defaultdict(int)
    events = slices(trace(tmp_path))
    assert len(events) == 1999
    for event in events:
        begin, length = round(1000 * event["ts"]), round(1000 * event["dur"])
        assert begin >= ends[event["tid"]]
        assert 1000 * event["ts"] == pytest.approx(begin, abs=1e-3)  # whole nanoseconds
        ends[event["tid"]] = begin + length


def test_it_says_which_run_it_is(tmp_path: Path) -> None:
    """The document names the run and its sweep, and whose clock its times are on."""
    write_spans(tmp_path, SPANS)
    about = trace(tmp_path)["otherData"]
    assert (about["id"], about["sweep"], about["clock"]) == ("ddppo-1", "sweep-1", "of the profile")
    assert "ddppo" in about["run"]
    assert trace(tmp_path, make_record(figures={"emulated": False}))["otherData"]["clock"] == "of the wall"


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (make_record(figures={"predicted": True}), "a model made the run up"),
        (make_record(status="failed", reason="died"), "the run is failed"),
    ],
)
def test_a_run_without_spans(tmp_path: Path, record: RunRecord, why: str) -> None:
    """A run that has no timeline is refused in one line that says why, before anything is written."""
    with pytest.raises(ValueError, match=rf"has no spans\.parquet, {why}; name the folder"):
        read_trace([(tmp_path, record)])


def test_damaged_spans_are_named(tmp_path: Path) -> None:
    """A file that is no Parquet file is one line that names it."""
    (tmp_path / "spans.parquet").write_bytes(b"PAR1 cut off")
    with pytest.raises(ValueError, match=r"spans\.parquet: cannot be read") as caught:
        read_trace([(tmp_path, make_record())])
    assert "\n" not in str(caught.value)


def traced_together(root: Path, *records: RunRecord) -> dict[str, Any]:
    """The trace of several runs with the same spans."""
    runs = []
    for number, record in enumerate(records):
        folder = root / str(number)
        folder.mkdir()
        write_spans(folder, SPANS)
        runs.append((folder, record))
    document = json.loads("".join(read_trace(runs).pieces()))
    assert isinstance(document, dict)
    return document


def test_several_runs_are_a_process_each(tmp_path: Path) -> None:
    """Runs stand in the order in which they are given, named by system, GPUs and seed; their lines are threads."""
    records = make_record("ver", 8), make_record("sync", 2, cell={"seed": 3})
    document = traced_together(tmp_path, *records)
    assert list(named(document, "process_name").values()) == [
        "ver, emulated/open-fridge, heterogeneous, 8 emulated GPUs, seed 0",
        "sync, emulated/open-fridge, heterogeneous, 2 emulated GPUs, seed 3",
    ]
    assert list(named(document, "process_sort_index").values()) == [0, 1]
    names = [
        *("rank 0", "rank 0, second thread", "rank 0, environment 0", "rank 0, environment 11"),
        *("rank 3", "rank 3, environment 0"),
    ]
    assert list(named(document, "thread_name").values()) == 2 * names
    assert [about["id"] for about in document["otherData"]["runs"]] == ["ver-8", "sync-2"]


def test_several_runs_begin_together(tmp_path: Path) -> None:
    """Each run's first span begins at 0, in its own process, and all of its spans are there."""
    document = traced_together(tmp_path, make_record("ver", 8), make_record("sync", 8))
    of_process: dict[int, list[float]] = defaultdict(list)
    for event in slices(document):
        of_process[event["pid"]].append(event["ts"])
    assert list(of_process) == list(named(document, "process_name"))
    first, second = of_process.values()
    assert first == second
    assert min(first) == 0
    assert len(first) == 7


def test_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    """Two tries of a cell, or two sweeps of it, have their ids behind their names."""
    document = traced_together(tmp_path, make_record(), make_record(sweep="sweep-2"))
    first, second = named(document, "process_name").values()
    assert first.endswith("seed 0 (sweep-1/ddppo-1)")
    assert second.endswith("seed 0 (sweep-2/ddppo-1)")


def test_damaged_runs_are_left_out_of_several(tmp_path: Path) -> None:
    """The others are written, and the damaged file is named."""
    good, bad = tmp_path / "good", tmp_path / "bad"
    for folder in (good, bad):
        folder.mkdir()
        write_spans(folder, SPANS)
    (bad / "spans.parquet").write_bytes(b"PAR1 cut off")
    trace = read_trace([(bad, make_record("sync", 1)), (good, make_record("ver", 1))])
    assert [run.record.id for run in trace.runs] == ["ver-1"]
    assert len(trace.problems) == 1
    assert str(bad / "spans.parquet") in trace.problems[0]
    with pytest.raises(ValueError, match="cannot be read"):
        read_trace([(bad, make_record("sync", 1)), (bad, make_record("ver", 1))])
