"""How many timelines a page has room for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rlbench.reports.page import html
from rlbench.reports.page.timeline import ReadWork, read_iterations, with_iterations
from rlbench.reports.page.timeline_budget import Fitted, fitting
from rlbench.results.summary.document import Summary
from tests.reports.page.pages import Page, summary_of
from tests.reports.page.test_timeline import WINDOW, Span, write_folder
from tests.results.made_records import make_record
from tests.results.summaries import make_cell

NUM_WORKS = 6
Made = tuple[Summary, dict[str, Path], list[ReadWork]]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """A summary of several works with a run each, which has 20 environments and 800 spans in each iteration."""
    spans: list[Span] = [(rank, -1, 1.0, 3.0, "learn") for rank in range(3)]
    spans += [
        (0, environment, 1 + 0.025 * k, 1.02 + 0.025 * k + 0.0001 * ((37 * k + environment) % 40), "simulate")
        for environment in range(20)
        for k in range(80)
    ]
    names = [f"emulated/work-{k}" for k in range(NUM_WORKS)]
    summary = summary_of(
        [make_cell("ver", 8, scenario=name, runs=[f"run-{k}"]) for k, name in enumerate(names)],
        [
            make_record("ver", 8, id=f"run-{k}", figures={"window": WINDOW}, cell={"scenario": name})
            for k, name in enumerate(names)
        ],
    )
    folders = {f"run-{k}": write_folder(tmp_path, f"run-{k}", spans) for k in range(NUM_WORKS)}
    read = read_iterations(summary, folders)
    return with_iterations(summary, read), folders, read


@pytest.fixture
def fit(made: Made) -> Callable[[int], Fitted]:
    """What fits into so many bytes."""
    summary, _, read = made
    return lambda room_bytes: fitting(read, summary, room_bytes)


def num_lanes(fitted: Fitted) -> int:
    """Lines in all timelines."""
    return sum(len(timeline.lanes) for choice in fitted.choices for timeline in choice.timelines)


def test_everything_where_there_is_room(fit: Callable[[int], Fitted]) -> None:
    """All works, iterations and environments."""
    fitted = fit(1_000_000)
    assert (len(fitted.choices), list(fitted.left_out)) == (NUM_WORKS, [])
    assert num_lanes(fitted) == NUM_WORKS * 23


def test_environments_go_before_works_do(fit: Callable[[int], Fitted]) -> None:
    """With less room there are fewer lines, then fewer works, which are named; the room holds, down to nothing."""
    lanes, works = [], []
    for room in range(70_000, 0, -5_000):
        fitted = fit(room)
        assert len(fitted.data) <= room or not fitted.choices
        assert len(fitted.choices) + len(fitted.left_out) == NUM_WORKS
        lanes.append(num_lanes(fitted))
        works.append(len(fitted.choices))
    assert works == sorted(works, reverse=True)
    assert set(works) >= {NUM_WORKS, 0}
    assert min(count for count, kept in zip(lanes, works, strict=True) if kept == NUM_WORKS) < NUM_WORKS * 23
    assert fit(0).left_out[-1] == f"emulated/work-{NUM_WORKS - 1}, homogeneous"


def test_a_page_is_as_large_as_it_may_be_and_says_what_it_leaves_out(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that had been larger has only the timelines that fit, and names the works of the others."""
    summary, folders, _ = made
    whole = html.render(summary, folders, command=[])
    assert "Left out" not in whole
    for less in (5_000, 30_000, 200_000):
        most = len(whole) - less
        monkeypatch.setattr(html, "PAGE_BYTES", most)
        text = html.render(summary, folders, command=[])
        page = Page(text)
        shown = page.data["timelines-data"]
        assert len(text) <= most or not shown
        if len(shown) < NUM_WORKS:
            assert f"not too large: {NUM_WORKS - len(shown)} of {NUM_WORKS}" in page.text
    assert shown == {}
