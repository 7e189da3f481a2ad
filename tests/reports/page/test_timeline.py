from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
import pytest

from rlbench.reports.page import timeline
from rlbench.reports.page.timeline import IterationTimeline, TimelineChoice, page_data, read_iterations, with_iterations
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


def timelines(
    summary: Summary, folders: Mapping[str, Path], most_spans: int = timeline.MOST_SPANS
) -> list[TimelineChoice]:
    """The timelines of a summary."""
    return timeline.timelines(read_iterations(summary, folders), most_spans)


def only(root: Path, spans: Sequence[Span] = SPANS) -> IterationTimeline:
    """The timeline of a run with these spans."""
    folder = write_folder(root, "a", spans)
    (choice,) = timelines(summary_with(("ver", 8, "a")), {"a": folder})
    (found,) = choice.timelines
    return found


def test_last_iteration_of_the_window(tmp_path: Path) -> None:
    """The timeline is of the last iteration that counts, in ticks of 0.1 ms from its begin, cut at its ends."""
    found = only(tmp_path)
    assert found.num_ticks == 10_000
    assert found.note.startswith("iteration 2 of run a")
    assert found.rows == ["rank 0", "rank 0, second thread", "rank 0, env 0", "rank 0, env 1", "rank 1"]
    assert found.spans == {
        "infer": [[0, 0, 5000], [1, 7500, 2500]],
        "learn": [[0, 5000, 2500], [4, 0, 10_000]],
        "simulate": [[2, 0, 1000, 2000, 1000]],
        "reset": [[3, 2000, 4000]],
    }


def test_milliseconds_by_kind(tmp_path: Path) -> None:
    """The table has the milliseconds of each thread of a rank, and the mean of its environments."""
    found = only(tmp_path)
    summary = summary_with(("ver", 8, "a"))
    (iteration,) = with_iterations(summary, read_iterations(summary, {"a": tmp_path / "sweep-1" / "a"})).iterations
    totals = {thread.name: thread.milliseconds for thread in iteration.threads}
    assert totals["rank 0"] == pytest.approx({"infer": 500, "learn": 250})
    assert totals["rank 0, its 2 environments, mean"] == pytest.approx({"simulate": 100, "reset": 200})
    assert "rank 2" not in totals
    assert (iteration.run, iteration.begin_s, iteration.seconds) == ("a", 2, 1)
    assert found.place == 0


def test_iteration_of_which_all_spans_were_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an iteration that began before the oldest span that is left only the rest is shown, and the page says so."""
    monkeypatch.setattr(timeline, "KEPT_SPANS", 2)
    spans = [(0, -1, 1.0, 2.0, "infer"), (0, -1, 2.0, 3.0, "learn")]
    assert only(tmp_path / "kept", spans).note.startswith("iteration 2")
    late = [(0, -1, 2.5, 2.6, "infer"), (0, -1, 2.6, 3.0, "learn")]
    found = only(tmp_path / "late", late)
    assert found.note.startswith("the end of iteration 2 (older spans were not kept)")
    assert found.spans == {"infer": [[0, 0, 1000]], "learn": [[0, 1000, 4000]]}
    after = [(0, -1, 3.0, 3.6, "infer"), (0, -1, 3.6, 4.0, "learn")]
    assert only(tmp_path / "after", after).note.startswith("iteration 3, outside the window,")
    gone = [(0, -1, 4.5, 4.6, "infer"), (0, -1, 4.6, 5.0, "learn")]
    folder = write_folder(tmp_path / "gone", "a", gone)
    (choice,) = timelines(summary_with(("ver", 8, "a")), {"a": folder})
    assert choice.timelines == []
    assert "of no iteration" in choice.problems[0]


def test_fewer_spans_are_kept_of_many_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With twice as many environments as keep what a thread keeps, each has half of that."""
    monkeypatch.setattr(timeline, "KEPT_SPANS", 2)
    monkeypatch.setattr(timeline, "KEPT_OF", 2)
    of_rank = (0, -1, 1.0, 3.0, "infer")
    few = [of_rank, (0, 1, 2.5, 2.6, "simulate")]
    assert only(tmp_path / "few", few).note.startswith("iteration 2")
    many = [of_rank, (0, 3, 2.5, 2.6, "simulate")]
    assert only(tmp_path / "many", many).note.startswith("the end of iteration 2 (older spans were not kept)")


def test_spans_that_touch_are_one_and_short_ones_vanish(tmp_path: Path) -> None:
    """What 0.1 ms cannot tell is not told."""
    spans = [(0, -1, 2.0, 2.1, "infer"), (0, -1, 2.10001, 2.2, "infer"), (0, -1, 2.20001, 2.20004, "learn")]
    assert only(tmp_path, spans).spans == {"infer": [[0, 0, 2000]]}


def test_environments_that_do_not_fit_are_left_out(tmp_path: Path) -> None:
    """Where there are too many spans, ranks come first, then environments of each in turn, and the rest is named."""
    folder = write_folder(tmp_path, "a")
    (choice,) = timelines(summary_with(("ver", 8, "a")), {"a": folder}, most_spans=6)
    (found,) = choice.timelines
    assert found.rows == ["rank 0", "rank 0, second thread", "rank 0, env 0", "rank 1"]
    assert found.note.endswith("; 1 environment is left out")


def test_most_gpus_up_to_eight_and_first_seed(tmp_path: Path) -> None:
    """Of each sweep and work, the runs on the most GPUs up to 8 are shown, one of each system, of the first seed."""
    ids = ("a", "b", "c", "d", "e")
    folders = {run: write_folder(tmp_path, run) for run in ids}
    small = summary_with(("ver", 64, "a"), ("ver", 8, "b"), ("appo", 8, "c"), ("ver", 1, "d"))
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
    """The page's script gets the rows, the spans and the duration of each run."""
    folder = write_folder(tmp_path, "a")
    (choice,) = timelines(summary_with(("ver", 8, "a")), {"a": folder})
    (run,) = page_data(choice)["runs"]
    assert (run["label"], run["ticks"]) == ("ver x8", 10_000)
    assert set(run["spans"]) == {"infer", "learn", "simulate", "reset"}


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
