"""Whether one profile can be made of several runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlbench.results.fairness.aspects import gpus_of, part, usable_cores
from rlbench.results.reading.untrusted import visible

if TYPE_CHECKING:
    from rlbench.results.records.schema import RunRecord
    from rlbench.results.records.store import StoredRun

OTHERWISE_ALIKE = frozenset({"num_envs", "rollout_steps", "learn", "vector", "batch", "envs_per_batch", "recv"})
"""Fields of a scenario in which runs may differ that one profile is made of."""
ALONE = "none"
"""The way in which environments are stepped that are in no batches."""
ONE_WAY = "the batches of a profile must be stepped in one way"


def check_alike(run: StoredRun, another: StoredRun) -> None:
    """Raises ValueError unless another run has the same environments, on the same kind of machine."""
    first, second = run.record, another.record
    for what, one, two in (
        ("of", first.cell.scenario, second.cell.scenario),
        ("of the workload", first.cell.workload, second.cell.workload),
        ("on the device", first.cell.device, second.cell.device),
        ("on", _hardware(first), _hardware(second)),
    ):
        if one != two:
            said = visible(f"the run is {what} {two}, the first one {what} {one}: both must be alike")
            raise ValueError(f"{another.path}: {said}")
    one, two = (part(record, "scenario") for record in (first, second))
    if isinstance(one, dict) and isinstance(two, dict):
        ways = [str(each.get("vector", ALONE)) for each in (two, one)]
        if ALONE not in ways and ways[0] != ways[1]:
            said = visible(f"the run has vector={ways[0]}, another one {ways[1]}: {ONE_WAY}")
            raise ValueError(f"{another.path}: {said}")
        for name in sorted((one.keys() | two.keys()) - OTHERWISE_ALIKE):
            if one.get(name) != two.get(name):
                said = visible(f"the run has another scenario.{name} than the first: both must be alike")
                raise ValueError(f"{another.path}: {said}")


def _hardware(record: RunRecord) -> str:
    """What a rank's work ran on; cores count where it has no GPU, since more of them learn faster."""
    cell, cores = record.cell, usable_cores(record)
    names = [gpu.get("name") for gpu in gpus_of(record)] if cell.device == "cuda" else []
    told = [*dict.fromkeys(str(name) for name in names), str(record.machine.get("cpu_model"))]
    if cell.device == "cpu" and cores:
        told.append(f"{cores / cell.gpus:g} core(s) for each rank")
    return ", ".join(told)
