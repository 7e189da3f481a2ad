"""How actions meet environments: in lockstep, dynamically, double-buffered, or on the side of the actors.

A collector blocks in `act`, on the device, and in `receive`, for replies; the sampler of a rank
(`systems/engine/rollouts/sampler.py`) says what frees it.

    Lockstep         one inference for all environments, then one step of all
    Dynamic          inference for all environments that wait, as soon as the device is free (VER section 2.1)
    DoubleBuffered   while one half of a worker's environments steps, the other half is acted for (Sample Factory
                     section 3.2 and Fig. 2): a worker steps its k environments one after the other; they form two
                     groups, and inference acts for a group when all of it waits
    ActorSide        the policy acts in the environment workers, which send whole trajectories (Espeholt et al. 2018,
                     section 3; Sample Factory sections 2 and 4): the rank infers nothing, and only says which slots of
                     the table a trajectory fills
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from rlbench.harness.contract.settings import GpuCosts

MOST_PLAYED = 1020
"""Most steps that a worker of `ActorSide` takes by itself before it is asked again."""


class Sampling(Protocol):
    """The environments of one rank, as a collector sees them; N environments."""

    @property
    def parts(self) -> Sequence[tuple[int, int]]:
        """For each machine, its number of environments and how many of them one worker steps."""

    @property
    def in_flight(self) -> npt.NDArray[np.bool_]:
        """Whether an environment has an action that it has not answered yet, [N]."""

    @property
    def num_in_flight(self) -> int:
        """Number of environments that have an action to apply."""

    @property
    def ready(self) -> npt.NDArray[np.int64]:
        """The environments that wait for an action and may have one, ascending."""

    @property
    def is_over(self) -> bool:
        """Whether to stop collecting now."""

    def act(self, envs: npt.NDArray[np.int64]) -> None:
        """Chooses the actions of `envs` [K] in one inference, and sends them."""

    def play(self, env: int) -> None:
        """Lets environment `env`, whose worker holds the policy, take as many steps as it may."""

    def receive(self, least: int) -> None:
        """Blocks until `least` environments have replied, or something wakes it; handles all replies."""

    def drain(self) -> None:
        """Blocks until no action is in flight."""


class Collector(Protocol):
    """How actions meet environments, as a field of a system's spec."""

    def check(self, num_envs: int) -> str | None:
        """None if it can serve `num_envs` environments; else why not, with a setting that would do."""

    def envs_per_worker(self, num_envs: int, num_cores: int, of_batch: int = 1) -> int:
        """Number of environments that one worker steps, in batches one after the other; divides `num_envs`."""

    def collect(self, sampler: Sampling) -> None:
        """Fills the rollout, or stops early when `sampler.is_over`."""


class _OneEach:
    """What collectors share whose workers have one environment each."""

    __slots__ = ()

    def check(self, num_envs: int) -> str | None:  # noqa: ARG002  any number will do
        """Any number of environments will do."""
        return None

    def envs_per_worker(self, num_envs: int, num_cores: int, of_batch: int = 1) -> int:  # noqa: ARG002  on neither
        """One batch: each has its own worker."""
        return of_batch


@dataclass(frozen=True, kw_only=True, slots=True)
class Lockstep(_OneEach):
    """One inference for the whole batch, then all environments step (VER section 1, Fig. 1; Sample Factory sec. 2)."""

    def collect(self, sampler: Sampling) -> None:
        """Fills the rollout, or stops early when the sampler says so."""
        sampler.drain()  # another collector, or a stopped one, may have left actions in flight
        while not sampler.is_over:
            envs = sampler.ready
            if len(envs):
                sampler.act(envs)
            sampler.receive(max(len(envs), 1))
            sampler.drain()  # a wake-up may have cut the wait short


def choose_batch(
    ready: npt.NDArray[np.int64], num_in_flight: int, least: int, most: int, turn: int
) -> npt.NDArray[np.int64]:
    """The environments of the next inference: all that wait, within a minimum and a maximum (VER section 2.1).

    Args:
        ready: environments that wait for an action, ascending.
        num_in_flight: number of environments that will wait later.
        least: with fewer ready, inference waits for more, unless none is in flight.
        most: largest batch; 0 is no limit.
        turn: the environment at which the choice begins when more than `most` are ready, so that each gets its turn.

    Returns:
        Environments [K], in the order of their turns; empty if inference should wait.
    """
    if len(ready) < least and num_in_flight:
        return ready[:0]
    if not most or len(ready) <= most:
        return ready
    first = int(np.searchsorted(ready, turn))
    return np.roll(ready, -first)[:most]


def check_bounds(least: int, most: int, where: str = "collect") -> None:
    """Raises ValueError unless `least` is at least 1, and `most` is 0 or at least `least`."""
    if least < 1:
        raise ValueError(f"{where}.min_batch={least}: must be at least 1")
    if most and most < least:
        raise ValueError(
            f"{where}.max_batch={most}: must be at least min_batch={least}, or 0 for all; nearest: max_batch={least}"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Dynamic(_OneEach):
    """Inference takes all outstanding requests; an action goes back the moment it exists (VER section 2.1)."""

    min_batch: int = 1
    """Inference waits until this many environments wait for an action, or none is in flight."""
    max_batch: int = 0
    """Most environments in one inference; 0 takes all."""

    def __post_init__(self) -> None:
        """Checks the fields."""
        check_bounds(self.min_batch, self.max_batch)

    def check(self, num_envs: int) -> str | None:
        """There must be at least `min_batch` environments."""
        if self.min_batch > num_envs:
            rule = f"must be at most num_envs={num_envs}; nearest: min_batch={num_envs}"
            return f"collect.min_batch={self.min_batch}: {rule}"
        return None

    def collect(self, sampler: Sampling) -> None:
        """Fills the rollout, or stops early when the sampler says so; environments may still be stepping then."""
        turn = 0
        sampler.receive(0)  # replies that came while the rank learned
        while not sampler.is_over:
            envs = choose_batch(sampler.ready, sampler.num_in_flight, self.min_batch, self.max_batch, turn)
            if len(envs):
                sampler.act(envs)
                turn = int(envs[-1]) + 1
                sampler.receive(0)
            else:
                sampler.receive(1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Priority:
    """CPU priority and affinity of the workers (Sample Factory appendix B)."""

    niceness: int
    """Added to their nice value, so that the rank, which acts for all of them, goes first."""
    pinned: bool
    """Whether worker k stays on core k, modulo the number of cores."""

    def take(self, number: int) -> None:
        """Applies both to this process, worker `number` of the machine."""
        os.nice(self.niceness)
        if self.pinned:
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, {cores[number % len(cores)]})


def group_of(num_envs: int, envs_per_worker: int) -> npt.NDArray[np.int64]:
    """The group of each environment, [N]: worker w has groups 2w and 2w + 1, each half of its environments."""
    worker, place = np.divmod(np.arange(num_envs), envs_per_worker)
    return 2 * worker + (place >= envs_per_worker // 2)


def groups_of(parts: Sequence[tuple[int, int]]) -> npt.NDArray[np.int64]:
    """The group of each environment, [N]; `parts` has (environments, environments per worker) of each machine."""
    groups: list[npt.NDArray[np.int64]] = []
    num_groups = 0
    for num_envs, envs_per_worker in parts:
        groups.append(num_groups + group_of(num_envs, envs_per_worker))
        num_groups += 2 * num_envs // envs_per_worker
    return np.concatenate(groups)


def whole_groups(
    ready: npt.NDArray[np.int64], in_flight: npt.NDArray[np.bool_], groups: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Those of `ready` [K] whose group has no environment in flight.

    Args:
        ready: environments that wait for an action.
        in_flight: [N], whether an environment steps, or waits in its worker for its turn.
        groups: [N], as `group_of` gives them.
    """
    is_stepping = np.zeros(len(groups), dtype=np.bool_)
    is_stepping[groups[in_flight]] = True
    return ready[~is_stepping[groups[ready]]]


def fewest_per_worker(num_envs: int, num_cores: int) -> int:
    """The smallest even number of environments per worker, dividing `num_envs`, with at most one worker per core.

    Sample Factory appendix A.3 uses as many rollout workers as cores. Falls back to the largest even divisor.
    """
    even = [k for k in range(2, num_envs + 1, 2) if num_envs % k == 0]
    return next((k for k in even if num_envs // k <= num_cores), even[-1])


def emulated_cores(costs: GpuCosts, num_envs: int, num_envs_of_rank: int) -> int:
    """Cores for the workers of `num_envs` environments, perhaps of several ranks; one for each if `costs` has none."""
    return costs.cores * num_envs // num_envs_of_rank or num_envs


@dataclass(frozen=True, kw_only=True, slots=True)
class DoubleBuffered:
    """Each worker has two groups of environments, and inference acts for them in turn (Sample Factory section 3.2)."""

    num_envs_per_worker: int = 0
    """k, even; best when k / 2 > ceil(inference time / step time). 0 finds k: at most as many workers as cores."""
    niceness: int = 0
    """Added to the workers' nice value (Sample Factory appendix B); emulated environments sleep, and keep theirs."""
    pin: bool = False
    """Whether each worker stays on one core (Sample Factory appendix B); emulated ones never do."""
    min_batch: int = 1
    """Inference waits until this many environments, in whole groups, wait for an action, or none is in flight."""
    max_batch: int = 0
    """Most environments in one inference; 0 takes all."""

    def __post_init__(self) -> None:
        """Checks the fields."""
        k = self.num_envs_per_worker
        if k < 0 or k % 2:
            raise ValueError(
                f"collect.num_envs_per_worker={k}: must be even, for two groups, or 0; nearest: {max(2, k + 1)}"
            )
        if not 0 <= self.niceness <= 19:
            raise ValueError(f"collect.niceness={self.niceness}: must be from 0 to 19")
        check_bounds(self.min_batch, self.max_batch)

    @property
    def priority(self) -> Priority:
        """CPU priority and affinity of the workers."""
        return Priority(niceness=self.niceness, pinned=self.pin)

    def check(self, num_envs: int) -> str | None:
        """`num_envs` must be even, a multiple of k if k is set, and at least twice `min_batch`."""
        k = self.num_envs_per_worker
        if num_envs % 2:
            return (
                f"num_envs={num_envs}: must be even, since double buffering steps two groups in turn; "
                f"nearest: num_envs={num_envs + 1}, or collect=dynamic"
            )
        if k and num_envs % k:
            nearest = fewest_per_worker(num_envs, num_envs // min(k, num_envs))
            return (
                f"collect.num_envs_per_worker={k}: must divide num_envs={num_envs}; "
                f"nearest: num_envs_per_worker={nearest}"
            )
        if self.min_batch > num_envs // 2:
            return (
                f"collect.min_batch={self.min_batch}: must be at most half of num_envs={num_envs}, since the other "
                f"half is stepping; nearest: min_batch={num_envs // 2}"
            )
        return None

    def envs_per_worker(self, num_envs: int, num_cores: int, of_batch: int = 1) -> int:
        """The setting, or what `fewest_per_worker` finds."""
        return self.num_envs_per_worker or of_batch * fewest_per_worker(num_envs // of_batch, num_cores)

    def collect(self, sampler: Sampling) -> None:
        """Fills the rollout, or stops early when the sampler says so."""
        groups = groups_of(sampler.parts)
        turn = 0
        sampler.receive(0)
        while not sampler.is_over:
            whole = whole_groups(sampler.ready, sampler.in_flight, groups)
            envs = choose_batch(whole, sampler.num_in_flight, self.min_batch, self.max_batch, turn)
            if len(envs):
                sampler.act(envs)
                turn = int(envs[-1]) + 1
                sampler.receive(0)
            else:
                sampler.receive(1)


@dataclass(frozen=True, kw_only=True, slots=True)
class ActorSide(_OneEach):
    """Each environment worker has a copy of the policy, on the CPU, which it updates before each trajectory."""

    def collect(self, sampler: Sampling) -> None:
        """Fills the rollout with trajectories."""
        sampler.receive(0)
        while not sampler.is_over:
            for env in sampler.ready.tolist():
                sampler.play(env)
            sampler.receive(1)
