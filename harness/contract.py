"""What a system gets, what a scenario is, and the loop that they form.

The loop of one rank (`harness/rank.py` makes the context, the system does the rest):
    system.run(Context(place=Place.from_environment(), scenario=..., ...))  # once per rank, each in a process:
        start environment workers; env = context.make_env(i), whose `step` and `reset` count what happens
        until context.budget.is_spent(progress), decided alike on all ranks:
            collect a rollout                   # meter.span("infer"), meter.span("simulate")
            wait for the other ranks            # meter.span("wait:straggler")
            learn, average                      # meter.span("learn"), meter.span("communicate")
            meter.learned(...), meter.reused(...), meter.discarded(...), meter.end_iteration(...)
        meter.in_flight(samples collected, neither learned nor discarded); end the environment workers; return

A system must: keep collected = learned + discarded + in flight, to the sample; take its place from `Place` alone;
leave no process and no shared memory when it returns or raises; raise when one of its processes dies.
A system may raise at any time: the run ends as failed, with the traceback and the rank's number.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from harness.budget import Limits
from harness.settings import GpuCosts, LearnSettings, Message, Work

if TYPE_CHECKING:
    import gymnasium

    from harness.counted import CountedEnv
    from harness.meter import RankMeter

WORKLOADS = ("homogeneous", "heterogeneous")
RANK_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a rank stands among the ranks of its run, as torchrun says it."""

    rank: int
    num_ranks: int
    local_rank: int

    @classmethod
    def from_environment(cls) -> Place:
        """Reads the variables that torchrun and the local launcher set; raises ValueError naming the missing ones."""
        if missing := [name for name in RANK_VARIABLES if name not in os.environ]:
            raise ValueError(f"{', '.join(missing)}: not set; a rank is started by `rlbench run` or by torchrun")
        rank, num_ranks, local_rank, *_ = (os.environ[name] for name in RANK_VARIABLES)
        return cls(rank=int(rank), num_ranks=int(num_ranks), local_rank=int(local_rank))


class Device(Protocol):
    """What a rank owns one of: a GPU, an emulated GPU, or its share of the CPU."""

    @property
    def torch_name(self) -> str:
        """Where tensors live: `cpu` or `cuda:k`."""

    @property
    def num_threads(self) -> int:
        """CPU threads of the rank's tensor work; environment workers and other ranks share the cores."""

    def busy(self, work: Work, num_items: int) -> AbstractContextManager[None]:
        """Wraps work; ends when the device has done it (CUDA: synchronised; emulated: its time is over)."""

    def communicate(self, message: Message, peer: int = 0) -> None:
        """Takes the time that a message between ranks costs, beside the real one (emulated GPUs only)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Seat:
    """The place of one environment in a run."""

    place: Place
    index: int
    """0 .. num_envs - 1 within the rank."""
    num_envs: int
    seed: int
    """Differs between all environments of a run; the same for the same cell."""
    device: Device
    """The device of the rank, for environments that render on it."""

    @property
    def global_index(self) -> int:
        """0 .. num_ranks * num_envs - 1 within the run."""
        return self.place.rank * self.num_envs + self.index


class Scenario(Protocol):
    """A cell's work: a frozen dataclass. May have `sleeps = True` (steps but wait); see harness/shared_memory.py."""

    @property
    def name(self) -> str:
        """`family` or `family/variant`."""

    @property
    def workload(self) -> str:
        """One of `WORKLOADS`."""

    @property
    def num_envs(self) -> int:
        """Environments of one rank."""

    @property
    def rollout_steps(self) -> int:
        """T: steps of each environment in one rollout."""

    @property
    def policy(self) -> str:
        """One of `small`, `conv`, `nature`, `resnet` (systems/learn)."""

    @property
    def learn(self) -> LearnSettings:
        """How every system learns on it."""

    @property
    def gpu_costs(self) -> GpuCosts:
        """What its work takes on an emulated GPU."""

    @property
    def preload(self) -> tuple[str, ...]:
        """Modules that workers need; imported once per rank, before the workers are forked."""

    @property
    def observation_space(self) -> gymnasium.spaces.Dict:
        """Box entries only. `pixels`: uint8 [C, H, W]; `depth`: float32 [1, H, W], metres; vectors: float32 [K]."""

    @property
    def num_actions(self) -> int:
        """Actions are 0 .. num_actions - 1."""

    def make_env(self, seat: Seat) -> gymnasium.Env[dict[str, Any], int]:
        """Makes one environment, in the process that will step it.

        `info` of `step` may hold `num_frames` (simulator frames, else 1), `raw_reward` (for returns, else the reward)
        and, at the end of an episode, `success` and `spl` (0 to 1). Time-limit ends are truncations. Rewards are real
        numbers that float32 holds, observations of their space's dtype: what is not ends the run.
        """


class ScenarioFamily(Protocol):
    """What an entry point of `rlbench.scenarios` names; `vizdoom/basic` is family `vizdoom`, variant `basic`."""

    about: str
    variants: tuple[str, ...]
    """Known variants, the default first; `()` if there are none."""

    def unavailable(self) -> str | None:
        """None, or why it cannot run here and the command that would change that, in one line."""

    def make(self, variant: str, workload: str) -> Scenario:
        """Makes the scenario; `variant` is '' for the default. Raises ValueError that lists the known variants."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """All that a system gets on one rank."""

    place: Place
    scenario: Scenario
    device: Device
    seed: int
    budget: Limits
    meter: RankMeter
    folder: str
    """The run's working folder: where processes leave their last words (tracebacks, stacks)."""
    stall_s: float
    """An environment that has not answered for so long is taken for hung: the system raises."""
    python: str = ""
    """The interpreter of the virtual environment that the system's library has, where there is one."""

    def seat(self, index: int, seed: int) -> Seat:
        """The seat of environment `index` of this rank."""
        return Seat(place=self.place, index=index, num_envs=self.scenario.num_envs, seed=seed, device=self.device)

    def env_seed(self, index: int) -> int:
        """The seed of environment `index` of this rank: every system gives it the same."""
        from numpy.random import SeedSequence

        return int(SeedSequence([self.seed, self.place.rank]).generate_state(3 + index)[-1])

    def make_env(self, index: int) -> CountedEnv:
        """Makes environment `index` of this rank, in the process that will step it: this one, or a child of it."""
        from harness.counted import make_counted_env

        return make_counted_env(self.scenario, self.seat(index, self.env_seed(index)), self.folder, self.meter.path)


class System(Protocol):
    """A way to train RL on many GPUs, under test: an entry point. What else it may have is in `harness.traits`."""

    name: str
    about: str

    def run(self, context: Context) -> None:
        """Trains on this rank until the budget is spent. Called once per rank, in a process of its own."""
