"""How actions meet environments: `Lockstep`, one inference for all environments, then one step of all.

It blocks for inference (on the device) and for the slowest environment of each step (in `WorkerPool.receive`, which
raises when a worker dies or stalls).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from systems.engine.rollouts.sampler import Sampler


class Collector(Protocol):
    """How actions meet environments, as a field of a system's spec."""

    def check(self, num_envs: int) -> str | None:
        """None, or why it cannot serve so many environments, with what would do."""

    def envs_per_worker(self, num_envs: int, num_cores: int) -> int:
        """Environments that one worker steps, one after the other; divides `num_envs`."""

    def collect(self, sampler: Sampler) -> None:
        """Fills the rollout, or stops early when `sampler.is_over`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lockstep:
    """The policy for the whole batch, then all environments step (VER section 1, Fig. 1; Sample Factory section 2)."""

    def check(self, num_envs: int) -> str | None:  # noqa: ARG002  any number will do
        """Any number of environments will do."""
        return None

    def envs_per_worker(self, num_envs: int, num_cores: int) -> int:  # noqa: ARG002  it depends on neither
        """A worker each."""
        return 1

    def collect(self, sampler: Sampler) -> None:
        """Fills the rollout, or stops early when the sampler says so."""
        sampler.drain()  # another way of collecting, or a stopped one, may have left actions in flight
        while not sampler.is_over:
            envs = sampler.ready
            if len(envs):
                sampler.act(envs)
            sampler.receive(max(len(envs), 1))
            sampler.drain()  # a wake-up may have cut the wait short
