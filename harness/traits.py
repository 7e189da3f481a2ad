"""What a system says of itself beside the protocol, by attributes that it need not have."""

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

    @classmethod
    def of(cls, system: object) -> Traits:
        """The traits of a system."""
        return cls(**{field.name: bool(getattr(system, field.name, field.default)) for field in fields(cls)})

    def leave(self, folder: Path) -> None:
        """Writes them for the keeper."""
        (folder / TRAITS_FILE).write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> Traits:
        """Reads back what `leave` wrote."""
        return cls(**json.loads((folder / TRAITS_FILE).read_text()))
