"""Runs that were read: frames, texts, pages, and what cannot be read."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pandas as pd
import pytest

import rlbench
from rlbench.api import frames, loaded
from rlbench.api.shown import MOST_CELLS, page_of
from rlbench.harness.cli.read_runs import OUT
from rlbench.results.summary.summarise import summarise
from tests.harness.sweeps import here, named, spoil, write_sweep
from tests.reports.page.pages import Page
from tests.results.made_records import write_run_folder
from tests.results.summaries import make_run

DOCS = Path(__file__).parents[2] / "docs" / "python.md"
FRAMES = {
    "runs": frames.RUNS,
    "cells": frames.CELLS,
    "intervals": frames.INTERVALS,
    "comparisons": frames.COMPARISONS,
    "learning": frames.LEARNING,
    "time_shares": frames.TIME_SHARES,
    "findings": frames.FINDINGS,
}
NASTY = "<img src=x onerror=alert(1)>&amp;\x1b[31m"

work = pytest.fixture(here)


def test_frames_hold_the_figures_of_the_summary(tmp_path: Path) -> None:
    """A row for each run and cell; ends of intervals stand beside the figures, and once more with what they are of."""
    results = rlbench.load(write_sweep(tmp_path))
    cell = results.summary.cell(system="ver", gpus=8)
    assert cell.steps_per_s is not None
    row = results.cells.query("system == 'ver' and gpus == 8")
    assert row[["steps_per_s", "steps_per_s_low", "kind", "num_finished"]].to_numpy().tolist() == [
        [cell.steps_per_s.value, cell.steps_per_s.low, cell.kind, 1]
    ]
    intervals = results.intervals.query("system == 'ver' and gpus == 8 and figure == 'steps_per_s'")
    assert intervals[["value", "low", "high", "over"]].to_numpy().tolist() == [
        [cell.steps_per_s.value, cell.steps_per_s.low, cell.steps_per_s.high, "iterations"]
    ]
    (ratio,) = (each.ratio for each in results.summary.comparisons if each.gpus == 8)
    assert results.comparisons.query("gpus == 8")[["ratio", "ratio_low"]].to_numpy().tolist() == [
        [ratio.value, ratio.low]
    ]
    assert list(results.runs["steps_per_s"]) == [100, 500, 200, 1337]
    assert results.runs["scaling"].iloc[1] == 5
    assert results.runs["started_at"].iloc[0] == pd.Timestamp("2026-01-01", tz="UTC")
    assert [Path(folder, "run.json").exists() for folder in results.runs["folder"]] == [True] * 4


def test_frames_have_the_same_types_without_a_row(tmp_path: Path) -> None:
    """What a program does with a column goes well where nothing has finished."""
    full = rlbench.load(write_sweep(tmp_path / "full"))
    failed = make_run("appo", 8, status="failed", reason="rank 3 died", steps_per_s=None)
    write_run_folder(tmp_path / "empty" / "sweep", failed)
    empty = rlbench.load(tmp_path / "empty")
    for name, columns in FRAMES.items():
        made: pd.DataFrame = getattr(full, name)
        without: pd.DataFrame = getattr(empty, name)
        assert list(made.columns) == list(without.columns) == list(columns), name
        both = {column: (str(made[column].dtype), str(without[column].dtype)) for column in columns}
        assert {column: types for column, types in both.items() if len(set(types)) > 1} == {}, name
    assert list(empty.runs["status"]) == ["failed"]
    assert list(empty.runs["reason"]) == ["rank 3 died"]
    assert empty.comparisons.empty


def test_what_is_emulated_or_predicted_says_so(tmp_path: Path) -> None:
    """In the column `kind`, and in the HTML and the text, above which it may be shown alone."""
    write_run_folder(tmp_path / "sweep", make_run("sync", 1, id="a"))
    predicted = make_run("sync", 2, id="b", cell={"device": "predicted"}, figures={"predicted": True})
    write_run_folder(tmp_path / "sweep", predicted)
    results = rlbench.load(tmp_path)
    assert sorted(results.cells["kind"]) == ["emulated", "predicted"]
    assert all(ranks in results._repr_html_() for ranks in ("1 (emulated)", "2 (predicted)"))
    assert all(re.search(rf"^{device} +\|", str(results), re.MULTILINE) for device in ("emulated", "predicted"))


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Damaged, foreign, newer and half-written runs are findings; the others are in the frames."""
    sweep = write_sweep(tmp_path)
    spoilt = spoil(sweep)
    results = rlbench.load(tmp_path)
    assert named("\n".join(results.findings["text"]), spoilt) == []
    assert len(results) == 5
    assert len(results.cells) == 5
    assert results._repr_html_().count("<li>unreadable: ") == len(spoilt) - 1


def test_only_runs_that_cannot_be_read(tmp_path: Path) -> None:
    """There is still an answer: what is wrong with each."""
    (tmp_path / "sweep" / "run").mkdir(parents=True)
    (tmp_path / "sweep" / "run" / "run.json").write_text("{")
    results = rlbench.load(tmp_path)
    assert (len(results), list(results.findings["severity"])) == (0, ["unreadable"])
    assert "No run can be read." in results._repr_html_()
    assert "no runs" in str(results)
    assert repr(results) == f"<rlbench.Results: 0 runs in 0 cells, of {tmp_path}>"


def test_folders_without_runs(work: Path) -> None:
    """A missing folder, an empty one, and none at all: a line that says what to do, as the commands say it."""
    with pytest.raises(ValueError, match=r"^nowhere: is not a folder; give the one that"):
        rlbench.load("nowhere")
    (work / "empty").mkdir()
    with pytest.raises(ValueError, match=r"^empty: no runs; make some: "):
        rlbench.load(Path("empty"))
    with pytest.raises(ValueError, match=r"^rlbench-runs: no runs; make some: "):
        rlbench.load()
    with pytest.raises(ValueError, match=r"^rlbench-runs: no runs"):
        rlbench.report()
    assert loaded.OUT == OUT


def test_which_runs_are_read(work: Path) -> None:
    """The newest sweep by default; several folders, a sweep or a run if they are named; others may be the reference."""
    old, new = write_sweep(work / "rlbench-runs", day=1), write_sweep(work / "rlbench-runs", day=2)
    assert set(rlbench.load().runs["sweep"]) == {new.name}
    assert len(rlbench.load("rlbench-runs")) == 8
    assert len(rlbench.load(old, str(new))) == 8
    (one,) = new.glob("001-*")
    assert list(rlbench.load(one).runs["run"]) == ["001-sync-x1"]
    assert rlbench.load(old, reference="ver").summary.reference == "ver"
    with pytest.raises(ValueError, match="--reference appo: no run of it; known: sync, ver"):
        rlbench.load(old, reference="appo")


def test_a_folder_of_any_name(tmp_path: Path) -> None:
    """A name need not be text; frames hold text alone, so it is shown."""
    folder = tmp_path / "caf\udce9\x1b[31m"
    write_sweep(tmp_path / "sweeps")
    (tmp_path / "sweeps").rename(folder)
    results = rlbench.load(folder)
    assert r"caf\udce9\x1b[31m" in results.runs["folder"].iloc[0]
    assert r"caf\udce9\x1b[31m" in repr(results)
    assert rlbench.report(folder, tmp_path / "report.html").is_file()


def test_html_shows_names_and_obeys_none(tmp_path: Path) -> None:
    """Names and reasons may be anybody's."""
    write_run_folder(tmp_path / "sweep", make_run(NASTY, 1, id="a", status="failed", reason=NASTY, steps_per_s=None))
    write_run_folder(tmp_path / "sweep", make_run("sync", 1, id="b"))
    html = rlbench.load(tmp_path)._repr_html_()
    assert "<img" not in html
    assert "\x1b" not in html
    assert "&lt;img src=x onerror=alert(1)&gt;&amp;amp;" in html
    assert re.findall(r"<(?!/?(?:div|p|strong|ul|li|table|thead|tbody|tr|th|td|code)\b)", html) == []


def test_html_is_short(tmp_path: Path) -> None:
    """Of many cells it shows some, and says where the others are."""
    records = [make_run(f"system-{number}", 1, id=f"{number:03d}") for number in range(MOST_CELLS + 5)]
    for record in records:
        write_run_folder(tmp_path / "sweep", record)
    html = rlbench.load(tmp_path)._repr_html_()
    assert html.count("<tr>") == 1 + MOST_CELLS
    assert "… and 5 more: <code>.cells</code> has all" in html
    assert page_of(summarise([])).endswith("<p>No run can be read.</p></div>")


def test_the_report_is_that_of_the_command(work: Path) -> None:
    """Of results or of folders; it says by which command it can be made again. Its file's path is returned."""
    sweep = write_sweep(work / "rlbench-runs")
    results = rlbench.load(sweep, reference="ver")
    assert rlbench.report(results, "one.html") == Path("one.html")
    assert rlbench.report(sweep, work / "two.html", reference="ver") == work / "two.html"
    assert results.report("three.html") == Path("three.html")
    assert rlbench.report() == Path("rlbench-report.html")
    one, two, three = (Path(name).read_text() for name in ("one.html", "two.html", "three.html"))
    assert f"rlbench report {sweep} --out one.html --reference ver" in one
    assert one == three.replace("three.html", "one.html")
    assert _summary(one) == _summary(two) == json.loads(results.summary.model_dump_json())["answers"]
    with pytest.raises(ValueError, match="is not there; `rlbench history RUNS` makes one"):
        rlbench.report(results, "four.html", history="missing.jsonl")
    with pytest.raises(ValueError, match="cannot be written"):
        rlbench.report(results, work / "nowhere" / "five.html")


def _summary(page: str) -> list[str]:
    """The answers of the document in a page."""
    answers: list[str] = Page(page).data["summary-data"]["answers"]
    return answers


def test_print_writes_the_table_of_the_command(tmp_path: Path) -> None:
    """And the representation is a line."""
    results = rlbench.load(write_sweep(tmp_path))
    assert re.search(r"^GPUs \| system +\| steps/s", str(results), re.MULTILINE)
    assert "--explain says" not in str(results)  # nobody types it here
    assert repr(results) == f"<rlbench.Results: 4 runs in 4 cells, of {results.folders[0]}>"


@pytest.mark.parametrize("name", FRAMES)
def test_columns_are_documented(name: str) -> None:
    """The page about the interface has each column of each frame, in its section."""
    text = DOCS.read_text(encoding="utf-8")
    section = text.partition(f"\n### {name}\n")[2].partition("\n#")[0]
    said = set(re.findall(r"`(\w+)`", section))
    own = {column for column in FRAMES[name] if column not in frames.CELL}
    assert own - {each for each in own if each.removesuffix("_low").removesuffix("_high") in said} == set()


def test_import_is_light() -> None:
    """Every process of a run imports the module: it loads no package, and no module of ours."""
    code = "import sys; before = set(sys.modules); import rlbench; dir(rlbench); print(*set(sys.modules) - before)"
    added = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {name.partition(".")[0] for name in added} <= {"rlbench", *sys.stdlib_module_names}
    assert [name for name in added if name.startswith("rlbench")] == ["rlbench"]


def test_what_the_module_offers() -> None:
    """Each public name is there and says what it is; another is an AttributeError."""
    assert {name for name in rlbench.__all__ if name in dir(rlbench)} == set(rlbench.__all__)
    assert rlbench.__version__ == version("rlbench")
    assert issubclass(rlbench.RunFailed, RuntimeError)
    assert [name for name in rlbench.__all__ if not getattr(rlbench, name).__doc__] == []
    with pytest.raises(AttributeError, match="no attribute 'train'"):
        rlbench.train  # noqa: B018
