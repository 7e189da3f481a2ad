"""`Dynamic` collecting: inference for whoever waits, as soon as the device is free (VER section 2.1).

It blocks for inference (on the device), and for a reply when nobody waits for an action (in `WorkerPool.receive`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from systems.engine.rollouts.sampler import Sampler


def choose_batch(
    ready: npt.NDArray[np.int64], num_in_flight: int, least: int, most: int, turn: int
) -> npt.NDArray[np.int64]:
    """The environments of the next inference: all that wait, between a minimum and a maximum (VER section 2.1).

    Args:
        ready: environments that wait for an action, ascending.
        num_in_flight: environments that will wait later.
        least: with fewer ready, inference waits for more, unless nobody is left to wait for.
        most: so many at once; 0 is no limit.
        turn: where the choice begins when there are more than `most`, so that each gets its turn.

    Returns:
        Environments [K], in the order of their turns; none if inference should wait.
    """
    if len(ready) < least and num_in_flight:
        return ready[:0]
    if not most or len(ready) <= most:
        return ready
    first = int(np.searchsorted(ready, turn))
    return np.roll(ready, -first)[:most]


def check_bounds(least: int, most: int, where: str = "collect") -> None:
    """Raises ValueError unless the bounds of a batch are some."""
    if least < 1:
        raise ValueError(f"{where}.min_batch={least}: must be at least 1")
    if most and most < least:
        raise ValueError(
            f"{where}.max_batch={most}: must be at least min_batch={least}, or 0 for all; nearest: max_batch={least}"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Dynamic:
    """Inference takes all outstanding requests; an action goes back the moment it exists (VER section 2.1)."""

    min_batch: int = 1
    """Inference waits until so many environments wait for an action."""
    max_batch: int = 0
    """Inference takes so many at once; 0 takes all."""

    def __post_init__(self) -> None:
        """Checks the fields."""
        check_bounds(self.min_batch, self.max_batch)

    def check(self, num_envs: int) -> str | None:
        """There must be as many environments as the smallest batch."""
        if self.min_batch > num_envs:
            rule = f"must be at most num_envs={num_envs}; nearest: min_batch={num_envs}"
            return f"collect.min_batch={self.min_batch}: {rule}"
        return None

    def envs_per_worker(self, num_envs: int, num_cores: int) -> int:  # noqa: ARG002  it depends on neither
        """A worker each."""
        return 1

    def collect(self, sampler: Sampler) -> None:
        """Fills the rollout, or stops early when the sampler says so; then some environments are still stepping."""
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
