"""Tables of what runs learned from: by run, by scenario part and by length of episodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlbench.reports.figures import format as fmt
from rlbench.reports.page.charts.chart import Entry, PageTable, datum, run_facets, without_common, words
from rlbench.results.records import units
from rlbench.results.records.schema import EnvFates, LearnedFrom, RunRecord
from rlbench.results.summary.document import Summary

NAMES = ("system", "scenario", "workload", "GPUs", "seed")
FATES = ("started", "learned", "discarded", "in_flight", "cut")
SHARES = ("least", "most", "even", "distance")
MOST_ROWS = 100
"""Rows of a table by part or length, so that the page stays small; the JSON has all."""


def tables(summary: Summary) -> list[PageTable]:
    """The tables of the finished runs that report it; the first has a row for each."""
    told = [
        (f"runs.{place}.learned_from", run, run.learned_from)
        for place, run in enumerate(summary.runs)
        if run.status == "finished" and run.learned_from is not None
    ]
    if not told:
        return []
    unit = units.common(run.counters.unit for _, run, _ in told)
    who, stay = ("environments", "episode") if unit == "env steps" else ("agents", "agent's stay")
    found = [
        PageTable(
            caption=f"Shares of {who} in the samples that were learned",
            columns=[*NAMES, who, "least", "most", "even", "distance", "p by chance", "least kept"],
            rows=[[*_names(run), *_shares(path, said)] for path, run, said in told],
            num_names=len(NAMES),
            facets=[run_facets(run) for _, run, _ in told],
        )
    ]
    for name, what in (("parts", "scenario part"), ("lengths", f"length of the {stay} in {unit}")):
        named = [
            (run, [*_names(run), words(each.name), *_fates(f"{path}.{name}.{number}", each)])
            for path, run, said in told
            for number, each in enumerate(getattr(said, name))
        ]
        columns = [*NAMES, what, who, *(fate.replace("_", " ") for fate in FATES), "learned / started"]
        if named:
            cut = f"; the first {MOST_ROWS} of {len(named):,} rows, the JSON has all" if len(named) > MOST_ROWS else ""
            named = named[:MOST_ROWS]
            found.append(
                PageTable(
                    caption=f"What became of {unit}, by {what}{cut}",
                    columns=columns,
                    rows=[row for _, row in named],
                    num_names=len(NAMES) + 1,
                    facets=[run_facets(run) for run, _ in named],
                )
            )
    return [without_common(table) for table in found]


def _names(run: RunRecord) -> Iterator[Entry]:
    for text in (fmt.system(run), fmt.scenario(run), run.cell.workload, fmt.gpus(run), str(run.cell.seed)):
        yield words(text)


def _shares(path: str, said: LearnedFrom) -> Sequence[Entry]:
    shares, kept = said.shares, said.kept
    return [
        datum(f"{path}.environments", said.environments, _count),
        *(datum(f"{path}.shares.{name}", getattr(shares, name), _percent) for name in SHARES),
        datum(f"{path}.shares.p", shares.p),
        words("-") if kept is None else datum(f"{path}.kept.least", kept.least, _percent),
    ]


def _fates(path: str, each: EnvFates) -> Iterator[Entry]:
    yield words("-") if each.environments is None else datum(f"{path}.environments", each.environments, _count)
    for name in FATES:
        value = getattr(each, name)
        yield words("-") if value is None else datum(f"{path}.{name}", value, _count)
    yield words(_percent(each.learned / each.started) if each.started else fmt.NONE)


def _percent(share: float | None) -> str:
    """With three digits, since shares of many environments are small."""
    return fmt.NONE if share is None else f"{100 * share:.3g}%"


def _count(number: float | None) -> str:
    return fmt.NONE if number is None else f"{number:,.0f}"
