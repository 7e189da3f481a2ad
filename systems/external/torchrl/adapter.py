"""PPO of torchrl's parts as a system: from a cell to its settings; see `systems.external.library`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from systems.external.library import Departure, LibrarySystem, PipLibrary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.contract import Scenario


@dataclass(frozen=True, kw_only=True)
class Torchrl(LibrarySystem):
    """PPO with torchrl's MultiSyncCollector."""

    library: ClassVar[PipLibrary] = PipLibrary(name="torchrl", distribution="torchrl", folder="torchrl")
    policies: ClassVar[Mapping[str, str]] = {"conv": "conv", "nature": "nature"}

    def list_departures(self, scenario: Scenario) -> tuple[Departure, ...]:  # noqa: ARG002  on all alike
        """What its parts cannot do as rlbench's own systems do it."""
        return ()


SYSTEM = Torchrl(name="torchrl-ppo", about="torchrl 0.14: PPO of its parts")
