"""Learning of one rank: PPO over a rollout in the rank's table.

Called by the rank loop, in the rank's process; blocks for the device, and in `average` for the other ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from harness.meter import LagSummary
from systems.learn.batch import Batch, make_batch
from systems.learn.ppo import make_optimizer, mean_stats, update
from systems.learn.sequences import pack, split_by_env

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from harness.contract import Device
    from harness.meter import RankMeter
    from harness.settings import LearnSettings
    from systems.engine.rollout import FixedRollout
    from systems.engine.tables import Table
    from systems.learn.policy import Policy


class Learner:
    """Owns the optimiser; `version` counts its steps."""

    def __init__(
        self,
        policy: Policy,
        settings: LearnSettings,
        device: Device,
        meter: RankMeter,
        average: Callable[[Iterable[torch.nn.Parameter]], None],
        generator: torch.Generator,
    ) -> None:
        self.version = 0
        self._policy, self._settings, self._device, self._meter = policy, settings, device, meter
        self._average = average
        self._generator = generator
        self._optimizer = make_optimizer(policy, settings)

    def learn(self, table: Table, rollout: FixedRollout) -> dict[str, float]:
        """All epochs over the rollout; returns the means of the losses and their kin, by name."""
        samples, settings = rollout.num_samples, self._settings
        runs = rollout.runs()
        behind = self.version - table["version"][np.concatenate(runs)]
        with self._device.busy("prepare", samples):
            batch = self._batch(table, rollout)
        stats = []
        for epoch in range(settings.epochs):
            for group in split_by_env(batch.sequences, settings.num_minibatches, self._generator):
                packed = pack(group)
                with self._device.busy("learn", len(packed.index)):
                    stats.append(update(self._policy, self._optimizer, batch, packed, settings, self._average))
                self.version += 1
            if epoch == 0:
                self._meter.learned(samples, LagSummary(total=int(behind.sum()), largest=int(behind.max())))
            else:
                self._meter.reused(samples)
        return mean_stats(stats)

    def _batch(self, table: Table, rollout: FixedRollout) -> Batch:
        """The rollout's rows on the device. Its slots are one block from row 0, so sample i is slot i."""
        size, name = rollout.num_samples, self._device.torch_name

        def column(key: str) -> torch.Tensor:
            return torch.from_numpy(table[key][:size]).to(name)

        keys = [column.name for column in table.columns if column.name.startswith("obs/")]
        return make_batch(
            runs=rollout.runs(),
            states=torch.from_numpy(table["start_state"]).to(name),
            obs={key.removeprefix("obs/"): column(key) for key in keys},
            actions=column("action"),
            prev_actions=column("prev_action"),
            log_probs=column("log_prob"),
            values=column("value"),
            rewards=column("reward"),
            terminated=column("terminated"),
            truncated=column("truncated"),
            bootstrap=column("bootstrap"),
            settings=self._settings,
        )
