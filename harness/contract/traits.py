"""Optional attributes with which a system describes itself, beside the protocol.

The fields of `Traits` are those that the keeper of a run must know. The others are looked up where they matter:

- `check(scenario)`: returns the scenario with the system's own learning settings; ValueError if the two do not fit.
- `devices`, `most_gpus`: the kinds of device and the number of GPUs it can run on; without them, any.
- `library`: a library that it needs and that must be installed for it, a `harness.plan.libraries.Library`.
- `known_work(scenario)`: the parts of a record's scenario that hold for this system; without it, all parts do.
- `departures(scenario)`: how its work differs from that of rlbench's own systems with the same settings; texts by name.
- `preload`: modules that a rank imports and that start no thread; they are imported once for all ranks of a sweep.
- `policies`, `evaluate`: see `harness.commands.evaluate`. `predict`, `why_not_predicted`: see `contract.prediction`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

TRAITS_FILE = "traits.json"
"""A file in the working folder of a run. The runner, which has loaded the system, writes it for the keeper."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Traits:
    """Attributes of a system, under the same names; a default holds if the system does not have the attribute."""

    in_step: bool = True
    """All ranks go through the same iterations and end together. If False, each rank counts its own iterations."""
    survives_lost_rank: bool = False
    """When a rank is killed, the others go on. If False, the run ends."""
    one_machine: bool = False
    """All ranks must be on one machine."""
    one_learner: bool = False
    """Rank 0 learns for all; the other ranks wait while it has nothing for them to do."""

    @classmethod
    def of(cls, system: object) -> Traits:
        """The traits of a system."""
        return cls(**{field.name: bool(getattr(system, field.name, field.default)) for field in fields(cls)})

    def leave(self, folder: Path) -> None:
        """Writes the traits for the keeper."""
        (folder / TRAITS_FILE).write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Traits:
        """Reads back what `leave` wrote."""
        return cls(**json.loads((folder / TRAITS_FILE).read_text(encoding="utf-8")))


def preload_of(system: object) -> tuple[str, ...]:
    """The modules to import once for all ranks of a system; empty if it does not say, and each rank then imports."""
    return tuple(map(str, getattr(system, "preload", ())))
