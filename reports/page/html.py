"""The HTML report: one file that needs no network, for screens, phones, paper and screen readers.

It holds plotly.js, the figures, the summary as JSON, and cells and runs as CSV. All that comes from a run (names,
paths, reasons, configurations) is text: the template escapes it, data are in elements that no browser runs, and the
content security policy of the page allows only the two scripts whose hashes it names, and no loading.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from rlbench.reports.exports import cells_csv, export
from rlbench.reports.figures import format as fmt
from rlbench.reports.page import caveats, embedding, sections, telemetry
from rlbench.reports.page.charts import matrix
from rlbench.reports.page.charts.chart import Entry, PageTable, datum, run_facets, without_common, words
from rlbench.reports.page.charts.style import styles
from rlbench.reports.page.embedding import TEMPLATES, packed, packed_json
from rlbench.reports.page.first_screen import FirstScreen, first_screens
from rlbench.reports.page.headline import title as title_of
from rlbench.reports.page.learned_from import tables as learned_from_tables
from rlbench.reports.page.provenance import as_typed, provenance
from rlbench.reports.page.timeline import read_iterations, with_iterations
from rlbench.reports.page.timeline_budget import fitting
from rlbench.reports.page.timeline_section import timeline_section
from rlbench.results.reading.outputs import write_output
from rlbench.results.records import units
from rlbench.results.records.schema import RunRecord
from rlbench.results.summary.document import Summary

PAGE_BYTES, PAGE_RUNS = 2_000_000, 144
"""Size of a page of that many runs, of which worker timelines take what the other parts leave; more runs have more."""


def write_report(
    summary: Summary, folders: Mapping[str, Path], out: Path, *, command: Sequence[str], title: str | None = None
) -> None:
    """Writes the page; the file appears complete or not at all.

    Args:
        summary: the content of the page.
        folders: run folders by `sweep/id` or by run id, for the worker timelines; some may be missing.
        out: the file.
        command: the command that made the page, shown at its end.
        title: title of the page; by default it says what was compared.

    Raises ValueError if the file cannot be written.
    """
    page = render(summary, folders, command=command, title=title)
    try:
        write_output(out, [page])
    except BrokenPipeError:  # the reader of `--out /dev/stdout` has closed it
        raise
    except OSError as problem:
        raise ValueError(f"{out}: cannot be written ({problem.strerror or problem}); choose another --out") from None


def render(
    summary: Summary,
    folders: Mapping[str, Path],
    *,
    command: Sequence[str],
    title: str | None = None,
    live: int | None = None,
) -> str:
    """The page as text; arguments as for `write_report`.

    `live`: number of runs of a page that is served while its sweep runs, and asks for their number.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    read = read_iterations(summary, folders)
    summary = with_iterations(summary, read)
    first = first_screens(summary)
    before = sections.filled(sections.BEFORE_TIMELINE, summary)
    after = sections.filled(sections.AFTER_TIMELINE, summary)
    if of_machine := telemetry.charts(summary, folders):
        after.insert(0, sections.Section(id="telemetry", title="Telemetry over time", charts=of_machine))
    scripts = [embedding.plotly(), embedding.script()]
    figures = _figures(first, before, after)
    embedded = {
        "plotly": packed(scripts[0]),
        "figures-data": packed_json(figures),
        "summary-data": packed(summary.model_dump_json()),
        "csv-data": packed_json({"cells": cells_csv.to_csv(summary.cells), "runs": export.to_csv(summary.runs)}),
    }
    found, filters = caveats.groups(summary), _filters(summary)
    render_with = partial(
        environment.get_template("report.html.j2").render,
        title=title or title_of(summary),
        command=as_typed(command),
        policy=embedding.policy(scripts, asks=live is not None),
        live=live,
        css=Markup(embedding.styles()),  # noqa: S704  ours
        script=Markup(scripts[1]),  # noqa: S704  ours
        overview=_overview(summary),
        with_code=_with_code,
        filters=filters,
        filtered={facet for facet, _, _ in filters},
        first=first,
        baseline=summary.reference,
        caveats=found,
        num_caveats=caveats.num_caveats(found),
        tables=matrix.tables(summary),
        comparisons=matrix.comparisons(summary),
        before=before,
        after=after,
        learned_from=learned_from_tables(summary),
        runs=summary.runs,
        run_table=_runs(summary),
        provenance=provenance(summary.runs),
    )
    others = render_with(embedded=embedded, timelines=[], left_out=[])
    room = int(PAGE_BYTES * max(1.0, len(summary.runs) / PAGE_RUNS)) - len(others.encode())
    fitted = fitting(read, summary, room)
    return render_with(
        embedded=embedded | {"timelines-data": fitted.data},
        timelines=[timeline_section(number, choice, summary) for number, choice in enumerate(fitted.choices)],
        left_out=fitted.left_out,
    )


def _figures(first: Sequence[FirstScreen], *parts: Sequence[sections.Section]) -> dict[str, Any]:
    """All plotly figures of the page, by the id of their element."""
    figures = {name: figure for each in first for name, figure in each.bars.items()}
    figures |= {each.beside[0]: each.beside[2] for each in first if each.beside is not None}
    charts = [chart for part in parts for section in part for chart in section.charts]
    return figures | {panel.id: panel.figure for chart in charts for panel in chart.panels}


def _filters(summary: Summary) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """What the page can be narrowed to: facet, name, and values with their colours; only what there are several of."""
    look = styles(summary)
    values = {
        "system": [(name, look[name].colour) for name in dict.fromkeys(cell.system for cell in summary.cells)],
        "scenario": [(name, "") for name in dict.fromkeys(cell.scenario for cell in summary.cells)],
        "workload": [(name, "") for name in dict.fromkeys(cell.workload for cell in summary.cells)],
        "gpus": [(str(gpus), "") for gpus in sorted({cell.gpus for cell in summary.cells})],
        "device": [(name, "") for name in dict.fromkeys(cell.device for cell in summary.cells)],
    }
    names = {"system": "System", "scenario": "Scenario", "workload": "Workload", "gpus": "GPUs", "device": "Device"}
    return [(facet, names[facet], known) for facet, known in values.items() if len(known) > 1]


def _with_code(text: str) -> list[tuple[str, bool]]:
    """The parts of a sentence, and whether each stood between backticks."""
    return [(part, bool(at % 2)) for at, part in enumerate(text.split("`")) if part]


def _overview(summary: Summary) -> str:
    """What all runs have in common, in one line."""
    statuses = Counter(run.status for run in summary.runs)
    sweeps = len({run.sweep for run in summary.runs})
    counted = f"{len(summary.runs)} {'run' if len(summary.runs) == 1 else 'runs'}"
    if len(statuses) > 1 or "finished" not in statuses:
        counted += f" ({', '.join(f'{count} {status}' for status, count in statuses.items())})"
    said = [
        _common(summary),
        counted if summary.runs else "no runs",
        f"{sweeps} sweeps" if sweeps > 1 else "",
        min(run.started_at for run in summary.runs)[:16].replace("T", " ") if summary.runs else "",
        f"baseline {summary.reference}" if summary.reference else "",
    ]
    return " · ".join(part for part in said if part)


def _common(summary: Summary) -> str:
    """Scenario, workload, device and protocol, as far as all cells share them."""
    shared = {
        name: {getattr(cell, name) for cell in summary.cells} for name in ("scenario", "workload", "device", "protocol")
    }
    said = {name: values.pop() for name, values in shared.items() if len(values) == 1}
    return " · ".join(f"protocol {value}" if name == "protocol" else value for name, value in said.items())


def _runs(summary: Summary) -> PageTable:
    """The table of all runs, whatever their status."""
    rates = units.rates(units.common(run.counters.unit for run in summary.runs))
    several_kinds = len({cell.kind for cell in summary.cells}) > 1
    return without_common(
        PageTable(
            caption="All runs",
            columns=["system", "scenario", "workload", "GPUs", "seed", "status", *rates, "took (s)", "sweep", "run"],
            rows=[
                [
                    words(fmt.system(run)),
                    words(fmt.scenario(run)),
                    words(run.cell.workload),
                    words(fmt.gpus(run) if several_kinds else f"{run.cell.gpus:,}"),
                    words(str(run.cell.seed)),
                    words(run.status),
                    *_rates(at, run)[: len(rates)],
                    datum(f"runs.{at}.duration_s", run.duration_s),
                    words(run.sweep),
                    words(run.id),
                ]
                for at, run in enumerate(summary.runs)
            ],
            facets=[run_facets(run) for run in summary.runs],
        )
    )


def _rates(at: int, run: RunRecord) -> list[Entry]:
    """The rate of samples, and that of env steps, which is the same where environments have one agent."""
    if run.status != "finished":
        return [words("-"), words("-")]
    own = "steps_per_s" if run.counters.unit == "env steps" else "env_steps_per_s"
    return [datum(f"runs.{at}.figures.{name}", getattr(run.figures, name)) for name in ("steps_per_s", own)]
