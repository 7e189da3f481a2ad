"""Inference of one rank: reads observations in the rank's table, writes actions, log-probabilities and values there.

Called by the collector alone, in the rank's process; blocks for the device. N environments, K of them in one call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    import numpy.typing as npt

    from harness.contract import Device
    from systems.engine.tables import Table
    from systems.learn.policy import Policy


class Actor:
    """Acts with the policy that the learner trains; `version` is the number of optimiser steps behind its weights."""

    def __init__(self, policy: Policy, table: Table, device: Device, generator: torch.Generator, num_envs: int) -> None:
        self.table = table
        self.version = 0
        self._policy = policy
        self._device = device
        self._generator = generator
        self._state = policy.initial_state(num_envs)  # [N, D]
        # The same memory as the table's, seen as tensors.
        self._columns = {column.name: torch.from_numpy(table[column.name]) for column in table.columns}
        self._keys = [column.name[4:] for column in table.columns if column.name.startswith("obs/")]

    def begin_rollout(self) -> None:
        """Keeps the recurrent states at the start of the rollout, where back-propagation through time will begin."""
        self._columns["start_state"].copy_(self._state)

    def _read(self, prefix: str, rows: torch.Tensor) -> dict[str, torch.Tensor]:
        return {key: self._columns[prefix + key][rows].to(self._device.torch_name) for key in self._keys}

    def act(self, envs: npt.NDArray[np.int64], slots: npt.NDArray[np.int64]) -> None:
        """Chooses the action of each of `envs` [K] on the observation in its slot [K]."""
        columns, rows, who = self._columns, torch.from_numpy(slots), torch.from_numpy(envs)
        with self._device.busy("infer", len(envs)):
            previous = columns["prev_action"][rows].to(self._device.torch_name)
            actions, log_probs, values, state = self._policy.act(
                self._read("obs/", rows), previous, self._state[who], self._generator
            )
            self._state[who] = state
            columns["action"][rows] = actions.cpu()
            columns["log_prob"][rows] = log_probs.cpu()
            columns["value"][rows] = values.cpu()
        columns["version"][rows] = self.version

    def value_final(self, envs: npt.NDArray[np.int64], slots: npt.NDArray[np.int64]) -> None:
        """Estimates the value of the final observation of episodes that were truncated by the steps in `slots` [K]."""
        columns, rows = self._columns, torch.from_numpy(slots)
        self._bootstrap("final/", torch.from_numpy(envs), rows, columns["action"][rows], rows)

    def value_next(
        self, envs: npt.NDArray[np.int64], slots: npt.NDArray[np.int64], last: npt.NDArray[np.int64]
    ) -> None:
        """Estimates the value of the observation at which each environment stands, for its `last` step; all are [K].

        Truncated last steps keep the value of their final observation.
        """
        running = ~(self.table["truncated"][last] | self.table["terminated"][last])
        if running.any():
            rows = torch.from_numpy(slots[running])
            who, into = torch.from_numpy(envs[running]), torch.from_numpy(last[running])
            self._bootstrap("obs/", who, rows, self._columns["prev_action"][rows], into, read_rows=rows)

    def _bootstrap(
        self,
        prefix: str,
        who: torch.Tensor,
        slots: torch.Tensor,
        previous: torch.Tensor,
        into: torch.Tensor,
        read_rows: torch.Tensor | None = None,
    ) -> None:
        rows = who if read_rows is None else read_rows
        with self._device.busy("infer", len(slots)):
            values = self._policy.value(
                self._read(prefix, rows), previous.to(self._device.torch_name), self._state[who]
            )
            self._columns["bootstrap"][into] = values.cpu()
