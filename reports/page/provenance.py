"""Where figures come from: machine, versions, configuration and command of each run.

What all runs share is listed once, and so is what those of a system share.
"""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlbench.results.records import labels
from rlbench.results.records.schema import RunRecord

Facts = dict[str, str]
"""Values as JSON by dotted name; texts have no quotes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Provenance:
    """The facts about some runs."""

    shared: Facts
    """Facts that all runs share."""
    systems: Mapping[str, Facts]
    """For each system, the other facts that all its runs share."""
    own: Sequence[Facts]
    """For each run, its other facts, and its command, as a shell takes it."""


def provenance(runs: Sequence[RunRecord]) -> Provenance:
    """The facts about some runs, in their order."""
    facts = [dict(_facts(run)) for run in runs]
    shared = _shared(facts)
    left = [{name: value for name, value in each.items() if name not in shared} for each in facts]
    by_system: dict[str, list[Facts]] = defaultdict(list)
    for run, each in zip(runs, left, strict=True):
        by_system[labels.system(run.cell)].append(each)
    systems = {name: _shared(group) for name, group in by_system.items()}
    own = [
        {name: value for name, value in each.items() if name not in systems[labels.system(run.cell)]}
        for run, each in zip(runs, left, strict=True)
    ]
    return Provenance(shared=shared, systems=systems, own=own)


def _shared(facts: Sequence[Facts]) -> Facts:
    """The facts that all of some runs share, if these are several."""
    if len(facts) < 2:
        return {}
    return {name: value for name, value in facts[0].items() if all(f.get(name) == value for f in facts)}


def as_typed(command: Sequence[str]) -> str:
    """A command as a shell takes it."""
    return shlex.join(command)


def _facts(run: RunRecord) -> Iterator[tuple[str, str]]:
    yield "command", as_typed(run.command)
    yield "commit", run.commit or "none"
    if run.sweep_file is not None:
        yield "sweep file", f"{run.sweep_file.name}, sha256 {run.sweep_file.sha256}"
    for group, values in (("version", run.packages), ("machine", run.machine), ("", run.configuration)):
        yield from _flat(values, group)


def _flat(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        full = f"{prefix}.{name}" if prefix else name
        if isinstance(value, dict) and value:
            yield from _flat(value, full)
        else:
            yield full, value if isinstance(value, str) else json.dumps(value)
