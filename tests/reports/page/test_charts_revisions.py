"""The chart of a history."""

from __future__ import annotations

from rlbench.reports.page.charts import revisions
from tests.reports.page.pages import full_summary, make_series, named, summary_of, texts


def test_a_change_is_a_line_and_a_ratio() -> None:
    """Eight revisions that lose 10 % at the fifth: a line before it, and the ratio in its row."""
    (chart,) = revisions.charts(full_summary())
    trace = named([chart], "ver x8")
    assert len(trace["x"]) == 8
    assert trace["y"][4] == 630.5
    (shape,) = chart.panels[0].figure["layout"]["shapes"]
    assert (shape["x0"], shape["x1"]) == (3.5, 3.5)
    rows = texts(chart)
    assert [row[5] for row in rows] == ["", "", "", "", "0.900x", "", "", ""]
    assert rows[0][:5] == ["ver", "8", "aaaaaaaaaa", "2026-01-01 00:00", "700"]
    assert chart.notes[0].startswith("EPYC, 16 cores. ")


def test_machine_classes_have_charts_of_their_own() -> None:
    """Two classes are two charts; without a history there is none."""
    one = make_series()
    other = one.model_copy(update={"machine": "another"})
    assert len(revisions.charts(summary_of([], history=[one, other]))) == 2
    assert revisions.charts(summary_of([])) == []
