"""Where figures come from: machine, versions, configuration and command of each run; shared facts are listed once."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlbench.results.records.schema import RunRecord

Facts = dict[str, str]
"""Values as JSON by dotted name; texts have no quotes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Provenance:
    """The facts about some runs."""

    shared: Facts
    """Facts that all runs share."""
    own: Sequence[Facts]
    """For each run, its other facts."""
    commands: Sequence[str]
    """The runs' commands, as a shell takes them."""


def provenance(runs: Sequence[RunRecord]) -> Provenance:
    """The facts about some runs, in their order."""
    facts = [dict(_facts(run)) for run in runs]
    shared = {
        name: value for name, value in (facts[0].items() if facts else ()) if all(f.get(name) == value for f in facts)
    }
    return Provenance(
        shared=shared,
        own=[{name: value for name, value in each.items() if name not in shared} for each in facts],
        commands=[as_typed(run.command) for run in runs],
    )


def as_typed(command: Sequence[str]) -> str:
    """A command as a shell takes it."""
    return shlex.join(command)


def _facts(run: RunRecord) -> Iterator[tuple[str, str]]:
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
