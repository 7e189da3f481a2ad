"""A run whose learner writes down what it learns from, and its weights at every version.

`record_in_turn` runs cells one after the other, with `RecordingLearner` in the place of the engine's; `Recorded` reads
what each left. Imports no torch at the top: environment workers may come through here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlbench.harness.plan.cells import Cell
from tests.systems.engine.cells import run_here, run_in_turn
from tests.systems.engine.ranks import Run

if TYPE_CHECKING:
    import numpy.typing as npt

SAMPLES_FILE, WEIGHTS_FILE = "samples-rank{}.npz", "weights-rank{}.pt"


def record(folder: Path) -> None:
    """Runs this rank of the cell in `folder`."""
    import torch

    from rlbench.systems.engine.rank.learner import Learner
    from rlbench.systems.engine.rank.means import Means
    from rlbench.systems.engine.rollouts.rollout import Experience
    from rlbench.systems.engine.workers.tables import SharedTable

    samples: list[dict[str, npt.NDArray[Any]]] = []
    weights: list[dict[str, torch.Tensor]] = []

    class RecordingLearner(Learner):
        def learn(self, table: SharedTable, experience: Experience) -> dict[str, float]:
            if not weights:
                self._note_weights()
            fresh = experience.fresh_runs
            slots = np.concatenate(fresh)
            envs = experience.envs[experience.num_stale_runs :]
            names = [column.name for column in table.columns if not column.name.startswith(("final/", "batch/"))]
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
        rank = os.environ["RANK"]
        np.savez(
            folder / SAMPLES_FILE.format(rank),
            **{name: np.concatenate([s[name] for s in samples]) for name in samples[0]},
        )
        torch.save(weights, folder / WEIGHTS_FILE.format(rank))


@dataclass(frozen=True, slots=True)
class Recorded(Run):
    """What the learners have noted, beside what every run leaves."""

    def samples(self, rank: int = 0) -> dict[str, npt.NDArray[Any]]:
        """All samples of a rank in the order in which they were learned first, [S, ...] by column of the rank's table.

        Beside them `env` and `learned_at`, the learner's version when it began to learn from the sample.
        """
        with np.load(self.folder / SAMPLES_FILE.format(rank)) as file:
            return dict(file)

    def weights_by_version(self, rank: int = 0) -> list[dict[str, Any]]:
        """The weights of a rank's learner at version 0, 1, ..."""
        import torch

        weights: list[dict[str, Any]] = torch.load(self.folder / WEIGHTS_FILE.format(rank))
        return weights


def record_in_turn(
    folder: Path, cells: Mapping[str, Cell], num_ranks: int = 1, per_machine: Mapping[str, int] | None = None
) -> dict[str, Recorded]:
    """As `run_in_turn`; learners write down what they do."""
    runs = run_in_turn(folder, cells, num_ranks, record, per_machine)
    return {name: Recorded(run.folder) for name, run in runs.items()}


def record_alone(
    folder: Path, cells: Mapping[str, Cell], num_ranks: int = 1, per_machine: Mapping[str, int] | None = None
) -> dict[str, Recorded]:
    """As `record_in_turn`, each cell in processes of its own.

    Where numbers lie in memory may change their last bit: what is to be equal to the bit is to begin alike.
    """
    recorded: dict[str, Recorded] = {}
    for number, (name, cell) in enumerate(cells.items()):
        (folder / f"alone{number}").mkdir()
        recorded |= record_in_turn(folder / f"alone{number}", {name: cell}, num_ranks, per_machine)
    return recorded
