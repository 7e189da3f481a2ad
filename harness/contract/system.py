"""The interface of a system, what it gets, and the loop that it forms with a scenario.

The loop of one rank (`harness/launch/rank.py` makes the context, the system does the rest)::

    system.run(Context(place=Place.from_environment(), scenario=..., ...))  # once per rank, each in a process:
        start environment workers; env = context.make_env(i), whose `step` and `reset` count what happens
        until context.budget.is_spent(progress), which all ranks decide alike:
            collect a rollout                   # meter.span("infer"), meter.span("simulate")
            wait for the other ranks            # meter.span("wait:straggler")
            learn, average                      # meter.span("learn"), meter.span("communicate")
            meter.learned(...), meter.reused(...), meter.discarded(...), meter.end_iteration(...)
        meter.in_flight(samples collected, neither learned nor discarded); end the environment workers; return
    # `meter.open_fates`, `settle` and `left`: the same for each environment, where the system knows whose samples are

A system must: keep collected = learned + discarded + in flight, to the sample; take its place from `Place` alone;
leave no process and no shared memory when it returns or raises; raise when one of its processes dies.
A system may raise at any time: the run ends as failed, with the traceback and the rank's number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from rlbench.harness.contract.agents import num_rows
from rlbench.harness.contract.budget import Limits
from rlbench.harness.contract.device import Device, Place, Seat
from rlbench.harness.contract.scenario import Scenario

if TYPE_CHECKING:
    from rlbench.harness.metering.counted import CountedEnv
    from rlbench.harness.metering.meter import RankMeter


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """Everything that a system gets on one rank."""

    place: Place
    scenario: Scenario
    device: Device
    seed: int
    budget: Limits
    meter: RankMeter
    folder: str
    """The run's working folder, where processes leave their last words (tracebacks, stacks)."""
    stall_s: float
    """The system raises when an environment has not answered for this long, as it has probably hung."""
    python: str = ""
    """The interpreter of the virtual environment of the system's library, if it has one."""

    def seat(self, index: int, seed: int) -> Seat:
        """The seat of environment `index` of this rank, or of agent `index` of its environments."""
        return Seat(place=self.place, index=index, num_envs=num_rows(self.scenario), seed=seed, device=self.device)

    def env_seed(self, index: int) -> int:
        """The seed of environment `index` of this rank, the same with every system."""
        from rlbench.harness.contract.envs import env_seeds

        return env_seeds(self.seed, self.place.rank, 1 + index)[index]

    def make_env(self, index: int) -> CountedEnv:
        """Makes environment `index` of this rank; call it in the process that will step it, this one or a child."""
        from rlbench.harness.contract.envs import make_counted_env

        return make_counted_env(self.scenario, self.seat(index, self.env_seed(index)), self.folder, self.meter.path)


class System(Protocol):
    """A way to train RL on many GPUs, under test; an entry point. Optional attributes: `harness.contract.traits`."""

    name: str
    about: str

    def run(self, context: Context) -> None:
        """Trains on this rank until the budget is spent. Called once per rank, in a process of its own."""
