from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
from pathlib import Path

import pytest

from rlbench.reports.exports import cells_csv
from rlbench.reports.exports.export import to_csv
from rlbench.reports.page.html import render, write_report
from rlbench.results.records.schema import RunRecord
from rlbench.results.summary.document import Summary
from tests.reports.page.pages import Page, at, full_cell, full_summary, make_learning, summary_of
from tests.reports.page.test_timeline import summary_with, write_folder
from tests.results.made_records import make_record
from tests.results.summaries import make_cell, make_run

COMMAND = ["rlbench", "report", "a folder"]
HEADINGS = [
    "Caveats",
    "Systems and GPUs",
    "Scaling",
    "Homogeneous beside heterogeneous",
    "Learning",
    "Where the time went",
    "Utilisation",
    "Lag and use of samples",
    "Ablation",
    "Published figures",
    "History",
    "What was learned from",
    "Runs",
    "Data",
]
"""Of the parts of a page that has everything but worker timelines."""
NASTY = "<script>alert(1)</script><img src=x onerror=alert(2)>&amp;</style>"


def page_of(summary: Summary) -> Page:
    """The page, without worker timelines."""
    return Page(render(summary, {}, title="A title", command=COMMAND))


@pytest.fixture(scope="module")
def full() -> Page:
    """A page that has everything but worker timelines."""
    return page_of(full_summary())


def test_every_figure_is_that_of_the_export(full: Page) -> None:
    """Every number of the page that the summary has is the export's at the path it names, in the page's JSON too."""
    exported = json.loads(full_summary().to_json())
    assert full.data["summary-data"] == exported
    assert len(full.figures) > 150
    for path, text in full.figures:
        value = at(exported, path)
        shown = re.sub(r"[,%x]|GiB", "", text)
        if value is None:
            assert text == "n/a", path
        elif "memory" not in path:
            scale = 100 if text.endswith("%") and "cpu" not in path else 1
            assert float(shown) == pytest.approx(scale * value, rel=0.01, abs=0.5 * scale / 100), path


def test_every_chart_has_its_table_and_title(full: Page) -> None:
    """A chart is a figure with a caption, places for its panels, and a table of its numbers."""
    tags = [tag for tag, _ in full.tags]
    assert tags.count("figcaption") >= tags.count("figure") > 10
    plots = {str(a["id"]) for _, a in full.tags if a.get("class") == "plot"}
    assert plots == set(full.data["figures-data"])
    assert all(a.get("aria-label") for _, a in full.tags if a.get("class") == "plot")


def test_parts_stand_in_order(full: Page) -> None:
    """The tiles come first, then caveats, then tables and charts, then runs and data; every link leads somewhere."""
    tiles = len(full.headings) - len(HEADINGS)
    assert full.headings[tiles:] == HEADINGS
    assert full.headings[:3] == ["Fastest on 1 emulated GPU; homogeneous", "What limits ver", "Main caveat"]
    links = [str(a["href"]) for tag, a in full.tags if tag == "a"]
    assert {link.removeprefix("#") for link in links} <= set(full.ids())
    assert {"caveats", "systems", "scaling", "published", "learned-from", "runs", "data"} <= {
        link[1:] for link in links
    }
    assert len(full.ids()) == len(set(full.ids()))


def test_what_spoils_the_figures_is_named(full: Page) -> None:
    """Unreadable folders, runs that did not finish, warnings with their runs, and what is not comparable."""
    for said in (
        "run.json: is damaged",
        "invalid: appo: 10 env steps <b>unaccounted</b> for",
        "load 3.1",
        "2 of 4 runs",
        "Not comparable (1)",
        "differ in more than their own choices: epochs",
        full_summary().fairness[0].differences[0].sentence(),
    ):
        assert said in full.text
    assert "None: every run finished" not in full.text
    measured = make_cell(kind="measured", device="cuda")
    assert "None: every run finished" in page_of(summary_of([measured], [make_record("ver", 8)])).text


def test_what_was_learned_from_is_folded(full: Page) -> None:
    """A table of shares, one by part and one by length, of the run that says so; else the page has no such section."""
    captions = ("Shares of environments in the samples", "env steps, by scenario part", "by length of the episode")
    for said in (*captions, "a <b>map</b>", "128 to 255", "not ended"):
        assert said in full.text
    paths = [path for path, _ in full.figures if ".learned_from." in path]
    assert {path.split(".")[1] for path in paths} == {"1"}
    assert "learned-from" not in page_of(summary_of([make_cell()], [make_record()])).ids()


def test_rate_of_an_invalid_run_is_not_shown(full: Page) -> None:
    """It stands in the JSON, and nowhere beside those of valid runs."""
    assert "777" not in full.text
    assert full.data["summary-data"]["runs"][3]["figures"]["steps_per_s"] == 777.0


def test_kinds_are_explained(full: Page) -> None:
    """Emulated, predicted and published figures are each explained among the caveats."""
    for said in ("emulated: GPUs are emulated", "predicted: simulated by a model", "published: not measured here"):
        assert said in full.text
    measured = summary_of([make_cell(kind="measured", device="cuda")])
    assert "emulated" not in page_of(measured).text.replace("emulated/open-fridge", "")


@pytest.mark.parametrize(
    "summary",
    [
        summary_of([]),
        summary_of([make_cell("ver", 8)], [make_record("ver", 8)]),
        summary_of(
            [make_cell("ver", 8, None)],
            [make_record("ver", 8, steps_per_s=None, status="timed-out", reason="after 60 s")],
        ),
        summary_of([full_cell("ver", 1, 5.0, learning=make_learning(num_points=1, threshold=None, to_threshold=[]))]),
    ],
    ids=["no run", "one run", "failed runs", "a point of a curve"],
)
def test_whatever_there_is_makes_a_page(summary: Summary) -> None:
    """Parts that have nothing are not there, nor links to them."""
    page = page_of(summary)
    assert page.headings[-2:] == ["Runs", "Data"]
    assert len(page.headings) < len(HEADINGS)
    links = {str(a["href"])[1:] for tag, a in page.tags if tag == "a"}
    assert links <= set(page.ids())
    assert not {"learned-from", "history", "ablation", "timeline"} & links


def test_text_of_runs_is_text() -> None:
    """Names, reasons, paths and settings never become elements, nor end the one that holds the data."""
    summary = full_summary(NASTY)
    nasty = make_run(
        NASTY,
        8,
        id=f"001-{NASTY}",
        status="failed",
        reason=NASTY,
        choices={NASTY: NASTY},
        machine={"cpu_model": NASTY},
        command=[NASTY],
        warnings=[NASTY],
    )
    summary = summary.model_copy(update={"runs": [*summary.runs, nasty], "answers": [f"`{NASTY}` is fast"]})
    text = render(summary, {}, title=NASTY, command=[NASTY])
    page, plain = Page(text), page_of(full_summary())
    assert {tag for tag, _ in page.tags} == {tag for tag, _ in plain.tags}
    assert len(page.scripts) == len(plain.scripts) == 1
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert page.text.count(NASTY) > 10
    assert text.lower().count("</script>") == len(page.scripts) + len(page.data)
    assert page.data["summary-data"]["runs"][-1]["reason"] == NASTY
    drawn = json.dumps(page.data["figures-data"], default=str)
    drawn = re.sub(r'"facets": \{[^}]*\}', "", drawn)  # what filters compare names with
    assert "&lt;script&gt;" in drawn
    assert "<script" not in drawn


def test_nothing_is_loaded(full: Page) -> None:
    """No element names anything outside the page, and the page's policy would not let it."""
    for tag, attributes in full.tags:
        assert "src" not in attributes
        assert tag not in {"link", "iframe", "img", "object", "base", "form"}
        assert str(attributes.get("href", "#")).startswith("#")
    (policy,) = [str(a["content"]) for _, a in full.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "http" not in policy
    assert "unsafe-eval" not in policy
    assert "script-src 'unsafe" not in policy
    for style in (Path("reports") / "page" / "templates").resolve().glob("*.css"):
        assert not re.search(r"url\(|@import", style.read_text(encoding="utf-8"))


def test_our_two_scripts_may_run(full: Page) -> None:
    """The policy names the hashes of both scripts, plotly.js, which ours unpacks, and ours, and no others."""
    (policy,) = [str(a["content"]) for _, a in full.tags if a.get("http-equiv") == "Content-Security-Policy"]
    scripts = [full.data["plotly"], *full.scripts]
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert re.findall(r"'sha256-([^']+)'", policy) == hashes
    assert "plotly.js (basic - minified) v" in scripts[0]
    assert "__rlbenchCharts" in scripts[1]
    assert "__rlbenchTimelines" in scripts[1]


def test_downloads_have_the_right_rows(full: Page) -> None:
    """The page holds the runs as `results --csv` writes them, the cells with their intervals, and the summary."""
    summary = full_summary()
    assert full.data["csv-data"]["runs"] == to_csv(summary.runs)
    assert Summary.model_validate(full.data["summary-data"]) == summary
    rows = list(csv.DictReader(io.StringIO(full.data["csv-data"]["cells"])))
    assert [row["system"] for row in rows] == [cell.system for cell in summary.cells]
    assert (rows[1]["steps_per_s.value"], rows[1]["steps_per_s.low"]) == ("700.25", "687.75")
    assert rows[1]["learning.to_threshold.env_steps.value"] == "5000.0"
    assert json.loads(rows[0]["runs"]) == ["ver-1"]
    assert rows[5]["steps_per_s.value"] == ""
    assert "learning.curve" not in rows[0]
    offered = {str(a["data-download"]) for _, a in full.tags if "data-download" in a}
    assert offered == set(re.findall(r'"([\w.]+)": async \(\) => \[', full.scripts[0]))


def test_cells_of_nothing_are_an_empty_csv() -> None:
    """No cells, no lines."""
    assert cells_csv.to_csv([]) == ""


def test_each_run_has_its_provenance() -> None:
    """What all runs share, or all of a system, stands once; each has the rest, and its command as a shell takes it."""
    file = {"name": "sweep.toml", "sha256": "0a" * 32}
    runs = [
        make_run("ver", 8, command=["rlbench", "run", "--systems", "ver", "--out", "my runs"]),
        make_run("appo", 8, learn={"epochs": 7}, status="failed", reason="rank 3 died", sweep_file=file),
    ]
    text = page_of(summary_of([make_cell()], runs)).text
    assert text.count("sweep.toml, sha256 0a0a") == 1
    assert "rlbench run --systems ver --out 'my runs'" in text
    assert "rank 3 died" in text
    assert text.count("machine.cpu_model") == 1
    assert text.count("version.torch") == 1
    assert text.count("scenario.learn.epochs") == 2
    assert "rlbench report 'a folder'" in text


def test_worker_timelines_are_in_the_page(tmp_path: Path) -> None:
    """Each run with spans can be chosen, and its milliseconds are a table."""
    folders = {run: write_folder(tmp_path, run) for run in ("a", "b")}
    summary = summary_with(("ver", 8, "a"), ("appo", 8, "b"))
    page = Page(render(summary, folders, title="", command=[]))
    assert [run["label"] for run in page.data["timelines-data"]["timeline-0"]["runs"]] == ["ver x8", "appo x8"]
    assert [attributes.get("value") for tag, attributes in page.tags if tag == "option"][:2] == ["0", "1"]
    assert "rank 0, second thread" in page.text


def test_totals_of_many_ranks_are_cut(tmp_path: Path) -> None:
    """The table of an iteration has the first 24 rows, and says where the others are."""
    spans = [(rank, -1, 2.0, 3.0, "learn") for rank in range(30)]
    page = Page(render(summary_with(("ver", 8, "a")), {"a": write_folder(tmp_path, "a", spans)}, title="", command=[]))
    assert "rank 23" in page.text
    assert "rank 24" not in page.text
    assert "the first 24 of 30 rows, all are in the page's data" in page.text


def test_a_hundred_runs_fit_into_2_mb() -> None:
    """A page of 100 runs with learning curves and configurations."""
    names = [f"system-{k}" for k in range(10)]
    cells = [
        full_cell(name, gpus, 1.1 * gpus, id=f"{name}-{gpus}", learning=make_learning(1 / 3, num_points=60))
        for name in names
        for gpus in range(1, 11)
    ]
    runs: list[RunRecord] = [
        make_run(name, gpus, warnings=[f"load {gpus}"], command=["rlbench", "run", "--systems", ",".join(names)])
        for name in names
        for gpus in range(1, 11)
    ]
    assert len(render(summary_of(cells, runs), {}, title="", command=[]).encode()) < 2_000_000


def test_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    """A page replaces the one before; where it cannot be written, what was there stays, and nothing is left beside."""
    out = tmp_path / "report.html"
    out.write_text("old")
    write_report(full_summary(), {}, out, title="A title", command=COMMAND)
    assert out.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert list(tmp_path.iterdir()) == [out]
    taken = tmp_path / "folder.html"
    taken.mkdir()
    with pytest.raises(ValueError, match=r"folder\.html: cannot be written \(.*\); choose another --out"):
        write_report(full_summary(), {}, taken, title="", command=[])
    assert sorted(tmp_path.iterdir()) == [taken, out]
    with pytest.raises(ValueError, match="cannot be written"):
        write_report(full_summary(), {}, tmp_path / "missing" / "report.html", title="", command=[])


def test_page_is_the_same_each_time() -> None:
    """Nothing in a page depends on when it was made."""
    assert render(full_summary(), {}, title="", command=[]) == render(full_summary(), {}, title="", command=[])
