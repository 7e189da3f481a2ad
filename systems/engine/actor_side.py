"""`ActorSide` collecting: the policy acts in the environment workers, which send whole trajectories.

IMPALA (Espeholt et al. 2018, section 3; Sample Factory sections 2 and 4). The rank infers nothing: it says which slots
of the table a trajectory fills, and blocks in `WorkerPool.receive` until one is whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from systems.engine.rollouts.sampler import Sampler


@dataclass(frozen=True, kw_only=True, slots=True)
class ActorSide:
    """A copy of the policy in each environment worker, on the CPU, brought up to date for each trajectory."""

    def check(self, num_envs: int) -> str | None:  # noqa: ARG002  any number will do
        """Any number of environments will do."""
        return None

    def envs_per_worker(self, num_envs: int, num_cores: int) -> int:  # noqa: ARG002  it depends on neither
        """A worker each."""
        return 1

    def collect(self, sampler: Sampler) -> None:
        """Fills the rollout with trajectories."""
        sampler.receive(0)
        while not sampler.is_over:
            for env in sampler.ready.tolist():
                sampler.play(env)
            sampler.receive(1)
