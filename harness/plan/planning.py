"""Turns a request into cells: seeds x scenarios x workloads x GPU counts x systems, in that order."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

from rlbench.harness.devices.kinds import check_gpus
from rlbench.harness.plan.cells import MOST_PROCESSES, Cell, Hasher
from rlbench.harness.plan.overrides import split_scenario
from rlbench.harness.plan.system_list import CannotRun, parse_systems, split_list
from rlbench.harness.processes.raised import told_in_a_line

if TYPE_CHECKING:
    from rlbench.harness.plan.request import Request

MOST_CELLS = 100_000
"""Largest number of cells in one sweep."""
LARGEST_SEED = 2**32 - 1


def parse_counts(text: str, flag: str, least: int, most: int) -> list[int]:
    """`1,8` -> [1, 8]; `1..4` -> [1, 2, 3, 4]; duplicates are dropped. Raises ValueError with the rule."""
    counts: list[int] = []
    for part in text.split(","):
        first, dots, last = part.strip().partition("..")
        try:
            begin = int(first)
            end = int(last) if dots else begin
        except ValueError:
            raise ValueError(f"{flag} {text or repr(text)}: must be whole numbers such as 1,8 or 1..4") from None
        if not least <= begin <= end <= most:
            rule = "a range must ascend" if begin > end else f"must be from {least} to {most}"
            raise ValueError(f"{flag} {text}: {rule}")
        if len(counts) + end - begin >= MOST_CELLS:
            raise ValueError(f"{flag} {text}: must be at most {MOST_CELLS:,} numbers")
        counts += range(begin, end + 1)
    return list(dict.fromkeys(counts))


def parse_gpus(text: str) -> list[int]:
    """GPU counts, in ascending order. Raises ValueError with the rule."""
    return sorted(parse_counts(text, "--gpus", 1, MOST_PROCESSES))


def parse_seeds(text: str) -> list[int]:
    """Seeds. Raises ValueError with the rule."""
    return parse_counts(text, "--seeds", 0, LARGEST_SEED)


def plan(request: Request) -> list[Cell]:
    """The cells that can run; see `plan_with_skipped`."""
    return plan_with_skipped(request)[0]


def plan_with_skipped(request: Request, check: Callable[[Cell], None] = lambda _: None) -> tuple[list[Cell], list[str]]:
    """The cells, and a line for each system of `all` that cannot run on one of the scenarios.

    Cells are interleaved over systems, so that a slow spell of the machine does not hit one system alone. Raises
    ValueError for the first thing that is unknown, impossible or missing. `check` may raise ValueError too, and
    CannotRun for a cell that its system cannot do.
    """
    systems = parse_systems(request.systems)
    scenarios = [split_scenario(text, "--scenario") for text in split_list(request.scenarios, "--scenario")]
    workloads = split_list(request.workloads, "--workload")
    gpus = parse_gpus(request.gpus)
    if not request.elsewhere:
        check_gpus(request.device, max(gpus), oversubscribe=request.oversubscribe)
    seeds = parse_seeds(request.seeds)
    num_cells = len(seeds) * len(scenarios) * len(workloads) * len(gpus) * len(systems)
    if num_cells > MOST_CELLS:
        raise ValueError(f"{num_cells:,} cells: a sweep has at most {MOST_CELLS:,}; ask for fewer seeds or systems")
    order = itertools.product(seeds, scenarios, workloads, gpus, systems)
    hasher, unique = Hasher(), dict[str, Cell]()
    skipped: dict[str, None] = {}
    for seed, (scenario, scenario_settings), workload, count, system in order:
        cell = Cell(
            system=system.name,
            system_settings=system.settings,
            scenario=scenario,
            scenario_settings=scenario_settings,
            workload=workload,
            gpus=count,
            seed=seed,
            device=request.device,
            protocol=request.protocol,
            scaling=request.scaling,
            limits=request.limits,
            stall_s=request.stall_s,
            time_limit_s=request.time_limit_s,
            memory_limit_bytes=request.memory_limit_bytes,
            system_file=system.file,
        )
        try:
            with told_in_a_line(cell.label):  # a property of a scenario may raise anything
                name = hasher.of(cell)
                check(cell)
            unique.setdefault(name, cell)
        except CannotRun as error:
            if not system.is_optional:
                raise
            skipped[_skip_line(cell, str(error))] = None
    if not unique:
        raise ValueError(f"--systems {request.systems}: none can run; {next(iter(skipped))}")
    return list(unique.values()), list(skipped)


def _skip_line(cell: Cell, why: str) -> str:
    known = (f"{cell.system} on {cell.scenario}: ", f"system {cell.system}: ", f"{cell.system}:")
    for prefix in known:
        why = why.removeprefix(prefix)
    return f"skipped {cell.system} on {cell.scenario}: {why}"
