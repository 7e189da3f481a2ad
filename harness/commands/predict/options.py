"""The options of `rlbench predict`."""

from __future__ import annotations

from dataclasses import dataclass

from harness.contract.budget import Limits
from harness.metering.window import PROTOCOLS


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictOptions:
    """The options of `rlbench predict`; see its help."""

    systems: str | None = None
    gpus: str = "1"
    scenario: str | None = None
    workload: str | None = None
    seeds: str = "0"
    protocol: str = "steady"
    iterations: int | None = None
    seconds: float | None = None
    env_steps: int | None = None

    @property
    def limits(self) -> Limits:
        """How long each run is; empty where that depends on the run."""
        limits = Limits(iterations=self.iterations, seconds=self.seconds, env_steps=self.env_steps)
        return limits if not limits.is_empty else Limits(iterations=PROTOCOLS[self.protocol].num_iterations)
