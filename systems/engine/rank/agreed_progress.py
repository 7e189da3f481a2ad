"""How far a run is: what each rank knows, summed over the ranks at the end of every iteration, and metered.

The rank's main thread calls this. `Averager.agree` blocks until all ranks have called it, where ranks are in step;
where they are not, it waits for each other rank at most the time limit of a question.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rlbench.harness.contract.budget import Progress
from rlbench.harness.processes.told import Told

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from rlbench.harness.contract.system import Context
    from rlbench.harness.processes.told import StopRequests
    from rlbench.systems.engine.averaging.averager import Averager

EPISODE_METRICS = ("return", "length", "success", "spl")
NUM_RECENT_EPISODES = 100
"""Metrics are means over the last episodes of all ranks, once there are this many. Ranks in step divide the number
among them; where ranks are not in step each keeps this many, since any other may be lost."""


class RunProgress:
    """Agrees with the other ranks on how far the run is. If one rank is told to stop, all ranks stop."""

    def __init__(self, context: Context, averager: Averager, requests: StopRequests, *, all_learn: bool) -> None:
        """Begins at iteration 0; if not all ranks learn, rank 0 alone learns, and sees all episodes."""
        self._context, self._averager = context, averager
        self._iterations = 0
        self.spent = 0.0
        """The part of the budget that was spent by the end of the last iteration, 0 to 1."""
        self._requests = requests
        self._shares_statistics = all_learn
        # Ranks that may lose one another must each have enough episodes.
        num_sharing = context.place.num_ranks if all_learn and averager.is_synchronous else 1
        self._episodes: deque[tuple[float, ...]] = deque(maxlen=-(-NUM_RECENT_EPISODES // num_sharing))
        requests.take()

    def note_episodes(self, episodes: npt.NDArray[np.float32]) -> None:
        """Takes in episodes of this rank that have ended, [K, 4]; the columns are `EPISODE_METRICS`."""
        self._episodes.extend(map(tuple, episodes.tolist()))

    def end_iteration(self, statistics: Mapping[str, float]) -> bool:
        """Agrees, closes the iteration in the meter unless its rollout was broken off; returns whether the run is over.

        Args:
            statistics: figures of this rank's learning, with the same names on all ranks that learn; the time series
                gets their means over the ranks. Empty on a rank that does not learn.
        """
        context, averager = self._context, self._averager
        sender = self._requests.sender
        with context.meter.span("communicate"):
            if averager.is_synchronous and self._shares_statistics:
                context.device.communicate("synchronize")
            progress, means, is_broken_off = self._agree(statistics, is_told=sender is not None)
            if is_broken_off:
                return True
            self.spent = context.budget.spent(progress)
            over = averager.is_over(context.budget.is_spent(progress))
            if sender is not None and not context.budget.is_spent(replace(progress, stop_requested=False)):
                Told(rank=context.place.rank, iteration=self._iterations - 1, sender=sender).leave(Path(context.folder))
        context.meter.end_iteration({**means, **progress.metrics, **averager.statistics()})
        return over

    def break_off(self) -> None:
        """Tells the ranks that did not hear it in the barrier that the rollout of this iteration was broken off."""
        with self._context.meter.span("communicate"):
            if not self._shares_statistics:
                self._agree({}, is_broken_off=True)  # the others wait for the end of the iteration
            self._averager.is_over(own=True)

    def _agree(
        self, statistics: Mapping[str, float], *, is_told: bool = False, is_broken_off: bool = False
    ) -> tuple[Progress, dict[str, float], bool]:
        """Sums what each rank knows: progress, means of `statistics`, whether the rollout was broken off.

        Ranks in step get the same sums.
        """
        place, meter, averager = self._context.place, self._context.meter, self._averager
        self._iterations += 1
        episodes = np.array(self._episodes, dtype=np.float64).reshape(-1, len(EPISODE_METRICS))
        known = np.isfinite(episodes)
        elapsed_s = meter.elapsed_s
        lasting = [meter.num_learned, is_told]
        own = [
            *lasting,
            1.0,
            elapsed_s if place.rank == 0 else 0.0,
            is_broken_off,
            *known.sum(0),
            *np.where(known, episodes, 0.0).sum(0),
        ]
        shared = statistics if self._shares_statistics else {}
        total = averager.agree(np.array([*own, *shared.values()], dtype=np.float64), len(lasting)).tolist()
        learned, stop, num_ranks, seconds, broken_off = total[:5]
        counts, sums, of_statistics = np.split(np.array(total[5:]), (len(EPISODE_METRICS), 2 * len(EPISODE_METRICS)))
        metrics = {
            name: float(amount / count)
            for name, amount, count in zip(EPISODE_METRICS, sums, counts, strict=True)
            if count >= NUM_RECENT_EPISODES
        }
        progress = Progress(
            iterations=self._iterations,
            env_steps=int(learned),
            # Ranks that are not in step go by their own clocks: a rank that is gone must not stop time.
            seconds=seconds if averager.is_synchronous else elapsed_s,
            stop_requested=stop > 0,
            metrics=metrics,
        )
        means = {name: amount / num_ranks for name, amount in zip(shared, of_statistics.tolist(), strict=True)}
        return progress, {**statistics, **means}, broken_off > 0
