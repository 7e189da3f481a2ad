from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser

from tests.browser.conftest import HOSTILE, Opened, open_report

SECTIONS = (
    *("answer", "scaling", "workloads", "learning", "time"),
    *("telemetry", "utilisation", "samples", "ablation"),
)
"""The parts of a page that have charts; the runs of the fixture have something for each."""
PLOT_FACTS = """
plot => ({
  id: plot.id,
  title: plot.closest('figure').querySelector('figcaption').textContent.trim(),
  width: plot.querySelector('.main-svg')?.getBoundingClientRect().width ?? 0,
  height: plot.querySelector('.main-svg')?.getBoundingClientRect().height ?? 0,
  marks: plot.querySelectorAll('.trace path, .point path, .points path, .js-line, .bars path').length,
  axes: [...plot.querySelectorAll('.infolayer .xtitle, .infolayer .ytitle, .infolayer [class*=title] text')]
    .map(text => text.textContent),
  rows: (plot.closest('.first') ?? plot.closest('figure')).querySelectorAll('table tbody tr').length,
})
"""


def figure_at(document: Any, path: str) -> Any:
    """What a JSON document has at a dotted path."""
    for key in path.split("."):
        document = document[int(key)] if isinstance(document, list) else document[key]
    return document


def reads_as(text: str, figure: float) -> bool:
    """Whether people read a figure in a text, to the three digits, or the whole percent, that are written."""
    found = re.search(r"-?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?", text)
    assert found, text
    read = float(found[0].replace(",", "")) * (2**30 if "GiB" in text else 1)
    if "%" in text:  # of a fraction, or of what is in percent itself
        return min(abs(read - 100 * figure), abs(read - figure)) <= 0.5 + 1e-9
    return abs(read - figure) <= max(0.005 * abs(figure), 0.005) + 1e-9


def download(opened: Opened, name: str) -> str:
    """What the button of that name hands out."""
    with opened.page.expect_download() as caught:
        opened.page.click(f'[data-download="{name}"]')
    assert caught.value.suggested_filename == name
    return Path(caught.value.path()).read_text(encoding="utf-8")


def check_nothing_is_requested_and_nothing_goes_wrong(opened: Opened, report: Path) -> None:
    """With the network off the page asks for itself alone; no console or script complains; no text of a run runs."""
    asked = [url for url in opened.requests if not url.startswith(("data:", "blob:"))]
    assert asked == [report.as_uri()]
    assert opened.errors == []
    assert opened.dialogs == []
    offers = opened.page.eval_on_selector_all(".modebar-btn", "all => all.map(each => each.dataset.title)")
    assert offers
    assert not [offer for offer in offers if "loud" in offer or "hare" in offer]  # plotly's, to its makers' servers


def check_every_chart_is_drawn(opened: Opened) -> None:
    """Every chart that is shown has a title, marks, units on its axes, a size, and its numbers as a table."""
    plots = opened.page.locator(".plot")
    for section in SECTIONS:
        assert opened.page.locator(f"#{section} .plot").count() >= 1, section
    drawn = opened.page.evaluate("window.__rlbenchCharts")
    assert len(drawn) == plots.count()
    assert all(drawn.values())
    shown = [plots.nth(number) for number in range(plots.count()) if plots.nth(number).is_visible()]
    assert len(shown) > 20
    for plot in shown:
        facts = plot.evaluate(PLOT_FACTS)
        assert facts["title"], facts
        assert facts["width"] > 200, facts
        assert facts["height"] >= 100, facts
        assert facts["marks"] > 0, facts
        assert facts["axes"], facts
        assert facts["rows"] > 0, facts


def check_the_page_fits_its_width(opened: Opened) -> None:
    """Nothing but tables in their boxes is wider than the window, on a phone either."""
    widths = opened.page.evaluate("[document.scrollingElement.scrollWidth, innerWidth]")
    assert widths[0] <= widths[1]


def check_light_and_dark(opened: Opened) -> None:
    """Text has a contrast of at least 7:1 (WCAG, AAA) in both schemes, and the button changes between them."""

    def contrast() -> float:
        return float(
            opened.page.evaluate(
                """() => {
                  const style = getComputedStyle(document.body);
                  const light = (text) => {
                    const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
                      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
                    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
                  };
                  const root = getComputedStyle(document.documentElement);
                  const clear = 'rgba(0, 0, 0, 0)';
                  const back = style.backgroundColor === clear ? root.backgroundColor : style.backgroundColor;
                  const both = [light(style.color), light(back)].sort((a, b) => b - a);
                  return (both[0] + 0.05) / (both[1] + 0.05);
                }"""
            )
        )

    def colours() -> str:
        return str(opened.page.evaluate("getComputedStyle(document.body).color"))

    before = colours()
    assert contrast() >= 7
    opened.page.click("#theme")
    assert colours() != before
    assert contrast() >= 7
    opened.page.click("#theme")
    assert colours() == before


def check_every_figure_is_that_of_the_export(opened: Opened, exported: dict[str, Any]) -> None:
    """Each figure in a table is what `rlbench export --format json` has at its path, `n/a` where that is null."""
    shown = opened.page.eval_on_selector_all(
        "[data-path]", "all => all.map(each => [each.dataset.path, each.textContent.trim()])"
    )
    assert len(shown) > 200
    for path, text in shown:
        figure = figure_at(exported, path)
        assert (text == "n/a") == (figure is None), path
        if figure is not None:
            assert reads_as(text, float(figure)), (path, text, figure)


def check_downloads(opened: Opened, exported: dict[str, Any]) -> None:
    """The files have the export's figures: the summary all of them, the tables a row for each cell and each run."""
    assert json.loads(download(opened, "summary.json")) == exported
    cells = list(csv.DictReader(io.StringIO(download(opened, "cells.csv"))))
    assert [row["id"] for row in cells] == [cell["id"] for cell in exported["cells"]]
    for row, cell in zip(cells, exported["cells"], strict=True):
        rate = cell["steps_per_s"]
        assert row["steps_per_s.value"] == ("" if rate is None else repr(rate["value"]))
    rows = list(csv.DictReader(io.StringIO(download(opened, "runs.csv"))))
    assert [(row["id"], row["status"]) for row in rows] == [(run["id"], run["status"]) for run in exported["runs"]]


def check_what_went_wrong_is_named(opened: Opened) -> None:
    """Failed and timed-out runs, a half-written one, a foreign file and a newer schema stand among the caveats."""
    text = opened.page.inner_text("#caveats")
    for said in ("rank 1", "after 5 s", ".partial-killed", "foreign", "schema version 99"):
        assert said in text, said
    assert HOSTILE in (opened.page.text_content("body") or "")  # as text


def check_kinds_are_never_mistaken(opened: Opened) -> None:
    """Every figure in the tables of systems stands in a row that says what it is, if not measured; so do captions."""
    tables = opened.page.eval_on_selector_all(
        "#systems .matrix table",
        """all => all.map(table => ({
          caption: table.caption.textContent,
          rows: [...table.querySelectorAll('tbody tr')].map(row => row.querySelector('th').textContent),
        }))""",
    )
    of_profiles = [table for table in tables if ": emulated/" in table["caption"]]
    assert len(of_profiles) >= 2
    assert len(tables) > len(of_profiles)
    named = ("(emulated)", "(predicted)")
    for table in of_profiles:
        assert all(each.endswith(named) for each in table["rows"]), table
    assert any("(predicted)" in row for table in of_profiles for row in table["rows"])
    measured = [row for table in tables if table not in of_profiles for row in table["rows"]]
    assert not any(name in row for row in measured for name in named)
    assert "published" in opened.page.inner_text("main").lower()


def check_the_printed_page_is_light(chromium: Browser, report: Path) -> None:
    """Printed from a dark screen the page is light, and its buttons are not on it."""
    opened = open_report(chromium, report, 1400, "dark")
    opened.page.emulate_media(media="print")
    assert opened.page.locator("#theme").is_hidden()
    colour = opened.page.evaluate("getComputedStyle(document.body).color.match(/\\d+/g).map(Number)")
    assert max(colour[:3]) < 90
    assert len(opened.page.pdf()) > 50_000
    opened.page.context.close()
