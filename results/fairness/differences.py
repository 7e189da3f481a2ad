"""Decides whether runs may be compared: by their work, learning settings, machines and versions.

A comparison is about a system's own choices: how it collects, fills, overlaps, preempts, averages, and corrects for
stale samples. Any other difference between systems (`results.fairness.aspects`) is named, and the figures are then not
comparable. A system of somebody else's library states itself where it departs from rlbench's own systems.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from rlbench.results.fairness.aspects import (
    EXECUTION,
    NOT_RECORDED,
    OWN_WAY,
    WORK,
    aspects,
    beside_libraries,
    departures,
    is_of_library,
    surroundings,
)
from rlbench.results.records import labels
from rlbench.results.records.schema import RunRecord

MOST_NAMES = 3
"""Maximum number of systems that a sentence lists for the most common value; more are called `the 7 others`."""


class Difference(BaseModel):
    """An aspect in which compared runs differ."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    aspect: str
    values: dict[str, list[str]]
    """For each value, the names of the runs that have it: labels of systems, unless the caller names runs otherwise."""

    def sentence(self) -> str:
        """`epochs: 1 (appo), 2 (ddppo, ver)`; the most common value comes last."""
        common = max(self.values, key=lambda value: len(self.values[value]))
        rest = {value: names for value, names in self.values.items() if value != common}
        names = self.values[common]
        brief = len(names) > MOST_NAMES and not set(names) & {name for each in rest.values() for name in each}
        told = [f"{value} ({', '.join(each)})" for value, each in rest.items()]
        told.append(f"{common} ({f'the {len(names)} others' if brief else ', '.join(names)})")
        return f"{self.aspect}: {', '.join(told)}"


def find_differences(runs: Iterable[RunRecord], name: Callable[[RunRecord], str] | None = None) -> list[Difference]:
    """Every aspect in which some of the runs differ: first what they do, then how and where.

    Runs on different numbers of GPUs are not compared: a GPU's share of a learner's batch, or of a machine's cores,
    depends on that number.

    Args:
        runs: runs of one scenario and workload.
        name: returns the name of a run; the label of its system by default.
    """
    by_gpus: dict[int, list[RunRecord]] = {}
    for run in runs:
        by_gpus.setdefault(run.cell.gpus, []).append(run)
    found: dict[str, dict[str, list[str]]] = {}
    for group in by_gpus.values():
        for aspect, values in _differing(group, _reader(group), name or _system).items():
            kept = found.setdefault(aspect, {})
            for value, names in values.items():
                kept[value] = list(dict.fromkeys([*kept.get(value, []), *names]))
    return [
        Difference(aspect=aspect, values=_told_apart(found[aspect]))
        for aspect in sorted(found, key=lambda aspect: aspect in EXECUTION)
    ]


def find_changes(runs: Iterable[RunRecord]) -> list[Difference]:
    """How machines and versions differ between runs of one sweep, on any number of GPUs; runs are named by id."""
    kept = list(runs)
    mixed = any(map(is_of_library, kept))

    def read(run: RunRecord) -> Mapping[str, str | None]:
        return surroundings(run) | ({"versions": beside_libraries(run)["versions"]} if mixed else {})

    found = _differing(kept, read, lambda run: run.id)
    return [Difference(aspect=aspect, values=_told_apart(values)) for aspect, values in found.items()]


def _reader(runs: Sequence[RunRecord]) -> Callable[[RunRecord], Mapping[str, str | None]]:
    """The function that reads the aspects of compared runs: a departure of one of them is an aspect of all."""
    departed = list(dict.fromkeys(what for run in runs for what in departures(run)))
    if not any(map(is_of_library, runs)):
        return aspects

    def read(run: RunRecord) -> Mapping[str, str | None]:
        own = departures(run)
        return aspects(run) | beside_libraries(run) | {what: own.get(what, OWN_WAY) for what in departed}

    return read


def _system(run: RunRecord) -> str:
    return labels.system(run.cell)


def _differing(
    runs: Iterable[RunRecord], read: Callable[[RunRecord], Mapping[str, str | None]], name: Callable[[RunRecord], str]
) -> dict[str, dict[str, list[str]]]:
    """The aspects with several values: by aspect, the names of the runs with each value; None is no value.

    An aspect of the work that several systems did not record counts as different too.
    """
    found: dict[str, dict[str, list[str]]] = {}
    unknown: dict[str, set[str]] = {}
    """For each aspect of the work, the systems that did not record it."""
    for run in runs:
        for aspect, value in read(run).items():
            if value is not None:
                names = found.setdefault(aspect, {}).setdefault(value, [])
                if name(run) not in names:
                    names.append(name(run))
                if value == NOT_RECORDED and aspect in WORK:
                    unknown.setdefault(aspect, set()).add(run.cell.system)
    return {aspect: values for aspect, values in found.items() if len(values) > 1 or len(unknown.get(aspect, ())) > 1}


def _told_apart(values: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Reduces values that are JSON objects to the fields that differ."""
    objects = {text: json.loads(text) for text in values if text.startswith("{")}
    fields = sorted({field for each in objects.values() for field in each})
    differing = [field for field in fields if len({each.get(field, "none") for each in objects.values()}) > 1]
    told: dict[str, list[str]] = {}
    for text, names in values.items():
        each = objects.get(text)
        if each is None:
            told[text] = names
        else:
            told[", ".join(f"{field} {each.get(field, 'none')}" for field in differing) or "recorded"] = names
    return told
