"""Published figures of the same work as some cells, to show beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlbench.results import published
from rlbench.results.summary.document import CellSummary, Reference

TASKS = {"pointnav": "emulated/pointnav-hm3d", "objectnav": "emulated/objectnav-mp3d"}
TABLE1 = "emulated/open-fridge"


def references(cells: Sequence[CellSummary]) -> list[Reference]:
    """Published figures of the scenarios, workloads and systems of some cells; each figure once."""
    ours = {(_plain(cell.scenario), cell.workload, cell.system) for cell in cells}
    return [each for each in _all() if (each.scenario, each.workload, each.system) in ours]


def _plain(scenario: str) -> str:
    """The scenario without `time_scale`, if that is its only setting: it is the same work."""
    name, *settings = scenario.split(":")
    return name if all(setting.startswith("time_scale=") for setting in settings) else scenario


def _all() -> Iterator[Reference]:
    for row in published.read("ver_table1"):
        yield _reference(TABLE1, row, row["mean_sps"], "ver_table1")
    for row in published.read("ver_navigation"):
        yield _reference(TASKS[row["task"]], row, row["sps"], "ver_navigation")


def _reference(scenario: str, row: dict[str, str], steps_per_s: str, table: str) -> Reference:
    return Reference(
        scenario=scenario,
        workload="homogeneous",
        gpus=int(row["gpus"]),
        system=row["system"],
        steps_per_s=float(steps_per_s),
        source=published.source(table),
    )
