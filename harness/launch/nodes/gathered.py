"""Reads what the head of a run on several machines has gathered, for the record: clocks, samples, the nodes.

The files of the ranks of all nodes are in the run's folder as if one machine had made them, except that their times are
on each node's own clock. For a run on this machine alone there is nothing to gather, and no time to shift.
"""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlbench.harness.launch.nodes.clocks import Shift
from rlbench.harness.launch.nodes.launches import LAUNCH_FILE
from rlbench.harness.machine.telemetry.readings import Readings
from rlbench.harness.metering.live import STARTING_NODES, Snapshot
from rlbench.results.reading.untrusted import read_json
from rlbench.results.records import schema

if TYPE_CHECKING:
    from collections.abc import Mapping

NODES_FILE = "nodes.json"
"""What the head has learned of the nodes."""
TELEMETRY = "telemetry-node{}.json"
LIVE_FILE = "live.json"
LIVE_BYTES = 65536
LIVE_TYPES = {"phase": str, "iterations": int, "learned": int, "env_steps": int, "joint_steps": int}
"""Types of the fields in `LIVE_FILE`, which are those of a `Snapshot`."""
FILES = (NODES_FILE, LAUNCH_FILE, LIVE_FILE, f".{LIVE_FILE}")
"""Files that are of no use once the record is made."""


def _nodes(folder: Path) -> list[dict[str, Any]]:
    path = folder / NODES_FILE
    nodes: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return nodes


def _shift(node: Mapping[str, Any]) -> Shift:
    return Shift(**node["clock"]) if node["clock"] else Shift()


def read_clocks(folder: Path) -> Mapping[int, Shift]:
    """By rank: the conversion from its clock to the one that all times of the run are on."""
    shifts: dict[int, Shift] = defaultdict(Shift)
    for node in _nodes(folder):
        shifts |= dict.fromkeys(range(node["first_rank"], node["first_rank"] + node["num_ranks"]), _shift(node))
    return shifts


def read_telemetry(folder: Path) -> Readings:
    """The samples of all nodes, together."""
    found = []
    for number, node in enumerate(_nodes(folder)):
        with suppress(OSError, ValueError):  # a node that was lost has left none
            told = json.loads((folder / TELEMETRY.format(number)).read_text(encoding="utf-8"))
            rows = [{**row, "t": _shift(node).at(row["t"])} for row in told["rows"]]
            found.append(Readings(rows, told["num_gpus"], told["problem"]))
            continue
        found.append(Readings([], 0, f"node {number} ({node['host']}) has left no samples"))
    return Readings.joined(found) if found else Readings([], 0, "no node has left samples")


def describe(folder: Path) -> list[schema.NodeRecord]:
    """The nodes, as `run.json` holds them."""
    return [
        schema.NodeRecord(
            host=node["host"],
            first_rank=node["first_rank"],
            num_ranks=node["num_ranks"],
            clock_error_s=_shift(node).error_s if node["clock"] else None,
            machine=node["machine"],
            lost=node["lost"],
        )
        for node in _nodes(folder)
    ]


class LiveNodes:
    """How far a run on several machines is."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LIVE_FILE
        self._last = Snapshot(phase=STARTING_NODES, iterations=0, learned=0, env_steps=0)

    def lose(self, rank: int) -> bool:  # noqa: ARG002  torchrun never goes on without a rank
        """Never called: such a run ends when it loses its first rank."""
        return False

    def close(self) -> None:
        """Does nothing, since it holds nothing open."""

    def read(self) -> Snapshot:
        """What the head said last. Raises ValueError for a file that no head has written."""
        if self._path.exists():
            told = read_json(self._path, LIVE_BYTES)  # bounded: a harness that waits for Slurm reads anybody's runs
            if not isinstance(told, dict) or {name: type(value) for name, value in told.items()} != LIVE_TYPES:
                raise ValueError(f"{LIVE_FILE}: is not what a head has left")
            self._last = Snapshot(**told)
        return self._last
