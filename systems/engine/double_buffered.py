"""`DoubleBuffered` collecting: while one half of a worker's environments steps, the other half is acted for.

Sample Factory section 3.2 and Fig. 2. A worker steps its k environments one after the other; they form two groups, and
a group is acted for when all of it waits. It blocks for inference (on the device), and for a reply when no group is
whole (in `WorkerPool.receive`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from systems.engine.dynamic import check_bounds, choose_batch
from systems.engine.workers.worker import Priority

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from systems.engine.rollouts.sampler import Sampler


def group_of(num_envs: int, envs_per_worker: int) -> npt.NDArray[np.int64]:
    """The group of each environment, [N]: worker w has groups 2w and 2w + 1, of half its environments each."""
    worker, place = np.divmod(np.arange(num_envs), envs_per_worker)
    return 2 * worker + (place >= envs_per_worker // 2)


def groups_of(parts: Sequence[tuple[int, int]]) -> npt.NDArray[np.int64]:
    """The group of each environment, [N], where machines have so many environments, so many of them in a worker."""
    groups: list[npt.NDArray[np.int64]] = []
    num_groups = 0
    for num_envs, envs_per_worker in parts:
        groups.append(num_groups + group_of(num_envs, envs_per_worker))
        num_groups += 2 * num_envs // envs_per_worker
    return np.concatenate(groups)


def whole_groups(
    ready: npt.NDArray[np.int64], in_flight: npt.NDArray[np.bool_], groups: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Those of `ready` [K] whose group has nobody in flight.

    Args:
        ready: environments that wait for an action.
        in_flight: [N], environments that step, or wait in their worker for their turn to.
        groups: [N], as `group_of` gives them.
    """
    is_stepping = np.zeros(len(groups), dtype=np.bool_)
    is_stepping[groups[in_flight]] = True
    return ready[~is_stepping[groups[ready]]]


def fewest_per_worker(num_envs: int, num_cores: int) -> int:
    """The smallest even number of environments a worker such that there are at most as many workers as cores.

    Sample Factory appendix A.3: as many rollout workers as cores. Falls back to the largest even divisor.
    """
    even = [k for k in range(2, num_envs + 1, 2) if num_envs % k == 0]
    return next((k for k in even if num_envs // k <= num_cores), even[-1])


@dataclass(frozen=True, kw_only=True, slots=True)
class DoubleBuffered:
    """Two groups of environments in each worker, acted for in turn (Sample Factory section 3.2)."""

    num_envs_per_worker: int = 0
    """k, even; best when k / 2 > ceil(inference time / step time). 0: at most as many workers as cores."""
    niceness: int = 0
    """Added to the workers' nice value (Sample Factory appendix B); emulated environments sleep, and keep theirs."""
    pin: bool = False
    """Whether each worker stays on one core (Sample Factory appendix B); emulated ones never do."""
    min_batch: int = 1
    """Inference waits until so many environments, in whole groups, wait for an action."""
    max_batch: int = 0
    """Inference takes so many at once; 0 takes all."""

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
        """How workers stand with the scheduler."""
        return Priority(niceness=self.niceness, pinned=self.pin)

    def check(self, num_envs: int) -> str | None:
        """The number of environments must be even, and workers alike."""
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

    def envs_per_worker(self, num_envs: int, num_cores: int) -> int:
        """K, as set or found."""
        return self.num_envs_per_worker or fewest_per_worker(num_envs, num_cores)

    def collect(self, sampler: Sampler) -> None:
        """Fills the rollout, or stops early when the sampler says so."""
        groups = groups_of(sampler.pool.parts)
        turn = 0
        sampler.receive(0)
        while not sampler.is_over:
            whole = whole_groups(sampler.ready, sampler.rollout.in_flight, groups)
            envs = choose_batch(whole, sampler.num_in_flight, self.min_batch, self.max_batch, turn)
            if len(envs):
                sampler.act(envs)
                turn = int(envs[-1]) + 1
                sampler.receive(0)
            else:
                sampler.receive(1)
