"""What a system says of itself beside the protocol, by attributes that it need not have.

Those that the keeper of a run must know are fields of `Traits`. The others are asked for where they matter:

- `check(scenario)`: the scenario with the system's own learning settings; ValueError where the two cannot go together.
- `devices`, `most_gpus`: what it can run on; on anything where it does not say.
- `library`: what it is made with and must be installed for it, a `harness.plan.libraries.Library`.
- `known_work(scenario)`: of what a record says of the scenario, what holds for the system; without it all of it.
- `departures(scenario)`: in what it does other work than rlbench's own systems with the same settings; texts by name.
- `preload`: modules that a rank imports, and that start no thread: imported once for all ranks of a sweep.
- `policies`, `evaluate`, `predict`, `why_not_predicted`: see `harness.commands`, `evaluate` and `predict`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

TRAITS_FILE = "traits.json"
"""In the working folder of a run: the runner, which has loaded the system, tells the keeper, which need not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Traits:
    """The attributes of a system, by their names; the defaults hold for one that does not have them."""

    in_step: bool = True
    """All ranks go through the same iterations together, and end together; False: each rank counts its own."""
    survives_lost_rank: bool = False
    """When a rank is killed, the others go on; False: its end is the end of the run."""
    one_machine: bool = False
    """All its ranks must be on one machine."""
    one_learner: bool = False
    """Rank 0 learns for all; the others stand still for as long as it has nothing for them to do."""

    @classmethod
    def of(cls, system: object) -> Traits:
        """The traits of a system."""
        return cls(**{field.name: bool(getattr(system, field.name, field.default)) for field in fields(cls)})

    def leave(self, folder: Path) -> None:
        """Writes them for the keeper."""
        (folder / TRAITS_FILE).write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Traits:
        """Reads back what `leave` wrote."""
        return cls(**json.loads((folder / TRAITS_FILE).read_text(encoding="utf-8")))


def preload_of(system: object) -> tuple[str, ...]:
    """The modules that ranks of a system import; those of other people's systems, which do not say, import theirs."""
    return tuple(map(str, getattr(system, "preload", ())))
