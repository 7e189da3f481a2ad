"""Inference of one rank: reads observations in the rank's table, writes actions, log-probabilities and values there.

The thread that samples calls it, the one that learns (for values alone), and workers that hold the policy; each thread
has its own actor. It blocks on the device. It keeps nothing between calls: recurrent states are in the table too. K
slots in one call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from rlbench.systems.policies.few_rows import MOST_ROWS, FewRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from rlbench.harness.contract.device import Device
    from rlbench.systems.engine.workers.tables import SharedTable
    from rlbench.systems.policies.policy import Policy


class Actor:
    """Acts with a policy; `version` is the number of optimiser steps behind its weights."""

    def __init__(self, policy: Policy, table: SharedTable, device: Device, generator: torch.Generator) -> None:
        self.table = table
        self.version = 0
        self.policy = policy
        self._device = device
        self._generator = generator
        self._on_cpu = device.torch_name == "cpu"
        self._few_rows = FewRows.of(policy) if self._on_cpu else None
        if self._few_rows is not None:
            self._numpy_generator = np.random.default_rng(int(torch.randint(1 << 62, (), generator=generator)))
        self._keys = [column.name[4:] for column in table.columns if column.name.startswith("obs/")]

    # Rows are read and written by numpy: with few of them, torch's indexing takes five times as long.

    def _read(self, column: str, rows: npt.NDArray[np.int64]) -> torch.Tensor:
        read = torch.from_numpy(self.table[column][rows])
        return read if self._on_cpu else read.to(self._device.torch_name)

    def _write(self, column: str, rows: npt.NDArray[np.int64], written: torch.Tensor) -> None:
        self.table[column][rows] = (written if self._on_cpu else written.cpu()).numpy()

    def act(self, slots: npt.NDArray[np.int64], nexts: npt.NDArray[np.int64]) -> None:
        """Chooses an action on the observation in each of `slots` [K]; the state after it goes to `nexts` [K]."""
        with self._device.busy("infer", len(slots)):
            if self._few_rows is not None and len(slots) <= MOST_ROWS:
                self._act_on_few(self._few_rows, slots, nexts)
            else:
                self._act_on_many(slots, nexts)
        self.table["version"][slots] = self.version

    def _act_on_few(self, policy: FewRows, slots: npt.NDArray[np.int64], nexts: npt.NDArray[np.int64]) -> None:
        table = self.table
        table["action"][slots], table["log_prob"][slots], table["value"][slots], table["state"][nexts] = policy.act(
            {key: table[f"obs/{key}"][slots] for key in self._keys},
            table["prev_action"][slots],
            table["episode_start"][slots],
            table["state"][slots],
            self._numpy_generator,
        )

    def _act_on_many(self, slots: npt.NDArray[np.int64], nexts: npt.NDArray[np.int64]) -> None:
        actions, log_probs, values, state = self.policy.act(
            {key: self._read(f"obs/{key}", slots) for key in self._keys},
            self._read("prev_action", slots),
            self._read("episode_start", slots),
            self._read("state", slots),
            self._generator,
        )
        self._write("state", nexts, state)
        self._write("action", slots, actions)
        self._write("log_prob", slots, log_probs)
        self._write("value", slots, values)

    def value_final(
        self, envs: npt.NDArray[np.int64], slots: npt.NDArray[np.int64], nexts: npt.NDArray[np.int64]
    ) -> None:
        """Estimates the value of the final observation of episodes of `envs` that the steps in `slots` truncated."""
        obs = {key: self._read(f"final/{key}", envs) for key in self._keys}
        self._bootstrap(obs, self._read("action", slots), torch.zeros(len(slots), dtype=torch.bool), nexts, slots)

    def value_next(self, slots: npt.NDArray[np.int64], nexts: npt.NDArray[np.int64]) -> None:
        """Estimates the value of the observations in `nexts` [K], which follow the steps in `slots` [K]."""
        obs = {key: self._read(f"obs/{key}", nexts) for key in self._keys}
        self._bootstrap(obs, self._read("prev_action", nexts), self._read("episode_start", nexts), nexts, slots)

    def _bootstrap(
        self,
        obs: dict[str, torch.Tensor],
        previous: torch.Tensor,
        starts: torch.Tensor,
        states_at: npt.NDArray[np.int64],
        into: npt.NDArray[np.int64],
    ) -> None:
        with self._device.busy("infer", len(into)):
            states = self._read("state", states_at)
            self._write("bootstrap", into, self.policy.value(obs, previous, starts.to(states.device), states))


def close_runs(
    runs: Sequence[npt.NDArray[np.int64]],
    follow: npt.NDArray[np.int64],
    acted: npt.NDArray[np.bool_],
    actor: Actor,
    *,
    afresh: bool = False,
) -> None:
    """Gives the last step of each run the value of the observation that follows, unless its episode ended there.

    Args:
        runs: slots, none empty.
        follow: [slots], where the observation that follows a step is.
        acted: [slots], whether an action was chosen there: then its value is known.
        actor: estimates the values that are not known, in one inference.
        afresh: estimate all of them, as V-trace needs, whose values are the learner's and not those of who acted.
    """
    table = actor.table
    last = np.array([run[-1] for run in runs])
    last = last[~(table["truncated"][last] | table["terminated"][last])]
    known = acted[follow[last]] & (not afresh)
    table["bootstrap"][last[known]] = table["value"][follow[last[known]]]
    if not known.all():
        actor.value_next(last[~known], follow[last[~known]])
