from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
import pytest

from rlbench.reports.page import timeline
from rlbench.reports.page.timeline import MOST_SPANS, lane_name, neighbours, read_iterations, with_iterations
from rlbench.reports.page.timeline_data import RunTimeline, TimelineChoice, page_data
from rlbench.reports.page.timeline_data import timelines as timelines_of
from rlbench.results.records.schema import WindowRecord
from rlbench.results.records.store import write_run
from rlbench.results.summary.document import Summary
from tests.reports.page.pages import summary_of
from tests.results.made_records import make_record
from tests.results.summaries import make_cell

Span = tuple[int, int, float, float, str]
"""rank, environment, begin_s, end_s, kind."""
WINDOW = WindowRecord(protocol="steady", first_iteration=1, last_iteration=2, begin_s=1.0, end_s=3.0, steady=True)
SPANS: list[Span] = [
    (0, -1, 0.0, 2.5, "infer"),
    (0, -1, 2.5, 2.75, "learn"),
    (0, -2, 2.75, 3.25, "infer"),
    (0, 0, 1.9, 2.1, "simulate"),
    (0, 0, 2.3, 2.4, "simulate"),
    (0, 1, 2.2, 2.6, "reset"),
    (1, -1, 2.0, 3.0, "learn"),
    (2, -1, 2.0, 3.0, "learn"),
]


def write_folder(
    root: Path, name: str, spans: Sequence[Span] = SPANS, *, sweep: str = "sweep-1", **fields: int
) -> Path:
    """A run folder with four iterations of a second on each of three ranks."""
    folder = root / sweep / name
    folder.mkdir(parents=True)
    record = make_record("ver", 8, id=name, sweep=sweep, figures={"window": WINDOW}, cell={"seed": 0, **fields})
    write_run(folder, record)
    columns = ["rank", "environment", "begin_s", "end_s", "kind"]
    pd.DataFrame(list(spans), columns=columns).to_parquet(folder / "spans.parquet")
    rows = [(rank, k, float(k), float(k + 1)) for rank in range(3) for k in range(4)]
    pd.DataFrame(rows, columns=["rank", "iteration", "begin_s", "end_s"]).to_parquet(folder / "series.parquet")
    return folder


def summary_with(*cells: tuple[str, int, str], sweep: str = "sweep-1") -> Summary:
    """A summary of cells (system, GPUs, id of the run), one run each."""
    return summary_of(
        [make_cell(system, gpus, runs=[run], sweep=sweep) for system, gpus, run in cells],
        [make_record(system, gpus, id=run, sweep=sweep, figures={"window": WINDOW}) for system, gpus, run in cells],
    )


def timelines(summary: Summary, folders: Mapping[str, Path], most_spans: int = MOST_SPANS) -> list[TimelineChoice]:
    """The timelines of a summary."""
    return timelines_of(read_iterations(summary, folders), most_spans)


def only(root: Path, spans: Sequence[Span] = SPANS, most_spans: int = MOST_SPANS) -> RunTimeline:
    """The timeline of a run with these spans."""
    folder = write_folder(root, "a", spans)
    (choice,) = timelines(summary_with(("ver", 8, "a")), {"a": folder}, most_spans)
    (found,) = choice.timelines
    return found


def rows_of(found: RunTimeline) -> list[str]:
    """Its lines by name."""
    return [lane_name(*lane) for lane in found.lanes]


def spans_of(found: RunTimeline, row: int) -> list[tuple[str, float, float]]:
    """The spans of a line, decoded: kind, begin and end in seconds since the first iteration began."""
    letters, steps = found.data["spans"][row]
    tick, at, spans = found.data["tick"], 0, []
    for letter, gap, length in zip(letters, steps[::2], steps[1::2], strict=True):
        begin = at + gap
        at = begin + length
        spans.append((found.kinds[ord(letter) - ord("A")], round(begin * tick, 6), round(at * tick, 6)))
    return spans


def test_all_ranks_and_environments(tmp_path: Path) -> None:
    """Every thread and environment of every rank has a line with all its spans, in seconds since iteration 0."""
    found = only(tmp_path)
    assert rows_of(found) == ["rank 0", "rank 0, second thread", "rank 0, env 0", "rank 0, env 1", "rank 1", "rank 2"]
    assert [spans_of(found, row) for row in range(6)] == [
        [("infer", 0, 2.5), ("learn", 2.5, 2.75)],
        [("infer", 2.75, 3.25)],
        [("simulate", 1.9, 2.1), ("simulate", 2.3, 2.4)],
        [("reset", 2.2, 2.6)],
        [("learn", 2, 3)],
        [("learn", 2, 3)],
    ]
    assert found.left_out == ""


def test_the_last_iteration_of_the_window_is_shown_first(tmp_path: Path) -> None:
    """All iterations whose spans were kept can be chosen; what is shown first is the last one that counts."""
    found = only(tmp_path)
    assert [(each.number, each.counts) for each in found.iterations] == [(0, False), (1, True), (2, True), (3, False)]
    assert found.iterations[found.shown].number == 2
    assert found.note == "iteration 2 of run a, 1,000.0 ms, from 2.000 s on"
    assert [each[0] for each in found.data["iterations"]] == [0, 1, 2, 3]
    second = round(1 / found.data["tick"])
    assert found.data["iterations"][2] == [2, 2 * second, 3 * second, 1, 0]


def test_iterations_that_do_not_fit_are_left_out(tmp_path: Path) -> None:
    """The iteration that is shown first is there in any case, then those before it, then those after it."""
    assert neighbours([5, 5, 5, 5], 2, 100) == (0, 3)
    assert neighbours([5, 5, 5, 5], 2, 15) == (0, 2)
    assert neighbours([5, 5, 9, 5], 2, 14) == (1, 2)
    assert neighbours([9, 5, 5, 5], 1, 10) == (1, 2)
    assert neighbours([5, 5], 1, 0) == (1, 1)
    found = only(tmp_path, most_spans=10)
    assert [each.number for each in found.iterations] == [1, 2]
    assert spans_of(found, 0) == [("infer", 0, 1.5), ("learn", 1.5, 1.75)]


def test_each_rank_has_its_own_iterations(tmp_path: Path) -> None:
    """The page knows in which iteration of its own rank a span is, since ranks need not go in step."""
    own = only(tmp_path).data["own"]
    second = round(1 / only(tmp_path / "again").data["tick"])
    assert [rank for rank, *_ in own] == [0, 1, 2]
    assert own[1][3] == [2, 2 * second, 3 * second]


def test_what_waited_for_what(tmp_path: Path) -> None:
    """The page gets each wait of a rank's thread, and the chain, as lines and ticks."""
    spans: list[Span] = [
        (0, -1, 2.0, 2.1, "infer"),
        (0, -1, 2.1, 2.7, "simulate"),
        (0, -1, 2.7, 3.0, "learn"),
        (0, 0, 2.1, 2.6, "simulate"),
        (0, 1, 2.1, 2.3, "simulate"),
    ]
    found = only(tmp_path, spans)
    tick = found.data["tick"]

    def told(name: str) -> list[tuple[str, float, str, float]]:
        numbers = found.data[name]
        rows = rows_of(found)
        return [
            (rows[row], round(at * tick, 6), rows[other], round((at - since) * tick, 6))
            for row, at, other, since in zip(*(numbers[k::4] for k in range(4)), strict=True)
        ]

    assert told("waits") == [("rank 0", 2.7, "rank 0, env 0", 2.6)]
    assert told("path") == [("rank 0, env 0", 2.1, "rank 0", 2.1), ("rank 0", 2.7, "rank 0, env 0", 2.6)]


def test_milliseconds_by_kind(tmp_path: Path) -> None:
    """The table has the milliseconds of each thread of a rank, and the mean of its environments."""
    found = only(tmp_path)
    summary = summary_with(("ver", 8, "a"))
    (iteration,) = with_iterations(summary, read_iterations(summary, {"a": tmp_path / "sweep-1" / "a"})).iterations
    totals = {thread.name: thread.milliseconds for thread in iteration.threads}
    assert totals["rank 0"] == pytest.approx({"infer": 500, "learn": 250})
    assert totals["rank 0, its 2 environments, mean"] == pytest.approx({"simulate": 100, "reset": 200})
    assert totals["rank 2"] == pytest.approx({"learn": 1000})
    assert (iteration.run, iteration.begin_s, iteration.seconds) == ("a", 2, 1)
    assert found.place == 0


def test_iteration_of_which_all_spans_were_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an iteration that began before the oldest span that is left only the rest is shown, and the page says so."""
    monkeypatch.setattr(timeline, "SPAN_CAPACITY", 2)
    spans = [(0, -1, 1.0, 2.0, "infer"), (0, -1, 2.0, 3.0, "learn")]
    found = only(tmp_path / "kept", spans)
    assert found.note.startswith("iteration 2")
    assert [each.number for each in found.iterations] == [1, 2, 3]
    late = [(0, -1, 2.5, 2.6, "infer"), (0, -1, 2.6, 3.0, "learn")]
    found = only(tmp_path / "late", late)
    assert found.note.startswith("the end of iteration 2 (older spans were not kept)")
    assert spans_of(found, 0) == [("infer", 0, 0.1), ("learn", 0.1, 0.5)]
    after = [(0, -1, 3.0, 3.6, "infer"), (0, -1, 3.6, 4.0, "learn")]
    assert only(tmp_path / "after", after).note.startswith("iteration 3, outside the window,")
    gone = [(0, -1, 4.5, 4.6, "infer"), (0, -1, 4.6, 5.0, "learn")]
    folder = write_folder(tmp_path / "gone", "a", gone)
    (choice,) = timelines(summary_with(("ver", 8, "a")), {"a": folder})
    assert choice.timelines == []
    assert "of no iteration" in choice.problems[0]


def test_fewer_spans_are_kept_of_many_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With twice as many environments as keep what a thread keeps, each has half of that."""
    monkeypatch.setattr(timeline, "SPAN_CAPACITY", 2)
    monkeypatch.setattr(timeline, "env_span_capacity", lambda num_envs: 4 // max(2, num_envs))
    of_rank = (0, -1, 1.0, 3.0, "infer")
    few = [of_rank, (0, 1, 2.5, 2.6, "simulate")]
    assert only(tmp_path / "few", few).note.startswith("iteration 2")
    many = [of_rank, (0, 3, 2.5, 2.6, "simulate")]
    assert only(tmp_path / "many", many).note.startswith("the end of iteration 2 (older spans were not kept)")


def test_spans_that_touch_are_kept_apart_and_those_of_no_length_vanish(tmp_path: Path) -> None:
    """Each span has its own length, to a 200,000th of an iteration."""
    spans = [(0, -1, 2.0, 2.1, "infer"), (0, -1, 2.1, 2.2, "infer"), (0, -1, 2.200001, 2.200003, "learn")]
    found = only(tmp_path, spans)
    assert spans_of(found, 0) == [("infer", 2.0, 2.1), ("infer", 2.1, 2.2)]
    assert found.data["tick"] == 1e-5


def test_spans_that_overlap_are_cut(tmp_path: Path) -> None:
    """The page can look a moment up, also in a strange file: no span begins before the last one of its line ended."""
    spans = [(0, -1, 2.0, 2.8, "infer"), (0, -1, 2.2, 2.4, "learn"), (0, -1, 2.5, 3.0, "simulate")]
    assert spans_of(only(tmp_path, spans), 0) == [("infer", 2.0, 2.8), ("simulate", 2.8, 3.0)]


def test_more_kinds_than_there_are_letters(tmp_path: Path) -> None:
    """Of a file with very many kinds of spans the last ones are drawn as others."""
    spans = [(0, -1, 2 + k / 100, 2 + (k + 1) / 100, f"kind {k:02d}") for k in range(80)]
    found = only(tmp_path, spans)
    assert len(found.kinds) == 60
    assert [kind for kind, *_ in spans_of(found, 0)][57:61] == ["kind 57", "kind 58", "other", "other"]


def test_environments_that_do_not_fit_are_left_out(tmp_path: Path) -> None:
    """Where there are too many spans, ranks come first, then environments of each in turn, and the rest is named."""
    found = only(tmp_path, most_spans=6)
    assert rows_of(found) == ["rank 0", "rank 0, second thread", "rank 1", "rank 2"]
    assert found.left_out == "2 environments do not fit into it."


def test_most_gpus_and_first_seed(tmp_path: Path) -> None:
    """Of each sweep and work, the runs on the most GPUs up to 64 are shown, one of each system, of the first seed."""
    ids = ("a", "b", "c", "d", "e")
    folders = {run: write_folder(tmp_path, run) for run in ids}
    small = summary_with(("ver", 128, "a"), ("ver", 8, "b"), ("appo", 8, "c"), ("ver", 1, "d"))
    (choice,) = timelines(small, folders)
    assert [each.run for each in choice.timelines] == ["b", "c"]
    seeds = [
        make_record("ver", 8, id=run, cell={"seed": seed}, figures={"window": WINDOW})
        for run, seed in (("a", 2), ("b", 1), ("e", 3))
    ]
    (choice,) = timelines(summary_of([make_cell("ver", 8, runs=["a", "b", "e"])], seeds), folders)
    assert [each.run for each in choice.timelines] == ["b"]


def test_runs_without_spans_are_passed_over(tmp_path: Path) -> None:
    """No folder, no spans, a run that did not finish: there is no timeline, and no error."""
    assert timelines(summary_with(("ver", 8, "a")), {}) == []
    folder = write_folder(tmp_path, "a")
    (folder / "spans.parquet").unlink()
    assert timelines(summary_with(("ver", 8, "a")), {"a": folder}) == []
    assert timelines(summary_of([]), {}) == []


def test_folder_of_another_sweep_is_not_taken(tmp_path: Path) -> None:
    """Runs of two sweeps may have the same id: each has its own timeline, or none."""
    folders = {"a": write_folder(tmp_path, "a", sweep="sweep-2")}
    assert timelines(summary_with(("ver", 8, "a")), folders) == []
    folders["sweep-1/a"] = write_folder(tmp_path, "a")
    assert len(timelines(summary_with(("ver", 8, "a")), folders)) == 1


def test_damaged_spans_are_named(tmp_path: Path) -> None:
    """A file that cannot be read costs its run the timeline, and the page says so."""
    folder = write_folder(tmp_path, "a")
    (folder / "spans.parquet").write_bytes(b"PAR1 nonsense")
    (choice,) = timelines(summary_with(("ver", 8, "a")), {"a": folder})
    assert choice.problems[0].startswith("ver x8: spans.parquet cannot be read")


def test_what_the_page_gets(tmp_path: Path) -> None:
    """The page's script gets the lines, the spans, and a colour for each kind of them."""
    folder = write_folder(tmp_path, "a")
    (choice,) = timelines(summary_with(("ver", 8, "a")), {"a": folder})
    (run,) = page_data(choice)["runs"]
    assert (run["label"], len(run["lanes"]), len(run["spans"])) == ("ver x8", 6, 6)
    assert run["kinds"] == ["simulate", "reset", "infer", "learn"]
    assert len(run["colours"]) == 4


@pytest.mark.parametrize("column", ["rank", "begin_s", "end_s", "kind"])
def test_spans_of_other_types_are_a_problem_that_is_named(tmp_path: Path, column: str) -> None:
    """Text where times stand, and nothing where something must be, is no timeline, and no crash."""
    folder = write_folder(tmp_path, "a")
    frame = pd.read_parquet(folder / "spans.parquet").astype({column: object})
    frame[column] = [None, *frame[column][1:]] if column == "kind" else "many"
    frame.to_parquet(folder / "spans.parquet")
    (choice,) = timelines(summary_with(("ver", 8, "a")), {"a": folder})
    assert choice.timelines == []
    assert choice.problems[0].startswith("ver x8: spans.parquet cannot be read")


def test_runs_with_few_spans_leave_their_room_to_others(tmp_path: Path) -> None:
    """With room for all spans but one, the run with more of them has all but an environment."""
    many = [*SPANS, *((1, environment, 2.0, 2.9, "simulate") for environment in range(10))]
    folders = {"a": write_folder(tmp_path, "a"), "b": write_folder(tmp_path, "b", many)}
    summary = summary_with(("ver", 8, "a"), ("appo", 8, "b"))
    (choice,) = timelines(summary, folders)
    whole = [len(each.lanes) for each in choice.timelines]
    num_spans = sum(len(each.spans.begin_s) for each in read_iterations(summary, folders)[0].iterations)
    (choice,) = timelines(summary, folders, num_spans - 1)
    assert [len(each.lanes) for each in choice.timelines] == [whole[0], whole[1] - 1]
