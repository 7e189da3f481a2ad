"""What charts say where the pointer is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlbench.reports.page import sections
from rlbench.reports.page.first_screen import first_screens
from rlbench.results.summary.document import Summary
from tests.reports.page.pages import full_summary

NAMES = ("%{fullData.name}", "%{x}", "%{y}")
UNITS = (
    *("steps/s", "%}", "% of runs", " x<", " s<", " env steps", "success ", "optimiser steps"),
    *("of the time", "uses"),
)


def _figures(summary: Summary) -> Iterator[dict[str, Any]]:
    """All figures of a page but those of telemetry."""
    for kinds in (sections.BEFORE_TIMELINE, sections.AFTER_TIMELINE):
        for section in sections.filled(kinds, summary):
            yield from (panel.figure for chart in section.charts for panel in chart.panels)
    for first in first_screens(summary):
        yield from first.bars.values()
        if first.beside is not None:
            yield first.beside[2]


def _hovers(figure: dict[str, Any]) -> Iterator[str]:
    """The hover texts of all points of a figure."""
    for trace in figure["data"]:
        if trace.get("hoverinfo") != "skip":
            said = trace["hovertemplate"]
            yield from said if isinstance(said, list) else [said] * len(trace["x"])


def _num_intervals(figure: dict[str, Any]) -> int:
    """How many intervals a figure draws: two ends and a gap each."""
    drawn = (each for each in figure["data"] if each.get("marker", {}).get("symbol") in {"line-ns", "line-ew"})
    return sum(len(trace["x"]) // 3 for trace in drawn)


def test_hover_texts_say_name_value_unit_and_interval() -> None:
    """Those of all traces of a page that has a chart of each kind; an interval that is drawn is also said."""
    num_figures = num_intervals = 0
    for figure in _figures(full_summary()):
        texts = list(_hovers(figure))
        assert texts
        for text in texts:
            assert any(name in text for name in NAMES), text
            assert "%{x:" in text or "%{y:" in text, text
            assert any(unit in text for unit in UNITS), text
        assert sum(" [" in text for text in texts) >= _num_intervals(figure), texts
        num_figures += 1
        num_intervals += _num_intervals(figure)
    assert num_figures > 20
    assert num_intervals > 20
