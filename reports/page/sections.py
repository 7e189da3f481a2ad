"""The parts of a page that consist of charts, in their order; those without a chart are not in the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlbench.reports.page.charts import (
    ablation,
    breakdown,
    learning,
    profiles,
    revisions,
    scaling,
    tradeoffs,
    utilisation,
    workloads,
)
from rlbench.reports.page.charts.chart import Chart
from rlbench.results.summary.document import Summary


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """A part of the page."""

    id: str
    title: str
    charts: Sequence[Chart]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Kind:
    id: str
    title: str
    make: Callable[[Summary], list[Chart]]


def _learned(summary: Summary) -> list[Chart]:
    return [
        *learning.curves(summary),
        *learning.results(summary),
        *learning.thresholds(summary),
        *profiles.charts(summary),
    ]


BEFORE_TIMELINE = (
    _Kind(id="scaling", title="Scaling", make=scaling.charts),
    _Kind(id="workloads", title="Homogeneous beside heterogeneous", make=workloads.charts),
    _Kind(id="learning", title="Learning", make=_learned),
    _Kind(id="time", title="Where the time went", make=breakdown.charts),
)
AFTER_TIMELINE = (
    _Kind(id="utilisation", title="Utilisation", make=utilisation.charts),
    _Kind(id="samples", title="Lag and use of samples", make=tradeoffs.charts),
    _Kind(id="ablation", title="Ablation", make=ablation.charts),
    _Kind(id="published", title="Published figures", make=scaling.published),
    _Kind(id="history", title="History", make=revisions.charts),
)


def filled(kinds: Sequence[_Kind], summary: Summary) -> list[Section]:
    """The sections that have charts."""
    made = (Section(id=kind.id, title=kind.title, charts=kind.make(summary)) for kind in kinds)
    return [section for section in made if section.charts]
