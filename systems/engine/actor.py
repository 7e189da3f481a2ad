"""Inference of one rank: reads observations in the rank's table, writes actions, log-probabilities and values there.

Called by the thread that samples, and by the one that learns for values alone (an actor each); blocks for the device.
It keeps nothing between calls: recurrent states are in the table too. K slots in one call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from harness.contract import Device
    from systems.engine.tables import Table
    from systems.learn.policy import Policy


class Actor:
    """Acts with a policy; `version` is the number of optimiser steps behind its weights."""

    def __init__(self, policy: Policy, table: Table, device: Device, generator: torch.Generator) -> None:
        self.table = table
        self.version = 0
        self.policy = policy
        self._device = device
        self._generator = generator
        # The same memory as the table's, seen as tensors.
        self._columns = {column.name: torch.from_numpy(table[column.name]) for column in table.columns}
        self._keys = [column.name[4:] for column in table.columns if column.name.startswith("obs/")]

    def _read(self, column: str, rows: torch.Tensor) -> torch.Tensor:
        return self._columns[column][rows].to(self._device.torch_name)

    def act(self, slots: npt.NDArray[np.int64], nexts: npt.NDArray[np.int64]) -> None:
        """Chooses an action on the observation in each of `slots` [K]; the state after it goes to `nexts` [K]."""
        columns, rows = self._columns, torch.from_numpy(slots)
        with self._device.busy("infer", len(slots)):
            actions, log_probs, values, state = self.policy.act(
                {key: self._read(f"obs/{key}", rows) for key in self._keys},
                self._read("prev_action", rows),
                self._read("state", rows),
                self._generator,
            )
            columns["state"][torch.from_numpy(nexts)] = state.cpu()
            columns["action"][rows] = actions.cpu()
            columns["log_prob"][rows] = log_probs.cpu()
            columns["value"][rows] = values.cpu()
        columns["version"][rows] = self.version

    def value_final(
        self, envs: npt.NDArray[np.int64], slots: npt.NDArray[np.int64], nexts: npt.NDArray[np.int64]
    ) -> None:
        """Estimates the value of the final observation of episodes of `envs` that the steps in `slots` truncated."""
        rows = torch.from_numpy(slots)
        obs = {key: self._read(f"final/{key}", torch.from_numpy(envs)) for key in self._keys}
        self._bootstrap(obs, self._read("action", rows), torch.from_numpy(nexts), rows)

    def value_next(self, slots: npt.NDArray[np.int64], nexts: npt.NDArray[np.int64]) -> None:
        """Estimates the value of the observations in `nexts` [K], which follow the steps in `slots` [K]."""
        rows = torch.from_numpy(nexts)
        obs = {key: self._read(f"obs/{key}", rows) for key in self._keys}
        self._bootstrap(obs, self._read("prev_action", rows), rows, torch.from_numpy(slots))

    def _bootstrap(
        self, obs: dict[str, torch.Tensor], previous: torch.Tensor, states_at: torch.Tensor, into: torch.Tensor
    ) -> None:
        with self._device.busy("infer", len(into)):
            values = self.policy.value(obs, previous, self._read("state", states_at))
            self._columns["bootstrap"][into] = values.cpu()


def close_runs(
    runs: Sequence[npt.NDArray[np.int64]],
    follow: npt.NDArray[np.int64],
    acted: npt.NDArray[np.bool_],
    actor: Actor,
) -> None:
    """Gives the last step of each run the value of the observation that follows, unless its episode ended there.

    Args:
        runs: slots, none empty.
        follow: [slots], where the observation that follows a step is.
        acted: [slots], whether an action was chosen there: its value is known then.
        actor: estimates the others, in one inference.
    """
    table = actor.table
    last = np.array([run[-1] for run in runs])
    last = last[~(table["truncated"][last] | table["terminated"][last])]
    known = acted[follow[last]]
    table["bootstrap"][last[known]] = table["value"][follow[last[known]]]
    if not known.all():
        actor.value_next(last[~known], follow[last[~known]])
