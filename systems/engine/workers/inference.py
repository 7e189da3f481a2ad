"""Inference of one rank: reads observations in the rank's table, writes actions, log-probabilities and values there.

The thread that samples calls it, the one that learns (for values alone), and workers that hold the policy; each thread
has its own actor. It blocks on the device. It keeps nothing between calls but, on a GPU, graphs with their memory:
recurrent states are in the table too. K slots in one call.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rlbench.systems.policies.few_rows import MOST_ROWS, FewRows
from rlbench.systems.policies.graphed import Direct, Graphed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    import numpy.typing as npt

    from rlbench.harness.contract.device import Device
    from rlbench.systems.engine.workers.tables import SharedTable
    from rlbench.systems.policies.graphed import Rows
    from rlbench.systems.policies.policy import Policy


class Actor:
    """Acts with a policy; `version` is the number of optimiser steps behind its weights."""

    def __init__(
        self,
        policy: Policy,
        table: SharedTable,
        device: Device,
        generator: torch.Generator,
        *,
        beside_learner: bool = False,
    ) -> None:
        """`beside_learner`: on a GPU, acts on a stream of its own, ahead of what another thread has queued to learn."""
        self.table = table
        self.version = 0
        self.policy = policy
        self._device = device
        self._generator = generator
        on_cpu = device.torch_name == "cpu"
        self._few_rows = FewRows.of(policy) if on_cpu else None
        if self._few_rows is not None:
            self._numpy_generator = np.random.default_rng(int(torch.randint(1 << 62, (), generator=generator)))
        where = device.torch_name
        self.stream = None if on_cpu or not beside_learner else torch.cuda.Stream(where, priority=-1)  # type: ignore[no-untyped-call]
        self._step = Direct(self._compute_step) if on_cpu else Graphed(self._compute_step, where, generator)
        self._value = Direct(self._compute_value) if on_cpu else Graphed(self._compute_value, where)
        self._keys = [column.name[4:] for column in table.columns if column.name.startswith("obs/")]

    def act(self, slots: npt.NDArray[np.int64], nexts: npt.NDArray[np.int64]) -> None:
        """Chooses an action on the observation in each of `slots` [K]; the state after it goes to `nexts` [K]."""
        with self.apart(), self._device.busy("infer", len(slots)):
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
        table = self.table
        table["action"][slots], table["log_prob"][slots], table["value"][slots], table["state"][nexts] = self._step(
            self._inputs(slots)
        )

    def _inputs(self, slots: npt.NDArray[np.int64]) -> dict[str, Rows]:
        names = (*(f"obs/{key}" for key in self._keys), "prev_action", "episode_start", "state")
        return {name: (self.table[name], slots) for name in names}

    def value_final(
        self, envs: npt.NDArray[np.int64], slots: npt.NDArray[np.int64], nexts: npt.NDArray[np.int64]
    ) -> None:
        """Estimates the value of the final observation of episodes of `envs` that the steps in `slots` truncated."""
        table = self.table
        inputs = {f"obs/{key}": (table[f"final/{key}"], envs) for key in self._keys}
        inputs["prev_action"], inputs["state"] = (table["action"], slots), (table["state"], nexts)
        inputs["episode_start"] = np.zeros(1, np.bool_), np.zeros(len(slots), np.int64)
        self._bootstrap(inputs, slots)

    def value_next(self, slots: npt.NDArray[np.int64], nexts: npt.NDArray[np.int64]) -> None:
        """Estimates the value of the observations in `nexts` [K], which follow the steps in `slots` [K]."""
        self._bootstrap(self._inputs(nexts), slots)

    def _bootstrap(self, inputs: dict[str, Rows], into: npt.NDArray[np.int64]) -> None:
        with self.apart(), self._device.busy("infer", len(into)):
            (self.table["bootstrap"][into],) = self._value(inputs)

    def apart(self) -> AbstractContextManager[Any]:
        """What a thread does on the GPU inside, it does on the actor's stream, if it has one."""
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def _compute_step(self, rows: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        return self.policy.act(*self._of_policy(rows), self._generator)

    def _compute_value(self, rows: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        return (self.policy.value(*self._of_policy(rows)),)

    def _of_policy(
        self, rows: Mapping[str, torch.Tensor]
    ) -> tuple[dict[str, torch.Tensor], torch.Tensor, torch.Tensor, torch.Tensor]:
        obs = {key: rows[f"obs/{key}"] for key in self._keys}
        return obs, rows["prev_action"], rows["episode_start"], rows["state"]


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
