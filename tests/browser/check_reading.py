"""What a reader does with a page: narrows, sorts, copies and follows links, by mouse, keyboard or screen reader."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from rlbench.reports.page.html import render
from tests.browser.conftest import open_report, rlbench, violations, wait_for
from tests.reports.page.pages import full_summary

TRACES = """id => document.getElementById(id).data.filter(trace => trace.meta?.facets)
  .map(trace => [trace.name ?? '', trace.x, trace.meta.facets.system])"""


@pytest.fixture
def page(chromium: Browser, report: Path) -> Iterator[Page]:
    """The report on a desk."""
    opened = open_report(chromium, report, 1400, "light")
    yield opened.page
    assert opened.errors == []
    opened.page.context.close()


def press(page: Page, facet: str, value: str) -> None:
    """Presses the filter's button of a value."""
    page.locator(f'fieldset[data-facet="{facet}"] button[data-value="{value}"]').click()
    wait_for(page, "Object.values(window.__rlbenchCharts).every(Boolean)")
    page.wait_for_timeout(300)


def traces(page: Page, name: str) -> list[Any]:
    """Name, places and system of the traces of a chart."""
    found: list[Any] = page.evaluate(f"({TRACES})('{name}')")
    return found


def rows(page: Page) -> set[str]:
    """The first entries of all rows of tables that the filters let through and that know their system."""
    return set(
        page.eval_on_selector_all(
            "tr[data-system]:not(.filtered-out)", "all => [...new Set(all.map(row => row.dataset.system))]"
        )
    )


def shown_by(page: Page, facet: str) -> dict[str, set[str]]:
    """The scenarios or devices of what is shown: charts or their traces, rows of runs, runs by themselves."""
    shown = "all => all.filter(each => !each.closest('.filtered-out')).map(each => each.dataset.FACET)"
    shown = shown.replace("FACET", facet)
    in_traces = """facet => [...document.querySelectorAll('.plot')]
      .filter(plot => plot.data && plot.getClientRects().length)
      .flatMap(plot => plot.closest(`[data-${facet}]`)?.dataset[facet]
        ?? plot.data.flatMap(trace => {
          const own = trace.meta?.facets?.[facet] ?? []; // a list has those of points, also hidden ones
          return Array.isArray(own) && own.length !== trace.y.length ? [] : own;
        }))"""
    return {
        "traces": set(page.evaluate(in_traces, facet)),
        "rows": set(page.eval_on_selector_all(f"#runs tr[data-{facet}]", shown)),
        "runs": set(page.eval_on_selector_all(f"#runs details[data-{facet}]", shown)),
    }


def wait_until_shown(page: Page, facet: str, wanted: dict[str, set[str]]) -> None:
    """Waits until the page, which draws chart after chart, shows this and nothing else."""
    deadline = time.monotonic() + 60
    while (shown := shown_by(page, facet)) | wanted != shown:
        assert time.monotonic() < deadline, shown
        page.wait_for_timeout(100)


def check_the_first_screen_has_the_answer(chromium: Browser, runs: Path) -> None:
    """On a desk the tiles, bars and lines of a sweep are in view without scrolling; on a phone tiles and bars are."""
    rlbench("report", "emulated", "--out", "one.html", cwd=runs)
    for width, height, seen in ((1400, 900, 4), (390, 800, 3)):
        page = open_report(chromium, runs / "one.html", width, "light", height).page
        parts = page.evaluate(
            """[...document.querySelectorAll('h1, .first:not([data-later]) .verdict:not([data-later]) .tiles,' +
              '.first:not([data-later]) .plot')].filter(each => each.getClientRects().length)
              .map(each => each.getBoundingClientRect().bottom)"""
        )
        assert sum(bottom <= height for bottom in parts) >= seen, (width, parts)
        page.context.close()


def check_a_system_alone(page: Page) -> None:
    """One click shows a system alone, in charts and tables; another adds one; `Show all` shows all again."""
    before = rows(page)
    assert {"sync", "ver"} < before
    press(page, "system", "ver")
    assert rows(page) == {"ver"}
    name = page.evaluate("[...document.querySelectorAll('#scaling .plot')].find(plot => plot.offsetParent).id")
    assert {system for _, _, system in traces(page, name)} == {"ver"}
    assert "narrowed by system" in page.inner_text("#filtered")
    press(page, "system", "sync")
    assert rows(page) == {"sync", "ver"}
    page.locator("#all").click()
    assert rows(page) == before


def check_gpus_hold_for_lines_columns_and_tiles(page: Page) -> None:
    """With one number of GPUs, tiles, columns and rows are of it, and there are no lines over several."""
    first = ".first:not([data-later])"
    line = page.evaluate(f"[...document.querySelectorAll('{first} .plot')].at(-1).id")
    counts = sorted({x for _, places, _ in traces(page, line) for x in places if x is not None})
    assert len(counts) > 1
    press(page, "gpus", str(counts[0]))
    assert page.locator(f"#{line}").is_hidden()
    counted = page.locator(f"{first} [data-rows]")
    left = page.locator(f"{first} details.numbers tbody tr:not(.filtered-out)").count()
    assert counted.inner_text() == f"{left} of {counted.get_attribute('data-rows')}"
    assert page.get_attribute(f"{first} .verdict:not([data-later])", "data-gpus") == str(counts[0])
    heads = page.eval_on_selector_all(
        "#systems .matrix thead th[data-gpus]", "all => all.filter(th => !th.hidden).map(th => th.dataset.gpus)"
    )
    assert set(heads) == {str(counts[0])}
    page.evaluate(f"location.hash = 'figure-{line}'")
    wait_for(page, f"document.getElementById('{line}').getClientRects().length > 0", 10)
    assert page.inner_text("#filtered") == ""
    assert {x for _, places, _ in traces(page, line) for x in places if x is not None} == set(counts)
    assert counted.inner_text() == counted.get_attribute("data-rows")


def check_a_link_leads_below_the_filters(page: Page) -> None:
    """A section's heading stands right below the filters, also where the page scrolls while charts are drawn anew."""
    click = "name => document.querySelector(name).click()"
    page.evaluate(click, 'fieldset[data-facet="system"] button[data-value="ver"]')
    page.evaluate(click, 'nav a[href="#published"]')
    top = "document.querySelector('#published').getBoundingClientRect().top"
    before = None
    while (now := page.evaluate(top)) != before:
        before = now
        page.wait_for_timeout(500)
    bar = page.evaluate("document.querySelector('.filters').offsetHeight")
    assert bar <= now <= bar + 20


def check_scenario_and_workload_hide_whole_charts(page: Page) -> None:
    """Charts and tables of other works go, and the first screen is of one that is left."""
    press(page, "workload", "heterogeneous")
    shown = page.eval_on_selector_all(
        "figure.chart[data-workload]", "all => all.filter(each => each.offsetParent).map(each => each.dataset.workload)"
    )
    assert set(shown) == {"heterogeneous"}
    captions = page.eval_on_selector_all(
        "#systems caption", "all => all.filter(each => !each.closest('.filtered-out')).map(each => each.textContent)"
    )
    assert captions
    assert all("heterogeneous" in caption for caption in captions), captions
    assert page.get_attribute(".first:not([data-later])", "data-workload") == "heterogeneous"


@pytest.mark.parametrize(("facet", "value"), [("scenario", "pointnav"), ("device", "cpu"), ("device", "predicted")])
def check_scenario_and_device_hold_everywhere(page: Page, facet: str, value: str) -> None:
    """Tiles, charts, rows and works to choose from are of that scenario or device alone; `Show all` brings all back."""
    before = shown_by(page, facet)
    assert all(len(values) > 1 for values in before.values()), before
    press(page, facet, value)
    wait_until_shown(page, facet, {kind: {value} for kind in before})
    offered = page.eval_on_selector_all("[data-first]", "all => all.filter(each => !each.hidden).length")
    assert 1 <= offered < page.locator("[data-first]").count()
    page.locator("#all").click()
    wait_until_shown(page, facet, before)


def check_devices_of_one_work(chromium: Browser, tmp_path: Path) -> None:
    """Where cells of a work are of two devices, lines, bars and tiles are of those of the one that is left."""
    path = tmp_path / "devices.html"
    path.write_text(render(full_summary(), {}, command=[]), encoding="utf-8")
    opened = open_report(chromium, path, 1400, "light")
    tiles = ".first:not([data-later]) .verdict:not([data-later]) .tiles:not([data-later])"
    for device, gpus in (("predicted", "64"), ("emulated", "8")):
        opened.page.locator("#all").click()
        press(opened.page, "device", device)
        assert opened.page.get_attribute(tiles, "data-device") == device
        assert opened.page.get_attribute(".first:not([data-later]) .verdict:not([data-later])", "data-gpus") == gpus
        wait_until_shown(opened.page, "device", {"traces": {device}})
    assert opened.errors == []
    opened.page.context.close()


def check_tables_sort_by_a_click(page: Page) -> None:
    """Numbers by their size, descending first, then ascending; said to screen readers."""
    first = ".first:not([data-later]) details.numbers"
    page.locator(f"{first} > summary").click()
    head = page.locator(f"{first} th[scope=col]").last
    column = f"{first} tbody tr"

    def figures() -> list[float]:
        texts = page.eval_on_selector_all(column, "all => all.map(row => row.lastElementChild.textContent.trim())")
        return [float(text.split(" ")[0].replace(",", "")) for text in texts if text[:1].isdigit()]

    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert figures() == sorted(figures(), reverse=True)
    assert len(figures()) > 2
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert figures() == sorted(figures())


@pytest.mark.parametrize(
    ("name", "begin"), [("CSV", "system,"), ("Markdown", "| system |"), ("LaTeX", "\\begin{tabular}{l")]
)
def check_tables_are_copied(page: Page, name: str, begin: str) -> None:
    """What the clipboard has is the table, without what filters hide."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    press(page, "system", "ver")
    page.locator("#systems").get_by_role("button", name=f"Copy the table as {name}").first.click()
    page.wait_for_timeout(200)
    text = str(page.evaluate("navigator.clipboard.readText()"))
    assert text.startswith(begin)
    assert "ver" in text
    assert "sync" not in text


def check_each_figure_has_an_anchor(page: Page) -> None:
    """Its link leads to it."""
    links = page.eval_on_selector_all("a.anchor", "all => [...new Set(all.map(each => each.getAttribute('href')))]")
    assert len(links) > 10
    assert all(page.locator(link).count() == 1 for link in links)
    page.evaluate(f"document.querySelector('a.anchor[href=\"{links[-1]}\"]').click()")
    wait_for(page, f"document.querySelector('{links[-1]}').getBoundingClientRect().top < innerHeight", 10)


def check_an_address_leads_to_a_figure_that_is_not_shown_first(chromium: Browser, report: Path, page: Page) -> None:
    """A page that is opened at a figure of another work shows that work."""
    later = page.eval_on_selector_all(".first[data-later] figure.chart", "all => all.map(each => each.id)")
    opened = chromium.new_page()
    opened.goto(f"{report.as_uri()}#{later[0]}")
    wait_for(opened, f"document.getElementById('{later[0]}').getClientRects().length > 0", 30)
    opened.close()


def check_an_address_leads_to_a_figure_on_another_number_of_gpus(page: Page) -> None:
    """Of charts of which one is shown at a time, the one that is asked for is; filters that hide it are lifted."""
    of_one = "figure[data-one-of][data-gpus]"
    hidden = page.eval_on_selector_all(f"{of_one}[data-later]", "all => all.map(each => [each.id, each.dataset.gpus])")
    assert hidden
    press(page, "gpus", next(gpus for gpus in ("1", "2") if gpus != hidden[-1][1]))
    for name, _ in hidden:
        page.evaluate(f"location.hash = '{name}'")
        wait_for(page, f"document.getElementById('{name}').getClientRects().length > 0", 30)
        top = f"document.getElementById('{name}').getBoundingClientRect().top"
        wait_for(page, f"0 <= {top} && {top} < innerHeight", 30)
        wait_for(page, f"document.querySelector('#{name} .main-svg') !== null", 30)
    assert page.inner_text("#filtered") == ""
    assert page.locator('fieldset[data-facet] button[aria-pressed="false"]').count() == 0
    shown = page.eval_on_selector_all(f"{of_one}:not([data-later])", "all => all.map(each => each.dataset.oneOf)")
    assert len(shown) == len(set(shown))


def check_every_work_is_on_paper(page: Page) -> None:
    """Printed, the first screens of all works stand below each other; afterwards one is shown again."""
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    shown = page.eval_on_selector_all(".first", "all => all.map(each => each.getClientRects().length > 0)")
    assert len(shown) > 1
    assert all(shown)
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    shown = page.eval_on_selector_all(".first", "all => all.map(each => each.getClientRects().length > 0)")
    assert shown.count(True) == 1


def check_figures_are_saved_as_svg_and_png(page: Page) -> None:
    """By the buttons above a chart."""
    plot = page.locator(".first:not([data-later]) .plot").last
    for title, end in (("Save as SVG", ".svg"), ("Download plot as a PNG", ".png")):
        plot.hover()
        with page.expect_download() as caught:
            plot.locator(f'.modebar-btn[data-title="{title}"]').click()
        assert caught.value.suggested_filename.endswith(end)


def check_everything_works_by_keyboard(page: Page) -> None:
    """A filter is reached and pressed without a mouse, and says that it is pressed."""
    button = page.locator('fieldset[data-facet="system"] button').first
    button.focus()
    assert button.get_attribute("aria-pressed") == "true"
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    pressed = page.eval_on_selector_all(
        'fieldset[data-facet="system"] button', "all => all.map(each => each.getAttribute('aria-pressed'))"
    )
    assert pressed.count("true") == 1
    assert pressed[1] == "true"


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (1400, "dark"), (390, "light"), (390, "dark")])
def check_axe_finds_nothing(chromium: Browser, report: Path, width: int, scheme: str) -> None:
    """No violation of WCAG 2.2 A and AA: names of controls, contrast of 4.5:1, landmarks, tables."""
    opened = open_report(chromium, report, width, scheme)
    assert violations(opened.page) == []
    opened.page.context.close()


def check_tiles_speak_of_the_systems_that_are_left(page: Page) -> None:
    """Without the fastest the tiles are of the next, against others that are shown; alone, it is against none."""
    tiles = ".first:not([data-later]) .verdict:not([data-later]) .tiles:not([data-later])"
    of_three = '.first:has(.tiles[data-system="ver:preempt=never"])'
    page.locator(f"[data-first={page.locator(of_three).first.get_attribute('id')}]").click()
    assert page.locator(tiles).count() == 1
    best = page.get_attribute(tiles, "data-system")
    bars = page.evaluate("document.querySelector('.first:not([data-later]) .verdict:not([data-later]) .plot').id")
    rates = {system: rate[0] for _, rate, system in traces(page, bars) if rate is not None and len(rate) == 1}
    others = sorted((name for name in rates if name != best), key=rates.__getitem__)
    assert len(others) > 1
    for shown, name in enumerate(others, 1):
        press(page, "system", name)
        assert page.get_attribute(tiles, "data-system") == name
        assert page.locator(f"{tiles} .tile:visible .value").first.inner_text() == name
        rivals = page.locator(f"{tiles} .rival:visible")
        assert {rivals.nth(at).get_attribute("data-system") for at in range(rivals.count())} <= set(others[:shown])
        assert best not in page.locator(".first:not([data-later])").inner_text().split()
    assert rivals.count() > 0
    page.locator("#all").click()
    assert page.get_attribute(tiles, "data-system") == best
