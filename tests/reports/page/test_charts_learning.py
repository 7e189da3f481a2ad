"""Charts of what was learned."""

from __future__ import annotations

import pytest

from rlbench.reports.page.charts import learning, profiles
from rlbench.reports.page.charts.chart import Chart
from tests.reports.page.pages import full_cell, full_summary, make_learning, named, summary_of, texts


def test_learning_against_samples_and_time() -> None:
    """A curve is drawn against env steps and seconds; GPU-seconds, which are those of each GPU, are in the table."""
    (chart,) = learning.curves(summary_of([full_cell("ver", 8, 1.0, learning=make_learning())]))
    ends = [next(t for t in p.figure["data"] if t.get("showlegend", True))["x"][-1] for p in chart.panels]
    assert ends == [14000.0, 105.0]
    assert [row[3] for row in texts(chart)] == ["60.0", "420", "780", "840"]
    assert named([Chart(title="", panels=chart.panels[:1], table=chart.table)], "threshold")["y"] == [0.5, 0.5]
    assert [row[1] for row in texts(chart)] == ["1,000", "7,000", "13,000", "14,000"]


def test_censored_runs_are_shown() -> None:
    """A cost that is not known is an open triangle where the runs had got, and reads as more than that."""
    made = make_learning()
    (chart,) = learning.thresholds(summary_of([full_cell("ver", 8, 1.0, learning=made)]))
    late = [*made.to_threshold[:1], made.to_threshold[2].model_copy(update={"cost": "seconds"})]
    cell = full_cell("ver", 8, 1.0, learning=made.model_copy(update={"to_threshold": late}))
    reached, never = (each.panels[1].figure["data"][0] for each in (chart, *learning.thresholds(summary_of([cell]))))
    assert (reached["x"], reached["marker"]["symbol"]) == ([37.5], "diamond")
    assert (never["x"], never["marker"]["symbol"]) == ([321.0], "triangle-right-open")
    assert texts(chart) == [["ver", "8", "5,000 [4,000, n/a]", "37.5 [30.0, 45.0]", "more than 321", "1", "3"]]


def test_learning_worse_is_said() -> None:
    """The table of results says whether a system learns worse than the reference."""
    charts = learning.results(full_summary())
    assert [row[-1] for row in texts(charts[0])] == ["-", "learns worse"]


def test_seeds_without_env_steps_in_common_have_no_curve() -> None:
    """A cell whose runs never learned at the same env steps is named and not drawn; its results stand all the same."""
    summary = full_summary()
    cells = [
        cell.model_copy(update={"learning": cell.learning.model_copy(update={"curve": []})})
        if cell.learning and cell.system == "ver"
        else cell
        for cell in summary.cells
    ]
    (chart,) = learning.curves(summary.model_copy(update={"cells": cells}))
    assert [row[0] for row in texts(chart)] == ["ver:preempt=never (emulated)"] * len(chart.table.rows)
    assert any(
        note.endswith("are covered by the curves of all runs: ver (emulated) on 8 GPUs.") for note in chart.notes
    )
    none = [cell.model_copy(update={"learning": None}) if cell.system != "ver" else cell for cell in cells]
    bare = summary.model_copy(update={"cells": none})
    assert learning.curves(bare) == []
    assert learning.results(bare)
    assert learning.thresholds(bare)


def test_profiles_by_hand() -> None:
    """Of the final values 0.5, 0.6 and 0.7 all are above 0.4, two above 0.5, none above 0.7; `ver` is the reference."""
    (chart,) = profiles.charts(full_summary())
    trace = named([chart], "ver")
    shares = dict(zip(trace["x"], trace["y"], strict=True))
    assert list(shares) == pytest.approx([0, 0.3, 0.4, 0.5, 0.6, 0.7, 1])
    assert list(shares.values()) == pytest.approx([1, 1, 1, 2 / 3, 1 / 3, 0, 0])
    assert chart.panels[0].figure["layout"]["xaxis"]["range"] == pytest.approx([-0.035, 0.735])
    row = {entry[0]: entry for entry in texts(chart)}
    assert row["ver"][:4] == ["ver", "3", row["ver"][2], "-"]
    assert row["ver:preempt=never"][3] == "6%"  # of 9 pairs one is tied: 0.5 and 0.5
    assert any(note.startswith("Better than ver: ") for note in chart.notes)
