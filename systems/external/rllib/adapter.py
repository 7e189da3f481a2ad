"""RLlib's APPO and IMPALA as systems: from a cell to their settings; see `systems.external.library`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from systems.external.library import Departure, LibrarySystem, PipLibrary, Rollout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.contract import Context, Scenario


@dataclass(frozen=True, kw_only=True)
class Rllib(LibrarySystem):
    """An algorithm of RLlib that learns beside collecting."""

    library: ClassVar[PipLibrary] = PipLibrary(name="rllib", distribution="ray", folder="rllib")
    corrections: ClassVar[tuple[str, ...]] = ("vtrace",)
    policies: ClassVar[Mapping[str, str]] = {"conv": "conv", "nature": "nature"}
    algorithm: ClassVar[str]

    def settings(self, context: Context) -> dict[str, Any]:
        """What `train.py` is told, as JSON."""
        return {**super().settings(context), "algorithm": self.algorithm}

    def list_departures(self, scenario: Scenario) -> tuple[Departure, ...]:  # noqa: ARG002  on all alike
        """What its configuration cannot set as rlbench's own systems have it."""
        return ()


class Appo(Rllib):
    """APPO: IMPALA with PPO's loss."""

    algorithm = "APPO"


class Impala(Rllib):
    """IMPALA (Espeholt et al. 2018)."""

    algorithm = "IMPALA"


STREAM = Rollout(num_steps=32, batch=2048)
APPO = Appo(name="rllib-appo", about="RLlib 2.60.0: its APPO", rollout=STREAM, learn={"correct": "vtrace"})
IMPALA = Impala(name="rllib-impala", about="RLlib 2.60.0: its IMPALA", rollout=STREAM, learn={"correct": "vtrace"})
