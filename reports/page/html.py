"""The HTML report: one file that needs no network, for screens, phones, paper and screen readers.

It holds plotly.js once, the figures, the summary as JSON, and cells and runs as CSV. Everything that comes from a run
(names, paths, reasons, configurations) is text: the template escapes it, JSON is in elements that no browser runs, and
the content security policy of the page allows only the scripts whose hashes it names, and no loading.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup
from pydantic_core import to_json as any_to_json

from rlbench.reports.exports import cells_csv, export
from rlbench.reports.figures import format as fmt
from rlbench.reports.figures.columns import kind_notes
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
from rlbench.reports.page.charts.chart import Chart, Entry, PageTable, datum, words
from rlbench.reports.page.charts.style import in_order
from rlbench.reports.page.learned_from import tables as learned_from_tables
from rlbench.reports.page.provenance import as_typed, provenance
from rlbench.reports.page.timeline import MOST_GPUS, MOST_SPANS, read_iterations, with_iterations
from rlbench.reports.page.timeline_data import SPAN_BYTES, RunTimeline, TimelineChoice, page_data, timelines
from rlbench.results.reading.outputs import write_output
from rlbench.results.records import units
from rlbench.results.records.schema import RunRecord
from rlbench.results.summary.document import Finding, Iteration, Summary

TEMPLATES = Path(__file__).parent / "templates"
PLOTLY = Path("package_data", "plotly.min.js")


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """A part of the page that consists of charts."""

    id: str
    title: str
    make: Callable[[Summary], list[Chart]]
    nothing: str
    """Text that the page shows if there is nothing to draw."""


BEFORE_TIMELINE = (
    Section(
        id="speed-up",
        title="Speed-up",
        make=scaling.speed_up,
        nothing="No system has finished runs on two numbers of GPUs of the same sweep.",
    ),
    Section(
        id="efficiency",
        title="Efficiency",
        make=scaling.efficiency,
        nothing="No system has finished runs on two numbers of GPUs of the same sweep.",
    ),
    Section(
        id="throughput",
        title="Throughput",
        make=scaling.throughput,
        nothing="No run finished, so there is no rate.",
    ),
    Section(
        id="workloads",
        title="Homogeneous beside heterogeneous",
        make=workloads.charts,
        nothing="No scenario has finished runs of one system on both workloads.",
    ),
    Section(
        id="time",
        title="Where the time went",
        make=breakdown.charts,
        nothing="No finished run has spans of time.",
    ),
)
AFTER_TIMELINE = (
    Section(
        id="utilisation",
        title="Utilisation",
        make=utilisation.charts,
        nothing="No run could read how busy its GPUs were.",
    ),
    Section(
        id="samples",
        title="Throughput beside lag, reuse and useful samples",
        make=tradeoffs.charts,
        nothing="No finished run says how old, how often used and how useful its samples were.",
    ),
    Section(
        id="learning",
        title="Learning",
        make=lambda summary: [
            *learning.curves(summary),
            *learning.results(summary),
            *learning.thresholds(summary),
            *profiles.charts(summary),
        ],
        nothing="No finished run has a learning curve: it takes 100 episodes.",
    ),
    Section(
        id="ablation",
        title="Ablation",
        make=ablation.charts,
        nothing="No system was run with several settings on the same work: `--systems ver,ver:preempt=never` does.",
    ),
    Section(
        id="history",
        title="History",
        make=revisions.charts,
        nothing="No history was given: `rlbench report --history` draws what `rlbench history` keeps.",
    ),
)
TIMELINE_SCRIPTS = ("timeline_run.js", "timeline_paint.js", "timeline.js")
"""In this order: each uses what the ones before it define."""
TOTALS_ROWS = 24
"""Maximum number of rows in the table of an iteration's totals."""
PAGE_BYTES = 7_600_000
"""Size of a page; worker timelines take what the other parts leave of it."""
HTML_BYTES = 9_000
"""Approximate size of the table entries about one cell."""
SEVERITIES = {"unreadable": "Cannot be read", "failed": "Did not finish, or is invalid", "warning": "Warning"}


def write_report(
    summary: Summary, folders: Mapping[str, Path], out: Path, *, title: str, command: Sequence[str]
) -> None:
    """Writes the page; the file appears complete or not at all.

    Args:
        summary: the content of the page.
        folders: run folders by `sweep/id` or by run id, for the worker timelines; some may be missing.
        out: the file.
        title: title of the page.
        command: the command that made the page, shown at its end.

    Raises ValueError if the file cannot be written.
    """
    page = render(summary, folders, title=title, command=command)
    try:
        write_output(out, [page])
    except BrokenPipeError:  # the reader of `--out /dev/stdout` has closed it
        raise
    except OSError as problem:
        raise ValueError(f"{out}: cannot be written ({problem.strerror or problem}); choose another --out") from None


def render(summary: Summary, folders: Mapping[str, Path], *, title: str, command: Sequence[str]) -> str:
    """The page as text; arguments as for `write_report`."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    read = read_iterations(summary, folders)
    summary = with_iterations(summary, read)
    before = [_filled(section, summary) for section in BEFORE_TIMELINE]
    after = [_filled(section, summary) for section in AFTER_TIMELINE]
    charts = [chart for section in (*before, *after) for chart in section["charts"]]
    scripts = [_plotly(), *(_template(name) for name in ("report.js", *TIMELINE_SCRIPTS))]
    embedded = {
        "figures-data": _embedded({panel.id: panel.figure for chart in charts for panel in chart.panels}),
        "summary-data": _inert(summary.model_dump_json()),
        "csv-data": _embedded({"cells": cells_csv.to_csv(summary.cells), "runs": export.to_csv(summary.runs)}),
    }
    taken = len(scripts[0]) + sum(map(len, embedded.values())) + HTML_BYTES * len(summary.cells)
    choices = timelines(read, _num_spans(PAGE_BYTES - taken))
    embedded["timelines-data"] = _embedded(
        {f"timeline-{number}": page_data(choice) for number, choice in enumerate(choices)}
    )
    return environment.get_template(
        "report.html.j2"
    ).render(
        title=title,
        command=as_typed(command),
        policy=_policy(scripts),
        css=Markup(_template("report.css") + _template("timeline.css")),  # noqa: S704  ours
        plotly=Markup(scripts[0]),  # noqa: S704  plotly's
        script=Markup(scripts[1]),  # noqa: S704  ours
        timeline_scripts=[Markup(each) for each in scripts[2:]],  # noqa: S704  ours
        overview=_overview(summary),
        answers=[_with_code(answer) for answer in summary.answers],
        kinds=list(_kinds(summary)),
        findings=[(SEVERITIES[kind], list(_findings(summary, kind))) for kind in SEVERITIES],
        fairness=list(_fairness(summary)),
        tables=matrix.tables(summary),
        comparisons=matrix.comparisons(summary),
        before=before,
        after=after,
        timelines=[_timeline(number, choice, summary) for number, choice in enumerate(choices)],
        most_gpus=MOST_GPUS,
        learned_from=learned_from_tables(summary),
        runs=summary.runs,
        run_table=_runs(summary),
        provenance=provenance(summary.runs),
        embedded=embedded,
    )


def _num_spans(room_bytes: int) -> int:
    """Number of spans that fit into the rest of a page: at least a tenth of `MOST_SPANS`, however large the page is."""
    return min(max(room_bytes // SPAN_BYTES, MOST_SPANS // 10), MOST_SPANS)


def _template(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _plotly() -> str:
    """plotly.js from its Python package, found without importing the package, which would take a second."""
    found = importlib.util.find_spec("plotly")
    assert found is not None
    assert found.submodule_search_locations is not None
    text = Path(found.submodule_search_locations[0], PLOTLY).read_text(encoding="utf-8")
    assert "</script" not in text.lower()
    return text


def _policy(scripts: Sequence[str]) -> str:
    """A content security policy: only our scripts run, by their hashes, and nothing is loaded from anywhere."""
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{each}'" for each in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _embedded(value: object) -> Markup:
    """Data for the page's script."""
    return _inert(any_to_json(value, inf_nan_mode="null").decode())


def _inert(json_text: str) -> Markup:
    """Escapes JSON for a `script` element: nothing in it looks like markup, and its values stay the same."""
    for letter in "<>&\u2028\u2029":
        json_text = json_text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(json_text)  # noqa: S704  no HTML is left in it


def _with_code(text: str) -> list[tuple[str, bool]]:
    """The parts of a sentence, and whether each stood between backticks."""
    return [(part, bool(at % 2)) for at, part in enumerate(text.split("`")) if part]


def _filled(section: Section, summary: Summary) -> dict[str, Any]:
    return {
        "id": section.id,
        "title": section.title,
        "charts": section.make(summary),
        "nothing": _with_code(section.nothing),
    }


def _overview(summary: Summary) -> str:
    """The content of the page in one line."""
    statuses = Counter(run.status for run in summary.runs)
    sweeps = len({run.sweep for run in summary.runs})
    said = [
        f"{len(summary.runs)} {'run' if len(summary.runs) == 1 else 'runs'}"
        f" ({', '.join(f'{count} {status}' for status, count in statuses.items())})"
        if statuses
        else "no runs",
        f"{sweeps} sweeps" if sweeps > 1 else "",
        f"from {min(run.started_at for run in summary.runs)[:16].replace('T', ' ')}" if summary.runs else "",
        f"held against {summary.reference}" if summary.reference else "",
    ]
    return "; ".join(part for part in said if part)


def _kinds(summary: Summary) -> Iterator[tuple[str, str]]:
    """Kinds of figures that were not measured on hardware, each with an explanation."""
    for note in kind_notes(summary.cells):
        kind, _, text = note.partition(": ")
        yield kind, text
    for source in dict.fromkeys(each.source for each in summary.published):
        yield "published", f"not measured here; markers with a dot in them, in no line: {source}"


def _findings(summary: Summary, severity: str) -> Iterator[tuple[Finding, str]]:
    """The findings of a severity; a warning with the number of runs that it concerns."""
    for finding in summary.findings:
        if finding.severity == severity:
            several = severity == "warning" and len(summary.runs) > 1
            yield finding, f"{len(finding.runs)} of {len(summary.runs)} runs" if several else ""


def _fairness(summary: Summary) -> Iterator[tuple[str, list[str]]]:
    """Groups of compared runs, and their differences; differences on all numbers of GPUs are listed once."""
    works: dict[tuple[str, str, str], dict[int, list[str]]] = defaultdict(dict)
    for each in summary.fairness:
        said = [difference.sentence() for difference in each.differences]
        works[each.sweep, each.scenario, each.workload][each.gpus] = said
    several = len({sweep for sweep, *_ in works}) > 1
    for (sweep, scenario, workload), of_gpus in works.items():
        common = [line for line in next(iter(of_gpus.values())) if all(line in said for said in of_gpus.values())]
        own: dict[str, list[int]] = defaultdict(list)
        for gpus, said in of_gpus.items():
            for line in said:
                if line not in common:
                    own[line].append(gpus)
        fair = [gpus for gpus, said in of_gpus.items() if not said]
        where = f"{sweep}: {scenario}, {workload}" if several else f"{scenario}, {workload}"
        if fair:
            yield f"{where}, on {_numbers(fair)}", []
        if len(fair) < len(of_gpus):
            unfair = [gpus for gpus, said in of_gpus.items() if said]
            yield (
                f"{where}, on {_numbers(unfair)}",
                [*common, *(f"on {_numbers(on)}: {line}" for line, on in own.items())],
            )


def _numbers(gpus: Sequence[int]) -> str:
    return f"{', '.join(map(str, gpus))} {'GPU' if list(gpus) == [1] else 'GPUs'}"


def _runs(summary: Summary) -> PageTable:
    """The table of all runs, whatever their status."""
    rates = units.rates(units.common(run.counters.unit for run in summary.runs))
    return PageTable(
        caption="All runs",
        columns=["system", "scenario", "workload", "GPUs", "seed", "status", *rates, "took (s)", "sweep", "run"],
        rows=[
            [
                words(fmt.system(run)),
                words(fmt.scenario(run)),
                words(run.cell.workload),
                words(fmt.gpus(run)),
                words(str(run.cell.seed)),
                words(run.status),
                *_rates(at, run)[: len(rates)],
                datum(f"runs.{at}.duration_s", run.duration_s),
                words(run.sweep),
                words(run.id),
            ]
            for at, run in enumerate(summary.runs)
        ],
    )


def _rates(at: int, run: RunRecord) -> list[Entry]:
    """The rate of samples, and that of env steps, which is the same where environments have one agent."""
    if run.status != "finished":
        return [words("-"), words("-")]
    own = "steps_per_s" if run.counters.unit == "env steps" else "env_steps_per_s"
    return [datum(f"runs.{at}.figures.{name}", getattr(run.figures, name)) for name in ("steps_per_s", own)]


def _timeline(number: int, choice: TimelineChoice, summary: Summary) -> dict[str, Any]:
    """The data that the template needs for the timelines of a work."""
    return {
        "id": f"timeline-{number}",
        "title": f"One iteration, worker by worker: {choice.work.title}",
        "labels": [each.label for each in choice.timelines],
        "problems": choice.problems,
        "tables": [_totals(each, summary.iterations[each.place]) for each in choice.timelines],
    }


def _totals(timeline: RunTimeline, iteration: Iteration) -> PageTable:
    kinds = in_order({kind for thread in iteration.threads for kind in thread.milliseconds})
    rows = []
    for at, thread in enumerate(iteration.threads[:TOTALS_ROWS]):
        path = f"iterations.{timeline.place}.threads.{at}.milliseconds"
        known = thread.milliseconds
        rows.append(
            [
                words(thread.name),
                *(datum(f"{path}.{kind}", known[kind]) if kind in known else words("-") for kind in kinds),
            ]
        )
    caption = f"{timeline.label}: milliseconds by what was done; {timeline.note}"
    if (num_rows := len(iteration.threads)) > TOTALS_ROWS:
        caption += f"; the first {TOTALS_ROWS} of {num_rows} rows, all are in the page's data"
    return PageTable(caption=caption, columns=["row", *kinds], rows=rows)
