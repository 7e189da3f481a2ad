"""Optional attributes with which a system describes itself, beside the protocol `contract.System`.

A system may also have methods: `policies` and `evaluate` (see `harness.commands.evaluate`), `predict` and
`why_not_predicted` (see `contract.prediction`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rlbench.harness.contract.scenario import Scenario

TRAITS_FILE = "traits.json"
"""A file in the working folder of a run. The runner, which has loaded the system, writes it for the keeper."""


class Library(Protocol):
    """A library of somebody else that a system needs, and that `rlbench systems install` installs for it."""

    @property
    def name(self) -> str:
        """Name of the environment; several systems may share it."""

    @property
    def distribution(self) -> str:
        """The required package that users know the library by."""

    @property
    def requirements(self) -> Path:
        """A requirements file for pip, with exact versions."""

    def unavailable(self, place: Path) -> str | None:
        """None, or why pip alone cannot install it in the environment at `place`, with the command that would help."""


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
    devices: Collection[str] | None = None
    """The kinds of device that it can run on; None: all."""
    most_gpus: int | None = None
    """The largest number of GPUs that it can run on; None: any."""
    check: Callable[[Scenario], Scenario] | None = None
    """Returns the scenario with the system's own learning settings. Raises ValueError if the two do not fit."""
    why_not_spaces: Callable[[Any, Any], str | None] | None = None
    """None, or why it takes no scenario with this observation space and this action space; None: takes all."""
    steps_each: Callable[[Scenario], int | None] | None = None
    """Env steps of a rank's iteration, None where they differ; None: not known."""
    known_work: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    """Returns the parts of a record's scenario that hold for this system; None: all parts do."""
    departures: Callable[[Scenario], dict[str, str]] | None = None
    """How its work differs from that of rlbench's own systems with the same settings; texts by what they concern."""
    preload: Sequence[str] = ()
    """Modules that ranks need and that start no thread; they are imported once for all ranks."""
    library: Library | None = None
    """A library that it needs and that must be installed for it."""
    python: str | None = None
    """The interpreter that it runs, if that is not rlbench's own."""

    @classmethod
    def of(cls, system: object) -> Traits:
        """The traits of a system."""
        found: dict[str, Any] = {field.name: getattr(system, field.name, field.default) for field in fields(cls)}
        return cls(**found | {name: bool(found[name]) for name in _YES_OR_NO})

    def leave(self, folder: Path) -> None:
        """Writes for the keeper the traits that it must know, those that are true or false."""
        said = {name: getattr(self, name) for name in _YES_OR_NO}
        (folder / TRAITS_FILE).write_text(json.dumps(said), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Traits:
        """Reads back what `leave` wrote."""
        return cls(**json.loads((folder / TRAITS_FILE).read_text(encoding="utf-8")))


_YES_OR_NO = [field.name for field in fields(Traits) if isinstance(field.default, bool)]
