"""A run whose learner writes down what it learns from, and its weights at every version.

`run_recorded` runs one rank of a cell in a process of its own, with `RecordingLearner` in the place of the engine's;
`Recorded` reads what it left. Imports no torch at the top: environment workers may come through here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.plan import Cell
from tests.systems.engine.cells import leave_cell, run_here
from tests.systems.engine.ranks import Run, run_ranks

if TYPE_CHECKING:
    import numpy.typing as npt

SAMPLES_FILE, WEIGHTS_FILE = "samples.npz", "weights.pt"


def record(folder: Path) -> None:
    """Runs this rank of the cell in `folder`."""
    import torch

    from systems.engine.learner import Learner
    from systems.engine.means import Means
    from systems.engine.rollout import Experience
    from systems.engine.tables import Table

    samples: list[dict[str, npt.NDArray[Any]]] = []
    weights: list[dict[str, torch.Tensor]] = []

    class RecordingLearner(Learner):
        def learn(self, table: Table, experience: Experience) -> dict[str, float]:
            if not weights:
                self._note_weights()
            fresh = experience.fresh_runs
            slots = np.concatenate(fresh)
            envs = experience.envs[experience.num_stale_runs :]
            names = [column.name for column in table.columns if not column.name.startswith("final/")]
            noted = {name: table[name][slots] for name in names}
            noted["env"] = np.repeat(envs, [len(run) for run in fresh])
            noted["learned_at"] = np.full(len(slots), self.version)
            samples.append(noted)
            return super().learn(table, experience)

        def _after_step(self) -> None:
            super()._after_step()
            self._note_weights()

        def _note_weights(self) -> None:
            weights.append({name: weight.clone() for name, weight in self._policy.state_dict().items()})

    run_here(folder, Means(learner=RecordingLearner))
    if samples:
        np.savez(folder / SAMPLES_FILE, **{name: np.concatenate([s[name] for s in samples]) for name in samples[0]})
        torch.save(weights, folder / WEIGHTS_FILE)


@dataclass(frozen=True, slots=True)
class Recorded(Run):
    """What the learner of a rank has noted, beside what every run leaves."""

    def samples(self) -> dict[str, npt.NDArray[Any]]:
        """All samples in the order in which they were learned first, [S, ...] by column of the rank's table.

        Beside them `env` and `learned_at`, the learner's version when it began to learn from the sample.
        """
        with np.load(self.folder / SAMPLES_FILE) as file:
            return dict(file)

    def weights_by_version(self) -> list[dict[str, Any]]:
        """The learner's weights at version 0, 1, ..."""
        import torch

        weights: list[dict[str, Any]] = torch.load(self.folder / WEIGHTS_FILE)
        return weights


def run_recorded(folder: Path, cell: Cell, per_machine: int = 0) -> Recorded:
    """Runs the ranks of a cell in a new folder; their learners write down what they do. One rank that learns.

    `per_machine`: as of `run_ranks`.
    """
    leave_cell(folder, cell)
    run_ranks(record, cell.gpus, folder, per_machine)
    return Recorded(folder)
