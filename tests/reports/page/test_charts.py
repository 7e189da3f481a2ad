from __future__ import annotations

import json
from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest

from rlbench.reports.page.charts import (
    ablation,
    breakdown,
    learning,
    matrix,
    profiles,
    revisions,
    scaling,
    tradeoffs,
    utilisation,
    workloads,
)
from rlbench.reports.page.charts.chart import Chart, datum, estimated
from rlbench.reports.page.charts.style import COLOURS, DASHES, LIBRARIES, OURS, SPANS, label, styles
from rlbench.reports.page.charts.works import works
from rlbench.reports.page.first_screen import first_screens
from rlbench.results.summary.document import Estimate, Reference, Summary
from tests.reports.page.pages import (
    at,
    entries,
    estimate,
    full_cell,
    full_summary,
    make_learning,
    named,
    numbers_of,
    summary_of,
    texts,
    traces,
)
from tests.results.summaries import make_cell, make_comparison

MAKERS: list[Callable[[Summary], list[Chart]]] = [
    scaling.charts,
    scaling.published,
    workloads.charts,
    breakdown.charts,
    utilisation.charts,
    tradeoffs.charts,
    learning.curves,
    learning.results,
    learning.thresholds,
    profiles.charts,
    revisions.charts,
    ablation.charts,
]
LIGHT, DARK = "#ffffff", "#14171c"
"""The page's backgrounds, as its style sheet has them."""


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: f"{make.__module__}.{make.__name__}")
def test_what_is_drawn_stands_in_the_summary(make: Callable[[Summary], list[Chart]]) -> None:
    """Every number on a chart's axes is one of the summary, to the last digit; what is ideal, or a goal, is said."""
    summary = full_summary()
    known = set(numbers_of(json.loads(summary.to_json()))) | {0.0}
    charts = make(summary)
    assert charts
    for trace in traces(charts):
        if not trace.get("name", "").startswith("ideal"):
            drawn = [trace.get(axis) for axis in ("x", "y")]
            assert set(numbers_of(drawn)) <= known, trace


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: f"{make.__module__}.{make.__name__}")
def test_tables_say_where_their_numbers_stand(make: Callable[[Summary], list[Chart]]) -> None:
    """Every number of a chart's table is the summary's at the path that it names."""
    summary = full_summary()
    document = json.loads(summary.to_json())
    found = list(entries(make(summary)))
    assert found
    for path, value, _ in found:
        assert at(document, path) == json.loads(value), path


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: f"{make.__module__}.{make.__name__}")
def test_charts_are_whole(make: Callable[[Summary], list[Chart]]) -> None:
    """A chart has a title that names the work, units on its axes, and as many entries in each row as columns."""
    for chart in make(full_summary()):
        assert "emulated/open-fridge" in chart.title
        assert chart.table.rows
        assert {len(row) for row in chart.table.rows} == {len(chart.table.columns)}
        for panel in chart.panels:
            axes = [panel.figure["layout"][axis] for axis in ("xaxis", "yaxis")]
            assert all(axis.get("type") == "category" or axis["title"]["text"] for axis in axes)


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: f"{make.__module__}.{make.__name__}")
@pytest.mark.parametrize("cells", [[], [make_cell("ver", 8, None)], [make_cell("ver", 8)]])
def test_where_little_is_known_nothing_breaks(make: Callable[[Summary], list[Chart]], cells: list[Any]) -> None:
    """Without runs, with failed ones alone, and with one that has a rate and nothing else, a chart is or is not."""
    for chart in make(summary_of(cells)):
        assert cells[0].steps_per_s is not None
        assert list(traces([chart]))


def test_what_says_nothing_is_not_drawn() -> None:
    """No scaling on one number of GPUs; no utilisation of 0; no lag that all systems share; no curve at 0."""
    alone = full_cell("ver", 8, 612.5, utilisation=0.0, learning=make_learning(0.0))
    summary = summary_of([alone, full_cell("sync", 8, 600.0, utilisation=None)])
    for make in (scaling.charts, utilisation.charts, tradeoffs.charts, learning.curves, learning.results):
        assert make(summary) == [], make


def luminance(colour: str) -> float:
    """Relative luminance, as WCAG 2 has it."""
    channels = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("background", [LIGHT, DARK])
def test_colours_can_be_seen(background: str) -> None:
    """Each system's colour has a contrast of 3 to 1 or more with both backgrounds (WCAG 2.2, 1.4.11)."""
    for colour in (*COLOURS, *(colour for colour, _ in SPANS.values())):
        low, high = sorted([luminance(colour), luminance(background)])
        assert (high + 0.05) / (low + 0.05) >= 3, colour


def test_systems_are_told_apart_without_colours() -> None:
    """Our systems differ in colour and marker; no two of ours and of libraries have colour, marker and dash alike."""
    look = styles(summary_of([make_cell(name) for name in (*OURS, *LIBRARIES)]))
    ours = [look[name] for name in OURS]
    assert all(a.symbol != b.symbol and a.colour != b.colour for a, b in combinations(ours, 2))
    assert len({(style.colour, style.symbol, style.dash) for style in look.values()}) == len(OURS) + len(LIBRARIES)


def test_a_system_has_one_colour() -> None:
    """In all charts the traces of a system have its colour, and in those of other reports too."""
    summary = full_summary()
    look = styles(summary)
    assert look["ver"] == styles(summary_of([make_cell("sync"), make_cell("ver"), make_cell("mine")]))["ver"]
    assert look["ver"].colour != look["ver:preempt=never"].colour
    for make in MAKERS:
        for trace in traces(make(summary)):
            if trace.get("name", "").split(" ")[0] == "ver" and "marker" in trace:
                colours = {trace["marker"]["color"], trace["marker"].get("line", {}).get("color")}
                assert look["ver"].colour in colours, (make, trace)


def test_systems_of_others_get_colours_of_their_own() -> None:
    """What follows from a name is alike in all reports, but where another system of the report has that colour."""
    names = [f"mine-{number}" for number in range(6)]
    alone = {name: styles(summary_of([make_cell(name)]))[name] for name in names}
    assert len({style.colour for style in alone.values()}) > 2
    together = styles(summary_of([make_cell(name) for name in ("ver", *names)]))
    assert len({style.colour for style in together.values()}) == 1 + len(names)
    assert styles(summary_of([make_cell(name) for name in ("ver", *reversed(names))])) == together


def test_spans_have_a_palette_of_their_own() -> None:
    """No kind of span has the colour of a system; each is told from both backgrounds."""
    assert not {colour for colour, _ in SPANS.values()} & set(COLOURS)


def test_predicted_figures_look_and_read_like_nothing_else() -> None:
    """Predicted figures are dotted, open, and named so, in charts and tables; no other line is dotted."""
    first, _ = first_screens(full_summary())
    assert first.beside is not None
    drawn = first.beside[2]["data"]
    (predicted,) = [t for t in drawn if t.get("name") == "ver:preempt=never<br>(predicted)" and "hovertemplate" in t]
    assert predicted["line"]["dash"] == "dot"
    assert predicted["marker"]["symbol"].endswith("-open")
    others = [t for t in drawn if "(predicted)" not in t.get("name", "") and "line" in t]
    assert all(t["line"].get("dash") != "dot" for t in others)
    rows = ["".join(piece.text for piece in row[0]) for row in first.table.rows]
    assert rows.count("ver:preempt=never (predicted)") == 1
    assert rows.count("ver (emulated)") == 2
    assert "dot" not in DASHES


def test_published_figures_are_never_joined() -> None:
    """Published figures are markers of their own, without a line, named so and with their source; and a table."""
    charts = scaling.published(full_summary())
    published = named(charts, "ver (published)")
    assert published["mode"] == "markers"
    assert published["y"] == [2861.0]
    assert published["marker"]["symbol"] == "x-thin"
    assert any("VER, Table 1" in note for note in charts[0].notes)
    assert texts(charts[0]) == [["ver (emulated)", "8", "700 [688, 713]", "2,861", "0.24x"]]


def test_published_figure_beside_a_bar() -> None:
    """With one number of GPUs, a published figure stands in the row of its system, if it is of as many."""
    references = [
        Reference(scenario="s", workload="homogeneous", gpus=gpus, system="ver", steps_per_s=rate, source="a paper")
        for gpus, rate in ((1, 400.0), (8, 2800.0))
    ]
    summary = summary_of([make_cell("ver", 8, scenario="s:time_scale=1.0")], published=references)
    published = named(scaling.published(summary), "ver (published)")
    assert (published["x"], published["y"]) == ([2800.0], ["ver"])


def test_a_published_figure_stands_beside_its_system_alone() -> None:
    """Of two sweeps of one scenario at two time scales, the one without the system has no figure of it."""
    references = [
        Reference(source="s", scenario="s", workload="homogeneous", system=system, gpus=8, steps_per_s=2800.0)
        for system in ("ver", "sync")
    ]
    cells = [make_cell(system, 8, scenario=f"s:time_scale={scale}") for system, scale in (("ver", 1.0), ("sync", 0.5))]
    charts = scaling.published(summary_of(cells, published=references))
    published = [
        [trace["name"] for trace in chart.panels[0].figure["data"] if "published" in trace["name"]] for chart in charts
    ]
    assert published == [["ver (published)"], ["sync (published)"]]


def test_emulated_figures_are_called_so() -> None:
    """Titles say that GPUs are emulated; where measured figures stand beside them, names do too."""
    (chart, _) = breakdown.charts(summary_of([full_cell("ver", 8, 1.0)]))
    assert chart.title.endswith("(emulated)")
    assert [row[:2] for row in texts(chart)] == [["ver", "8"]]
    mixed = summary_of([full_cell("ver", 8, 1.0), full_cell("ver", 8, 1.0, kind="measured", device="cuda")])
    (chart, _) = breakdown.charts(mixed)
    assert [row[:2] for row in texts(chart)] == [["ver (emulated)", "8"], ["ver", "8"]]


def test_series_of_two_sweeps_are_told_apart() -> None:
    """The same system of two sweeps is two series, named after the ends of the sweeps' names; others need none."""
    cells = [make_cell("ver"), make_cell("ver", sweep="sweep-2"), make_cell("appo", sweep="sweep-2")]
    (work,) = works(summary_of(cells))
    assert [series.label for series in work.series] == ["ver, sweep 1", "ver, sweep 2", "appo"]


def test_speed_up_has_an_ideal_and_intervals() -> None:
    """Both axes of speed-up are logarithmic; a line says what would be linear, and others go from low to high."""
    cells = [
        full_cell("ver", 2, 200.0, scaling=Estimate(value=1.0), scaling_base_gpus=2),
        full_cell("ver", 8, 700.0, scaling=estimate(3.5, 0.25), scaling_base_gpus=2),
    ]
    (chart,) = scaling.charts(summary_of(cells))
    layout = chart.panels[0].figure["layout"]
    assert (layout["xaxis"]["type"], layout["yaxis"]["type"]) == ("log", "log")
    ideal = [trace["y"] for trace in traces([chart]) if trace.get("name") == "ideal from 2 GPUs"]
    assert ideal == [[1, 4], [1, 1]]
    assert [3.25, 3.75, None] in [trace["y"] for trace in traces([chart])]


@pytest.mark.parametrize(
    ("half", "remark"), [(0.3, " (not significantly above 100%)"), (0.05, ""), (None, " (no interval)")]
)
def test_how_far_a_system_scales_in_words(half: float | None, remark: str) -> None:
    """From where its efficiency is low for good, what it is on the most GPUs, and whether it is above 100 %."""
    high = Estimate(value=1.1) if half is None else estimate(1.1, half)
    efficiencies = {1: Estimate(value=1.0), 2: high, 4: estimate(0.9, 0.05), 8: estimate(0.7, 0.05)}
    cells = [full_cell("ver", gpus, 99.0, efficiency=each, scaling_base_gpus=1) for gpus, each in efficiencies.items()]
    ((name, said, _),) = scaling.charts(summary_of(cells))[0].told
    assert (name, said) == ("ver", f"below 80% from 8 GPUs; 70% on 8 GPUs; up to 110% on 2 GPUs{remark}")


def test_intervals_are_labelled_by_what_they_speak_of() -> None:
    """A chart with intervals says what they come from; one without does not."""
    both = [full_cell("ver", gpus, 600.0, workload=work) for gpus in (8,) for work in workloads.WORKLOADS]
    (chart,) = workloads.charts(summary_of(both))
    assert any(note.startswith("95 % interval from the spread of the iterations") for note in chart.notes)
    bare = [make_cell("ver", 8, workload=work) for work in workloads.WORKLOADS]
    (chart,) = workloads.charts(summary_of(bare))
    assert not any("95 %" in note for note in chart.notes)


def test_cells_without_a_rate_are_named() -> None:
    """A chart that cannot draw a cell says which, and how its runs ended."""
    first, _ = first_screens(full_summary())
    assert any("appo on 8 GPUs (emulated) (invalid, timed-out)" in note for note in first.notes)


def test_homogeneous_beside_heterogeneous() -> None:
    """A system is drawn on the most GPUs that have both workloads, and one that has not both is left out."""
    (chart,) = workloads.charts(full_summary())
    assert named([chart], "ver (emulated) x8")["y"] == [700.25, 500.75]
    assert {row[0] for row in texts(chart)} == {"ver (emulated)"}
    assert chart.title.endswith("emulated/open-fridge (emulated)")


def test_shares_are_stacked_in_one_order() -> None:
    """A bar of each cell, pieces in the order of the legend, a span of somebody else's system last."""
    chart = breakdown.charts(summary_of([full_cell("ver", 8, 700.0)]))[0]
    assert [trace["name"] for trace in traces([chart])] == ["simulate", "learn", "wait:straggler", "their own"]
    assert [trace["x"] for trace in traces([chart])] == [[0.5], [0.25], [0.125], [0.0625]]
    waiting = [kind for kind in SPANS if kind.startswith("wait:")]
    assert all(SPANS[kind][1] for kind in waiting), "waiting is hatched"


def test_a_share_that_is_missing_is_not_zero() -> None:
    """A system that has no such span has nothing there, in the chart and in its table."""
    cells = [
        full_cell("ver", 8, 1.0, time_shares={"learn": 1.0}),
        full_cell("appo", 8, 1.0, time_shares={"infer": 1.0}),
    ]
    (chart, _) = breakdown.charts(summary_of(cells))
    assert named([chart], "learn")["x"] == [1.0, None]
    assert [row[2:4] for row in texts(chart)] == [["-", "100%"], ["100%", "-"]]


def test_many_bars_are_charts_of_each_number_of_gpus() -> None:
    """Beyond 40 rows there is a stacked chart for each number of GPUs, the most first; the page shows one of them."""
    cells = [full_cell(f"s{k}", gpus, 1.0, id=f"{k}-{gpus}") for k in range(11) for gpus in (1, 2, 4, 8)]
    charts = [chart for chart in breakdown.charts(summary_of(cells)) if chart.panels[0].id.startswith("time-")]
    assert [chart.facets["gpus"] for chart in charts] == [8, 4, 2, 1]
    assert len({chart.one_of for chart in charts}) == 1
    assert set(named(charts[:1], "learn")["y"]) == {f"s{k} x8" for k in range(11)}
    assert [len(chart.table.rows) for chart in charts] == [11] * 4


def test_utilisation_names_its_source() -> None:
    """The source stands under the title and in the table; what could not be read is n/a, and drawn nowhere."""
    unread = full_cell("appo", 8, 1.0, utilisation=None, utilisation_source="no NVML")
    (chart,) = utilisation.charts(summary_of([full_cell("ver", 8, 1.0), unread]))
    assert "Read from: emulated busy time." in chart.notes
    assert texts(chart)[1][2:4] == ["n/a", "no NVML"]
    assert [trace["name"] for trace in traces([chart])] == ["ver"]


def test_throughput_beside_lag() -> None:
    """Each of lag and reuse has a panel, with the cells on the GPUs that most ran on; what is alike in all has none."""
    cells = [
        full_cell("ver", 1, 100.0),
        full_cell("ver", 8, 700.0),
        full_cell("appo", 8, 90.0, lag_mean=3.0, uses_per_sample=1.0),
        full_cell("sync", 1, 80.0),
        full_cell("ver:preempt=never", 64, 4000.0),
    ]
    (chart,) = tradeoffs.charts(summary_of(cells))
    assert [panel.figure["data"][0]["x"] for panel in chart.panels] == [[1.75], [2.5]]
    assert [panel.figure["data"][0]["y"] for panel in chart.panels] == [[700.0]] * 2
    assert "on 8 GPUs" in chart.title
    assert chart.notes == ["Not drawn, for it was not run on 8 GPUs: sync, ver:preempt=never."]


def test_table_of_systems_and_gpus() -> None:
    """A row has the steps/s with interval, the speed-up and the efficiency, or how the runs ended."""
    table = matrix.tables(full_summary())[0]
    assert table.columns == ["system", "1 GPU", "8 GPUs", "64 GPUs"]
    rows = {row[0][0].text: ["".join(piece.text for piece in entry) for entry in row[1:]] for row in table.rows}
    assert rows["ver (emulated)"] == ["100\n [88.0, 113]", "700\n [688, 713]\n6.97x, 87%", ""]
    assert rows["appo (emulated)"] == ["", "1 timed-out, 1 invalid", ""]


def test_comparisons_say_whether_they_are_fair() -> None:
    """A ratio whose interval holds 1 is no significant difference; one that is not comparable says so."""
    summary = summary_of(
        [make_cell("ver"), make_cell("appo")],
        comparisons=[
            make_comparison("ver", "appo", 1.05, (0.95, 1.15)),
            make_comparison("appo", "sync", 1.5, comparable=False),
        ],
    )
    (table,) = matrix.comparisons(summary)
    assert ["".join(piece.text for piece in entry) for entry in table.rows[0]] == [
        "ver",
        "appo",
        "8",
        "1.05x [0.95x, 1.15x]: no significant difference",
        "yes",
    ]
    assert table.rows[1][-1][0].text == "no"


def test_names_are_shown_as_they_are() -> None:
    """What plotly would take for markup is escaped, and long names are broken between settings."""
    assert label("<b>ver</b>") == "&lt;b&gt;ver&lt;/b&gt;"
    assert label("x" * 100).split("<br>") == ["x" * 44, "x" * 44, "x" * 12]
    assert label("impala:rollout.batch=512:learn.learning_rate=1e-3").split("<br>") == [
        "impala:",
        "rollout.batch=512:",
        "learn.learning_rate=1e-3",
    ]


def test_numbers_of_a_table() -> None:
    """A number is written short and kept whole; without a value it is n/a and null."""
    (piece,) = datum("a.b", 1234.5678)
    assert (piece.text, piece.path, piece.value) == ("1,235", "a.b", "1234.5678")
    (piece,) = datum("a.b", None)
    assert (piece.text, piece.value) == ("n/a", "null")
    assert "".join(piece.text for piece in estimated("a", estimate(10.0, 2.5))) == "10.0 [7.50, 12.5]"
