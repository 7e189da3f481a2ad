from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.conftest import open_report, wait_for

CHART = "window.tested"
FIGURE = "figure[data-tested]"
CHOOSE = f"""() => {{
  {CHART} = Object.values(window.__rlbenchTimelines).find(chart => chart.run.lanes.some(([rank]) => rank === 1));
  {CHART}.canvas.closest('figure').dataset.tested = '';
}}"""


@pytest.fixture
def page(chromium: Browser, report: Path) -> Iterator[Page]:
    """The report on a desk, at its first timeline of several ranks."""
    opened = open_report(chromium, report, 1400, "light")
    opened.page.evaluate(CHOOSE)
    opened.page.locator(f"{FIGURE} canvas").scroll_into_view_if_needed()
    yield opened.page
    assert opened.errors == []
    opened.page.context.close()


def seen(page: Page) -> float:
    """How many ticks are in view."""
    return float(page.evaluate(f"{CHART}.view.to - {CHART}.view.from"))


def part(page: Page, name: str) -> Any:
    """A part of the figure."""
    return page.locator(f"{FIGURE} [data-part={name}]")


def place(page: Page, row: int, share: float) -> tuple[float, float]:
    """A point of the screen: in a row, so far from the left of what is in view to its right."""
    box = page.locator(f"{FIGURE} canvas").bounding_box()
    assert box is not None
    gutter, height = page.evaluate(f"[{CHART}.size.gutter, {CHART}.view.rowHeight]")
    return box["x"] + gutter + share * (box["width"] - gutter - 10), box["y"] + 36 + (row + 0.5) * height


def picture(page: Page) -> str:
    """What is painted."""
    return str(page.evaluate(f"(({CHART}).paint(), {CHART}.canvas.toDataURL())"))


def check_every_rank_and_environment_has_a_row(page: Page) -> None:
    """All ranks and environments of the largest run are there, and the totals of the iteration below them."""
    lanes = page.evaluate(f"{CHART}.run.lanes")
    assert {rank for rank, _ in lanes} == {0, 1}
    assert len({lane for rank, lane in lanes if rank == 1 and lane >= 0}) == 16
    assert page.locator(f"{FIGURE} table tbody tr").count() >= 4


def check_dragging_zooms(page: Page) -> None:
    """Dragging over a part shows that part, and a double click the whole iteration again."""
    whole = seen(page)
    page.mouse.move(*place(page, 2, 0.2))
    page.mouse.down()
    page.mouse.move(*place(page, 2, 0.4), steps=8)
    page.mouse.up()
    assert seen(page) == pytest.approx(0.2 * whole, rel=0.02)
    page.mouse.dblclick(*place(page, 2, 0.5))
    assert seen(page) == pytest.approx(whole)


def check_wheel_and_buttons_zoom(page: Page) -> None:
    """The wheel with Ctrl zooms about the pointer; without it the rows scroll; buttons zoom about the middle."""
    whole = seen(page)
    page.mouse.move(*place(page, 2, 0.5))
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    wait_for(page, f"{CHART}.view.to - {CHART}.view.from < {0.9 * whole}", 30)
    page.keyboard.up("Control")
    zoomed = seen(page)
    page.mouse.wheel(0, 100)
    wait_for(page, f"{CHART}.view.top > 0", 30)
    assert seen(page) == zoomed
    part(page, "in").click()
    assert seen(page) == pytest.approx(zoomed / 2)
    part(page, "out").click()
    assert seen(page) == pytest.approx(zoomed)
    part(page, "one").click()
    assert seen(page) == pytest.approx(whole)


def check_the_slider_chooses_the_iteration(page: Page) -> None:
    """The slider goes through the iterations that the page has; each is then what is in view, and is named."""
    iterations = page.evaluate(f"{CHART}.run.iterations")
    assert len(iterations) > 1
    for index, iteration in enumerate(iterations):
        part(page, "iteration").fill(str(index))
        begin, end = page.evaluate(f"[{CHART}.view.from, {CHART}.view.to]")
        assert (begin, end) == pytest.approx((iteration["begin"], iteration["end"]), abs=1)
        assert part(page, "number").inner_text().startswith(str(iteration["number"]))


def check_hovering_tells_about_a_span(page: Page) -> None:
    """The pointer shows kind, length, row, begin and batch of the span that it is on."""
    row = 1
    tick = page.evaluate(
        f"(() => {{ const {{ run, view }} = {CHART}; const k = run.endingAfter({row}, view.from);"
        " return (run.begins[k] + run.ends[k]) / 2; })()"
    )
    share = (tick - page.evaluate(f"{CHART}.view.from")) / seen(page)
    page.mouse.move(*place(page, row, share))
    wait_for(page, f"!{CHART}.tip.hidden", 30)
    kind, name, begins, batch = part(page, "tip").inner_text().splitlines()
    assert kind.split(": ")[0] in page.evaluate(f"{CHART}.run.kinds")
    assert kind.endswith((" s", " ms", " µs"))
    assert name == "rank 0, env 0"
    assert begins.startswith("begins ")
    assert "in the batch of iteration" in batch


def check_keys_go_from_span_to_span(page: Page) -> None:
    """Arrow keys tell about one span after another, also to a screen reader; plus, minus and 0 zoom."""
    page.locator(f"{FIGURE} canvas").focus()
    whole = seen(page)
    page.keyboard.press("ArrowDown")
    first = part(page, "status").inner_text()
    assert "rank 0, env 0" in first
    page.keyboard.press("ArrowRight")
    assert part(page, "status").inner_text() != first
    assert part(page, "tip").is_visible()
    page.keyboard.press("+")
    assert seen(page) == pytest.approx(whole / 1.5)
    page.keyboard.press("-")
    assert seen(page) == pytest.approx(whole)
    page.keyboard.press("+")
    page.keyboard.press("0")
    assert seen(page) == pytest.approx(whole)
    page.keyboard.press("Escape")
    assert part(page, "tip").is_hidden()


def check_arrows_are_painted_on_request(page: Page) -> None:
    """What waited for what is painted where it is asked for, with a line that says what the arrows are."""
    without = picture(page)
    part(page, "waits").check()
    assert page.evaluate(f"{CHART}.run.waits.length") > 0
    assert page.evaluate(f"{CHART}.run.path.length") > 0
    assert picture(page) != without
    assert part(page, "waits-note").is_visible()
    part(page, "waits").uncheck()
    assert picture(page) == without


def check_another_system_can_be_chosen(page: Page) -> None:
    """Choosing another system paints that system's workers."""
    before = picture(page)
    part(page, "run").select_option(index=1)
    assert picture(page) != before


def check_only_runs_that_filters_let_through_are_offered(page: Page) -> None:
    """By system, GPUs and workload; the one in view is one of them, with its totals; without any the figure goes."""

    def press(facet: str, value: str) -> None:
        page.locator(f'fieldset[data-facet="{facet}"] button[data-value="{value}"]').click()

    options = part(page, "run").locator("option:not([disabled])")
    assert options.count() > 1
    before = picture(page)
    press("system", "ver")
    assert options.all_inner_texts() == ["ver (emulated) x2"]
    assert page.evaluate(f"{CHART}.run.label") == "ver (emulated) x2"
    assert picture(page) != before
    totals = page.locator(f"{FIGURE} .totals:not(.filtered-out)")
    assert totals.count() == 1
    page.locator("#all").click()
    assert options.count() > 1
    press("gpus", "1")
    assert page.locator(FIGURE).is_hidden()
    page.locator("#all").click()
    assert page.locator(FIGURE).is_visible()
    own = page.locator(FIGURE).get_attribute("data-workload")
    press("workload", "heterogeneous" if own == "homogeneous" else "homogeneous")
    assert page.locator(FIGURE).is_hidden()


def check_all_rows_fit_at_once(page: Page) -> None:
    """Rows may be as low as it takes to see all of them, and nothing is left to scroll."""
    part(page, "rows").select_option("all")
    assert page.evaluate(f"{CHART}.box.scrollHeight <= {CHART}.box.clientHeight + 1")


def check_it_is_painted_in_the_colours_of_the_page(page: Page) -> None:
    """The timeline goes dark with the page, and is light on paper at the resolution of paper."""
    corner = (
        "(() => { const context = document.createElement('canvas').getContext('2d');"
        f" context.drawImage({CHART}.canvas, 0, 0);"
        " return [...context.getImageData(3, 3, 1, 1).data].slice(0, 3); })()"
    )
    light = page.evaluate(corner)
    page.click("#theme")
    wait_for(page, f"Math.max(...{corner}) < 90", 30)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(corner) == light
    assert page.evaluate(f"{CHART}.canvas.width") >= 1500
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    wait_for(page, f"Math.max(...{corner}) < 90", 30)
