"""`rlbench doctor --network`: how long messages take between the nodes of a launch, in the form that profiles use.

It runs a system that trains nothing (`systems/network`) like any other, and fits what the run leaves to the formula of
emulated GPUs and predictions (`harness.contract.network_costs`).
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

from rlbench.harness.contract.budget import Limits
from rlbench.harness.contract.network_costs import NetworkCosts
from rlbench.harness.live.display import Display
from rlbench.harness.live.footer import progress_console
from rlbench.harness.machine import machine
from rlbench.harness.plan.cells import Cell
from rlbench.harness.plan.request import EMULATED_SCENARIO
from rlbench.harness.run.runner import Interrupted, Interrupts, Runner
from rlbench.harness.run.sweep import Sweep
from rlbench.harness.run.sweep_folder import SweepFolder
from rlbench.results.reading.outputs import write_output

if TYPE_CHECKING:
    from rich.console import Console

    from rlbench.harness.devices.kinds import DeviceKind
    from rlbench.harness.launch.nodes.launches import Launch

SYSTEM, FILE = "network", "network.json"
TIME_LIMIT_S = 600.0
LEAST_FITTED_BYTES = 64 * 1024
"""Smallest all-reduce in the fit: gradients are larger. Libraries send a few numbers in other ways, and those are
`synchronize_ms`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedLink:
    """The link between two ranks with which the formula comes closest to what was measured."""

    latency_s: float
    bytes_per_s: float
    worst_factor: float
    """Factor by which the formula is off at the size where it is worst; 1 where it is exact."""


def fit(rows: Sequence[Mapping[str, float]], num_ranks: int) -> FittedLink:
    """The link that explains the all-reduces best, by least squares of the logarithms of their times.

    Args:
        rows: one per size, with `bytes` and `seconds`, from the smallest to the largest.
        num_ranks: number of ranks that took part.
    """
    from scipy.optimize import least_squares

    def errors(logs: Sequence[float]) -> list[float]:
        latency_s, bytes_per_s = math.exp(logs[0]), math.exp(logs[1])
        return [
            math.log(
                NetworkCosts(latency_s=latency_s, bytes_per_s=bytes_per_s, weights_bytes=row["bytes"]).all_reduce_s(
                    num_ranks
                )
                / row["seconds"]
            )
            for row in rows
        ]

    least, largest = rows[0], rows[-1]
    begin = [math.log(least["seconds"] / (2 * num_ranks)), math.log(2 * largest["bytes"] / largest["seconds"])]
    found = least_squares(errors, begin)
    latency_s, bytes_per_s = (math.exp(value) for value in found.x)
    worst = math.exp(max(map(abs, errors(found.x))))
    return FittedLink(latency_s=latency_s, bytes_per_s=bytes_per_s, worst_factor=worst)


def print_network(launch: Launch, gpus: int, device: DeviceKind, out: Path | None, console: Console) -> int:
    """Measures between the nodes, prints what was found and writes it to `out`; returns the exit code.

    Raises ValueError when a node cannot be reached or had an error.
    """
    if gpus < 2:
        raise ValueError(f"--gpus {gpus}: must be at least 2: one rank has nobody to talk to")
    launch.num_nodes(gpus)
    found = _run(launch, gpus, device)
    rows = [row for row in found["all_reduce"] if row["bytes"] >= LEAST_FITTED_BYTES]
    link = fit(rows, gpus)
    # At the end of an iteration, ranks agree on a few numbers.
    agree_ms = 1e3 * statistics.median(row["seconds"] for row in found["all_reduce"] if 64 <= row["bytes"] <= 1024)
    nodes = launch.num_nodes(gpus)
    console.print(Text(f"{gpus} ranks on {nodes} node{'s' * (nodes > 1)}: {', '.join(launch.hosts[:nodes])}"))
    console.print(_table(found))
    console.print(
        Text(
            f"all-reduces are as over links of {1e3 * link.latency_s:.4g} ms and "
            f"{link.bytes_per_s / 1e6:.4g} MB/s between ranks; by a factor {link.worst_factor:.2f} at most"
        )
    )
    console.print(Text("seconds: medians as rank 0 saw them; point to point: rank 0 and the last rank, one way"))
    table = (
        f"# Measured by `rlbench doctor --network`: {gpus} ranks on {nodes} nodes.\n"
        f"[network]\nsynchronize_ms = {agree_ms:.6g}\n"
        f"latency_ms = {1e3 * link.latency_s:.6g}\nbandwidth_mb_per_s = {link.bytes_per_s / 1e6:.6g}\n"
    )
    console.print()
    if out is None:
        console.print(Text(f"in a profile, so that `rlbench predict` speaks about this network:\n\n{table}"), end="")
        return 0
    measured = "".join(map(_as_toml, ("all_reduce", "point_to_point"), (found["all_reduce"], found["point_to_point"])))
    try:
        write_output(out, [table + measured])
    except OSError as error:
        raise ValueError(f"--out {out}: cannot be written: {error.strerror}") from None
    console.print(Text(f"written: {out}"))
    return 0


def _as_toml(kind: str, rows: Sequence[Mapping[str, float]]) -> str:
    return "".join(
        f"\n[[{kind}]]\nbytes = {row['bytes']:.0f}\n"
        f"median_ms = {1e3 * row['seconds']:.6g}\nleast_ms = {1e3 * row['least_s']:.6g}\n"
        for row in rows
    )


def _run(launch: Launch, gpus: int, device: DeviceKind) -> dict[str, Any]:
    cell = Cell(
        system=SYSTEM,
        system_settings={},
        scenario=EMULATED_SCENARIO,  # a cell must have one; the run makes no environment of it
        scenario_settings={},
        workload="homogeneous",
        gpus=gpus,
        seed=0,
        device=device,
        protocol="ddppo",
        limits=Limits(iterations=1),
        stall_s=TIME_LIMIT_S,
        time_limit_s=TIME_LIMIT_S,
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        Display(progress_console(), 1) as display,
        Interrupts() as interrupts,
        SweepFolder(sweep := Sweep.create(Path(folder), [cell], sys.argv, launch), display.say) as sweep_folder,
    ):
        runner = Runner(
            sweep=sweep,
            display=display,
            command=sys.argv,
            about_machine={},
            interrupts=interrupts,
            sweep_folder=sweep_folder,
            launch=launch,
        )
        display.say(f"{machine.now():%H:%M:%S} measuring between {gpus} ranks; this takes about a minute")
        display.begin(1, cell)
        try:
            record = runner.run(cell)
        except Interrupted:
            raise KeyboardInterrupt from None
        path = sweep.folder / record.id / FILE
        if not path.exists():
            raise ValueError(f"doctor --network: {record.reason}")
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _table(found: Mapping[str, Sequence[Mapping[str, float]]]) -> Table:
    table = Table(box=box.ASCII2, show_edge=False)
    for name in ("bytes", "all-reduce, ms", "MB/s", "point to point, ms", "MB/s"):
        table.add_column(name, justify="right")
    ways = {row["bytes"]: row["seconds"] for row in found["point_to_point"]}
    for row in found["all_reduce"]:
        size, seconds, way = row["bytes"], row["seconds"], ways.get(row["bytes"])
        shown = ("n/a", "n/a") if way is None else (f"{1e3 * way:.3f}", f"{size / way / 1e6:,.1f}")
        table.add_row(f"{size:,.0f}", f"{1e3 * seconds:.3f}", f"{size / seconds / 1e6:,.1f}", *shown)
    return table
