"""How actions meet environments: `Lockstep`, one inference for all environments, then one step of all.

The collector writes actions and reads observations in the rank's table; it blocks for inference (on the device) and
for the slowest environment of each step (in `WorkerPool.wait`, which raises when a worker dies or stalls).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from harness.meter import RankMeter
    from systems.engine.actor import Actor
    from systems.engine.pool import WorkerPool
    from systems.engine.preempt import Monitor
    from systems.engine.rollout import FixedRollout


@dataclass(frozen=True, kw_only=True, slots=True)
class Lockstep:
    """The policy for the whole batch, then all environments step (VER section 1, Fig. 1; Sample Factory section 2)."""

    def collect(
        self, rollout: FixedRollout, actor: Actor, pool: WorkerPool, monitor: Monitor, meter: RankMeter
    ) -> None:
        """Fills the rollout, or stops early when the monitor says so."""
        envs = rollout.envs
        while not rollout.is_full and not monitor.should_stop(int(rollout.taken[0])):
            slots = rollout.slots(envs)
            with meter.span("infer"):
                actor.act(envs, slots)
            with meter.span("simulate"):
                pool.send(envs, slots, rollout.advance(envs))
                pool.wait(len(envs))
            cut = np.flatnonzero(actor.table["truncated"][slots])
            if len(cut):
                with meter.span("infer"):
                    actor.value_final(envs[cut], slots[cut])
