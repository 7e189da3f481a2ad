"""Summaries for the tests of charts and pages, and what a page says to a program that parses it."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from html.parser import HTMLParser
from typing import Any

from rlbench.reports.page.charts.chart import Chart
from rlbench.results.fairness.differences import Difference
from rlbench.results.records.schema import RunRecord
from rlbench.results.summary.across_tasks import across_tasks
from rlbench.results.summary.bottleneck import Bottleneck
from rlbench.results.summary.document import (
    CellSummary,
    CurvePoint,
    Estimate,
    Fairness,
    Finding,
    HistoryRow,
    HistorySeries,
    Learning,
    Reference,
    Summary,
    ToThreshold,
)
from rlbench.results.verdicts.history import series_of
from tests.reports.summaries import NOTHING
from tests.results.made_records import make_learned_from, make_record
from tests.results.summaries import make_cell, make_comparison

VOID = {"meta", "link", "br", "img", "input", "hr"}


def summary_of(cells: Sequence[CellSummary], runs: Sequence[RunRecord] = (), **fields: Any) -> Summary:
    """A summary of these cells; `fields` override."""
    return Summary(
        cells=list(cells), runs=list(runs), **NOTHING | {"reference": cells[0].system if cells else None} | fields
    )


def estimate(value: float, half: float) -> Estimate:
    """A figure with an interval of so much to both sides."""
    return Estimate(value=value, low=value - half, high=value + half, units="iterations", num_units=5)


def make_learning(value: float = 0.6, num_points: int = 14, **fields: Any) -> Learning:
    """What a cell of three runs has learned: a curve that rises to `value`; `fields` override."""
    points = [
        CurvePoint(
            env_steps=1000.0 * k, seconds=7.5 * k, gpu_seconds=60.0 * k, value=value * k / num_points, low=0.1, high=0.9
        )
        for k in range(1, num_points + 1)
    ]
    all_fields: dict[str, Any] = {
        "metric": "success",
        "final": estimate(value, 0.125),
        "finals": [value - 0.1, value, value + 0.1],
        "area": estimate(value / 2, 0.0625),
        "area_env_steps": 12345.0,
        "threshold": 0.5,
        "to_threshold": [
            ToThreshold(cost="env_steps", value=5000, low=4000, high=None, at_least=None, num_runs=3, num_censored=1),
            ToThreshold(cost="seconds", value=37.5, low=30, high=45, at_least=None, num_runs=3, num_censored=1),
            ToThreshold(cost="gpu_seconds", value=None, low=None, high=None, at_least=321, num_runs=3, num_censored=1),
        ],
        "curve": points,
        "against_reference": None,
    }
    return Learning(**all_fields | fields)


def make_series() -> HistorySeries:
    """Eight revisions, of which the last four are slower."""
    rows = [
        HistoryRow(
            commit="abcdefgh"[number] * 40,
            measured_at=f"2026-01-{1 + number:02d}T00:00:00+00:00",
            machine="EPYC, 16 cores",
            system="ver",
            scenario="emulated/open-fridge",
            workload="homogeneous",
            gpus=8,
            device="emulated",
            length="steady seconds=30",
            kind="emulated",
            steps_per_s=rate,
            low=rate - 1.5,
            high=rate + 1.75,
            num_runs=3,
        )
        for number, rate in enumerate((700.5, 702.5, 698.25, 701.0, 630.5, 632.0, 628.0, 631.25))
    ]
    (series,) = series_of(rows)
    return series


def full_cell(system: str, gpus: int, steps_per_s: float, **fields: Any) -> CellSummary:
    """A cell that has every figure; `fields` override."""
    all_fields: dict[str, Any] = {
        "scaling": estimate(steps_per_s / 100.5, 0.25),
        "scaling_base_gpus": 1,
        "efficiency": estimate(steps_per_s / 100.5 / gpus, 0.0625),
        "utilisation": 0.4375,
        "utilisation_source": "emulated busy time",
        "time_shares": {"learn": 0.25, "simulate": 0.5, "wait:straggler": 0.125, "their own": 0.0625},
        "env_time_shares": {"simulate": 0.75, "wait:inference": 0.25},
        "lag_mean": 1.75,
        "lag_max": 4.0,
        "uses_per_sample": 2.5,
        "useful_fraction": 0.96875,
        "cpu_percent": 118.25,
        "memory_bytes": 2.5 * 2**30,
        "gpu_power_w": 251.5,
        "bottleneck": Bottleneck(stage="simulator", share=0.5, sentence="bound by the simulator"),
        "steady": True,
    }
    cell = make_cell(system, gpus, steps_per_s, **all_fields | fields)
    return cell.model_copy(update={"steps_per_s": estimate(steps_per_s, 12.5)})


def full_summary(name: str = "ver:preempt=never") -> Summary:
    """A summary that has something for every part of a page; one of its systems has this name."""
    cells = [
        full_cell("ver", 1, 100.5, scaling=Estimate(value=1.0), efficiency=Estimate(value=1.0)),
        full_cell("ver", 8, 700.25, learning=make_learning(), id="cell-1"),
        full_cell("ver", 8, 500.75, workload="heterogeneous"),
        full_cell(name, 8, 600.125, learning=make_learning(0.4, against_reference="worse"), lag_mean=2.25),
        full_cell(name, 64, 4000.5, kind="predicted", device="predicted", time_shares={}),
        make_cell("appo", 8, None, statuses={"timed-out": 1, "invalid": 1}),
    ]
    runs = [
        make_record("ver", 1),
        make_record("ver", 8, steps_per_s=700.25, learned_from=make_learned_from()),
        make_record(name, 8, steps_per_s=600.125),
    ]
    bad = make_record("appo", 8, steps_per_s=777.0, status="invalid", reason="10 env steps <b>unaccounted</b> for")
    return summary_of(
        cells,
        [*runs, bad],
        answers=["emulated/open-fridge, homogeneous: `ver` makes 700 steps/s."],
        findings=[
            Finding(severity="unreadable", text="run.json: is damaged", runs=["/somewhere"]),
            Finding(severity="failed", text="invalid: appo: 10 env steps <b>unaccounted</b> for", runs=["appo-8"]),
            Finding(severity="warning", text="load 3.1", runs=["ver-1", "ver-8"]),
        ],
        fairness=[
            Fairness(
                sweep="sweep-1",
                scenario="emulated/open-fridge",
                workload="homogeneous",
                gpus=8,
                differences=[Difference(aspect="epochs", values={"2": ["ver"], "1": [name]})],
            )
        ],
        across_tasks=across_tasks(cells, "ver"),
        history=[make_series()],
        comparisons=[make_comparison("ver", name, 1.1668, (1.125, 1.25))],
        published=[
            Reference(
                scenario="emulated/open-fridge",
                workload="homogeneous",
                gpus=8,
                system="ver",
                steps_per_s=2861.0,
                source="VER, Table 1",
            )
        ],
    )


def numbers_of(value: Any) -> Iterator[float]:
    """All numbers of a document, or of the data of a trace."""
    if isinstance(value, bool):
        return
    if isinstance(value, (int, float)):
        yield float(value)
    elif isinstance(value, dict):
        for each in value.values():
            yield from numbers_of(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from numbers_of(each)


def at(document: Any, path: str) -> Any:
    """What stands at a path such as `cells.3.time_shares.wait:straggler`."""
    for key in path.split("."):
        document = document[int(key) if isinstance(document, list) else key]
    return document


def entries(charts: Iterable[Chart]) -> Iterator[tuple[str, str, str]]:
    """Path, value and text of all numbers in the tables of some charts."""
    for chart in charts:
        for row in chart.table.rows:
            for entry in row:
                yield from ((piece.path, piece.value, piece.text) for piece in entry if piece.path)


class Page(HTMLParser):
    """A page, read as a browser would."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        """All elements, with their attributes."""
        self.figures: list[tuple[str, str]] = []
        """Path and text of what is a number of the summary."""
        self.data: dict[str, Any] = {}
        """What `script` elements that no browser runs hold, unpacked, by id; what ends with `-data` is JSON."""
        self.scripts: list[str] = []
        """What browsers run."""
        self.text = ""
        """What people can read, titles included."""
        self.headings: list[str] = []
        self._open: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append((tag, dict(attrs)))
        if tag == "h2":
            self.headings.append("")
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        opened, attributes = self._open.pop()
        assert opened == tag, f"</{tag}> closes <{opened}>"
        if tag == "script" and "id" in attributes:
            name, text = str(attributes["id"]), zlib.decompress(base64.b64decode(self.scripts.pop())).decode()
            self.data[name] = json.loads(text) if name.endswith("-data") else text

    def handle_data(self, data: str) -> None:
        tag, attributes = self._open[-1] if self._open else ("", {})
        if tag == "script":
            self.scripts[-1] += data
        elif tag != "style":
            self.text += data
        if tag == "h2":
            self.headings[-1] += data
        if "data-path" in attributes:
            self.figures.append((str(attributes["data-path"]), data))

    def ids(self) -> list[str]:
        """Of all elements that have one."""
        return [str(attributes["id"]) for _, attributes in self.tags if "id" in attributes]


def traces(charts: list[Chart]) -> Iterator[dict[str, Any]]:
    """All traces of some charts."""
    for chart in charts:
        for panel in chart.panels:
            yield from panel.figure["data"]


def named(charts: list[Chart], name: str) -> dict[str, Any]:
    """The only trace of this name that stands in a legend."""
    (trace,) = [t for t in traces(charts) if t.get("name") == name and t.get("showlegend", True)]
    return trace


def texts(chart: Chart) -> list[list[str]]:
    """The table of a chart as people read it."""
    return [["".join(piece.text for piece in entry) for entry in row] for row in chart.table.rows]
