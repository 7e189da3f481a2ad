"""What a system gets, what a scenario is, and the loop that they form.

The loop of one rank (`harness/rank.py` makes the context, the system does the rest):

    place = Place.from_environment()            # RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT
    context = Context(place, scenario, device, seed, budget, meter, ...)
    system.run(context)                         # on every rank of the run, in a process of its own:

        start environment workers; every environment is `context.make_env(i)`, which counts what happens in it
        until context.budget.is_spent(progress), decided alike on all ranks:
            collect a rollout                   # meter.span("infer"), meter.span("simulate")
            wait for the other ranks            # meter.span("wait:straggler")
            learn, average                      # meter.span("learn"), meter.span("communicate")
            meter.learned(...), meter.reused(...), meter.discarded(...), meter.end_iteration(...)
        meter.in_flight(samples that were collected, and neither learned nor discarded)
        end the environment workers; return

A system must: keep collected = learned + discarded + in flight, to the sample; take its place from `Place` alone;
leave no process and no shared memory when it returns or raises; raise when one of its processes dies.
A system may raise at any time: the run ends as failed, with the traceback and the rank's number.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from harness.settings import LearnSettings

if TYPE_CHECKING:
    import gymnasium

    from harness.meter import RankMeter

Work = Literal["render", "infer", "prepare", "learn"]
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
        return cls(
            rank=int(os.environ["RANK"]),
            num_ranks=int(os.environ["WORLD_SIZE"]),
            local_rank=int(os.environ["LOCAL_RANK"]),
        )


class Device(Protocol):
    """What a rank owns one of: a GPU, an emulated GPU, or its share of the CPU."""

    @property
    def torch_name(self) -> str:
        """Where tensors live: `cpu` or `cuda:k`."""

    def busy(self, work: Work, num_items: int) -> AbstractContextManager[None]:
        """Wraps work; ends when the device has done it (CUDA: synchronised; emulated: its time is over)."""

    def synchronize_ranks(self) -> None:
        """Takes the time that one synchronisation of all ranks costs (emulated GPUs only)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Seat:
    """The place of one environment in a run."""

    rank: int
    num_ranks: int
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
        return self.rank * self.num_envs + self.index


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuCosts:
    """What an emulated GPU takes for a scenario's work; times in seconds."""

    render_s: float = 0.0
    """Per env step, first come first served with inference."""
    infer_fixed_s: float = 0.0
    """Per inference batch."""
    infer_item_s: float = 0.0
    """Per item of an inference batch."""
    prepare_s: float = 0.0
    """Per learning phase, beside its mini-batches: returns, advantages, arranging the batches."""
    learn_item_s: float = 0.0
    """Per sample of a mini-batch."""
    render_while_learning_factor: float = 1.0
    """Rendering and inference take this many times as long while learning runs on the same GPU."""
    learn_while_rendering_factor: float = 1.0
    """Learning takes this many times as long while the GPU renders or infers."""
    synchronize_s: float = 0.0
    """Per iteration, as soon as there is more than one rank."""


class Scenario(Protocol):
    """The work of one cell. A frozen dataclass: `--scenario name:field=value` sets a field."""

    name: str
    workload: str
    num_envs: int
    """Environments of one rank."""
    rollout_steps: int
    """T: steps of each environment in one rollout."""
    policy: str
    """One of `small`, `conv`, `resnet` (systems/learn)."""
    learn: LearnSettings
    gpu_costs: GpuCosts
    preload: tuple[str, ...]
    """Modules that an environment worker needs; imported once per rank, before the workers are forked."""

    @property
    def observation_space(self) -> gymnasium.spaces.Dict:
        """Box entries only. `pixels`: uint8 [C, H, W]; `depth`: float32 [1, H, W], metres; vectors: float32 [K]."""

    @property
    def num_actions(self) -> int:
        """Actions are 0 .. num_actions - 1."""

    def make_env(self, seat: Seat) -> gymnasium.Env[dict[str, Any], int]:
        """Makes one environment, in the process that will step it.

        `info` of `step` may hold `num_frames` (simulator frames of this env step, else 1) and, at the end of
        an episode, `success` (0 or 1) and `spl` (0 to 1). Time-limit ends are truncations.
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
class Progress:
    """How far a run is, summed or averaged over all ranks; every rank computes the same."""

    iterations: int = 0
    env_steps: int = 0
    seconds: float = 0.0
    stop_requested: bool = False
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Means over the last finished episodes: `return`, `length`, `success`, `spl`; absent before the first episode."""


class Budget(Protocol):
    """When a run is over."""

    def is_spent(self, progress: Progress) -> bool:
        """True when the run should end after this iteration."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """All that a system gets on one rank."""

    place: Place
    scenario: Scenario
    device: Device
    seed: int
    budget: Budget
    meter: RankMeter
    folder: str
    """The run's working folder: where processes leave their last words (tracebacks, stacks)."""
    stall_s: float
    """An environment that has not answered for so long is taken for hung: the system raises."""

    def seat(self, index: int, seed: int) -> Seat:
        """The seat of environment `index` of this rank."""
        return Seat(
            rank=self.place.rank,
            num_ranks=self.place.num_ranks,
            index=index,
            num_envs=self.scenario.num_envs,
            seed=seed,
            device=self.device,
        )


class System(Protocol):
    """A way to train RL on many GPUs, under test. An entry point of the group `rlbench.systems` names one."""

    name: str
    about: str

    def run(self, context: Context) -> None:
        """Trains on this rank until the budget is spent. Called once per rank, in a process of its own."""
