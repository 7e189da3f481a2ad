"""Waterfalls of what mechanisms give."""

from __future__ import annotations

from rlbench.reports.page.charts import ablation
from tests.reports.page.pages import summary_of, texts, traces
from tests.results.summaries import make_cell, make_comparison


def test_waterfall_hangs_on_what_a_variant_changes() -> None:
    """A variant hangs on the one with the most of its settings: on the system, or on the variant before it."""
    cells = [
        make_cell("ver", 8, 1000.0),
        make_cell("ver:a=1", 8, 900.0),
        make_cell("ver:b=2", 8, 1100.0),
        make_cell("ver:a=1:c=3", 8, 600.0),
        make_cell("appo", 8, 500.0),
    ]
    ratio = make_comparison("ver:a=1", "ver:a=1:c=3", 1.5, (1.25, 1.75))
    (chart,) = ablation.charts(summary_of(cells, comparisons=[ratio]))
    floating = [trace for trace in traces([chart]) if trace.get("line", {}).get("width") == 28]
    assert [(trace["x"][0], *trace["y"]) for trace in floating] == [
        ("ver", 0.0, 1000.0),
        ("ver:a=1", 1000.0, 900.0),
        ("ver:b=2", 1000.0, 1100.0),
        ("ver:a=1:c=3", 900.0, 600.0),
    ]
    told = {trace["name"]: trace["text"] for trace in traces([chart]) if "text" in trace}
    assert (told["ver"], told["ver:a=1"]) == (["\u20031,000"], ["\u2003900<br>\u2003-10 %"])
    assert told["ver:a=1:c=3"] == ["\u2003600<br>\u2003-33 % [-43, -20]"]
    assert texts(chart)[-1] == ["ver:a=1:c=3", "ver:a=1", "900", "600", "1 / 1.50x [1.25x, 1.75x]"]


def test_no_waterfall_of_one_variant() -> None:
    """A system that ran with one set of settings has no waterfall, whatever others ran with."""
    assert ablation.charts(summary_of([make_cell("ver:a=1"), make_cell("appo")])) == []


def test_waterfalls_of_two_sweeps_are_both_shown() -> None:
    """Of each the page shows the one on the most GPUs; their titles tell them apart."""
    cells = [
        make_cell(system, gpus, sweep=sweep, id=f"{sweep}-{system}-{gpus}")
        for sweep in ("sweep-1", "sweep-2")
        for system in ("ver", "ver:a=1")
        for gpus in (1, 8)
    ]
    charts = ablation.charts(summary_of(cells))
    assert [chart.facets["gpus"] for chart in charts] == [8, 1, 8, 1]
    assert len({chart.one_of for chart in charts}) == 2
    assert len({chart.title for chart in charts}) == 4
