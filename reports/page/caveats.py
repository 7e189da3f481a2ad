"""What a report warns of: runs that went wrong, systems that may not be compared, warnings, what figures are of.

Identical texts are merged, and each says what it is of unless that is everything.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rlbench.reports.figures.columns import kind_notes
from rlbench.results.summary.document import Fairness, Summary

HEADINGS = {
    "partial": "Partial: some of what was planned has not run",
    "unreadable": "Cannot be read",
    "failed": "Did not finish, or is invalid",
    "warning": "Warnings",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Caveat:
    """A line, and what is folded below it."""

    text: str
    severity: str
    """That of a finding, or `note`: how it looks."""
    count: str = ""
    inner: Sequence[str] = field(default_factory=list)
    """Lines below it."""
    inner_title: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class CaveatGroup:
    """Caveats of one sort."""

    title: str
    caveats: Sequence[Caveat]
    open: bool
    """Whether the reader sees them without asking."""


def groups(summary: Summary) -> list[CaveatGroup]:
    """The caveats by sort, the gravest first; none that are empty."""
    findings = {severity: list(_findings(summary, severity)) for severity in HEADINGS}
    found = [
        *(
            CaveatGroup(title=HEADINGS[each], caveats=findings[each], open=True)
            for each in ("partial", "unreadable", "failed")
        ),
        CaveatGroup(title="Not comparable", caveats=list(_not_comparable(summary)), open=True),
        CaveatGroup(title=HEADINGS["warning"], caveats=findings["warning"], open=len(findings["warning"]) < 4),
        CaveatGroup(title="What the figures are of", caveats=list(_kinds(summary)), open=True),
    ]
    return [group for group in found if group.caveats]


def num_caveats(found: Sequence[CaveatGroup]) -> int:
    """How many there are."""
    return sum(len(group.caveats) for group in found)


def _findings(summary: Summary, severity: str) -> Iterator[Caveat]:
    for finding in summary.findings:
        if finding.severity == severity:
            several = severity == "warning" and len(summary.runs) > 1
            yield Caveat(
                text=finding.text,
                severity=severity,
                count=f"{len(finding.runs)} of {len(summary.runs)} runs" if several else "",
                inner=[", ".join(finding.runs)] if len(finding.runs) > 1 else [],
                inner_title="Which",
            )


def _not_comparable(summary: Summary) -> Iterator[Caveat]:
    """For each set of aspects in which compared systems differ, the values of each, and on what work that is."""
    unlike = [each for each in summary.fairness if each.differences]
    by_aspects: dict[tuple[str, ...], list[Fairness]] = defaultdict(list)
    for each in unlike:
        by_aspects[tuple(difference.aspect for difference in each.differences)].append(each)
    for aspects, group in by_aspects.items():
        sentences: dict[str, list[Fairness]] = defaultdict(list)
        for each in group:
            for difference in each.differences:
                sentences[difference.sentence()].append(each)
        yield Caveat(
            text=f"Systems differ in more than their own choices: {', '.join(aspects)}",
            severity="warning",
            count=_where(group, summary.fairness),
            inner=[said + (f" ({where})" if (where := _where(of, group)) else "") for said, of in sentences.items()],
            inner_title="Values",
        )


def _where(some: Sequence[Fairness], among: Sequence[Fairness]) -> str:
    """Which works and numbers of GPUs some groups are of; nothing, if they are all."""
    if len(some) == len(among):
        return ""
    several_sweeps = len({each.sweep for each in among}) > 1

    def work(each: Fairness) -> str:
        return ", ".join([*([each.sweep] if several_sweeps else []), each.scenario, each.workload])

    gpus = {name: sorted(each.gpus for each in some if work(each) == name) for name in map(work, among)}
    if len(set(map(tuple, gpus.values()))) == 1:  # on as many in all works
        return f"on {_numbers(gpus.popitem()[1])}"
    return "; ".join(f"{name} on {_numbers(counts)}" for name, counts in gpus.items() if counts)


def _numbers(gpus: Sequence[int]) -> str:
    return f"{', '.join(map(str, gpus))} {'GPU' if list(gpus) == [1] else 'GPUs'}"


def _kinds(summary: Summary) -> Iterator[Caveat]:
    """What figures that were not measured on hardware are of."""
    for note in kind_notes(summary.cells):
        yield Caveat(text=note, severity="note")
    for source in dict.fromkeys(each.source for each in summary.published):
        yield Caveat(text=f"published: not measured here: {source}", severity="note")
