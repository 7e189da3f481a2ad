"""From how a run ended to its record, whatever goes wrong on the way.

`preface` notes everything that is known before the run begins, so a profile or folder that is gone by its end changes
nothing. A run that cannot be measured or recorded does not end the sweep: it is recorded as failed, with the reason,
and its folder gets the traceback. This module raises OSError only where nothing can be written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rlbench.harness.contract.agents import agents_per_env
from rlbench.harness.contract.traits import Traits
from rlbench.harness.launch.nodes import gathered
from rlbench.harness.machine import machine
from rlbench.harness.plan.libraries import packages_of
from rlbench.harness.processes import raised, remarks
from rlbench.harness.run.learned_from import parts_of
from rlbench.harness.run.record import ReducedRun, cell_record, measure
from rlbench.harness.run.sweep_folder import NO_ROOM
from rlbench.results.records import schema
from rlbench.results.records.recordable import recordable
from rlbench.results.summary.findings import CORE_WAIT_SHARE

if TYPE_CHECKING:
    from rlbench.harness.contract.scenario import Scenario
    from rlbench.harness.contract.system import System
    from rlbench.harness.machine.telemetry import Readings
    from rlbench.harness.plan.cells import Cell
    from rlbench.harness.processes.outcome import Outcome

BUSY_CPU_SHARE = 0.85
"""Share of the cores' time; a run of emulated GPUs that keeps them busier than this measures the machine too."""
TRACEBACK_FILE = "traceback.txt"
T = TypeVar("T")
REMOVED = "its folder, or files in it, were removed while it ran: what its processes had closed by then is lost"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """A run that is over."""

    cell: Cell
    system: System
    scenario: Scenario
    outcome: Outcome
    telemetry: Readings
    began_s: float
    """When its processes were started, on the clock of `time.perf_counter`."""
    duration_s: float
    warnings: Sequence[str] = ()
    """Warnings of the runner."""


def preface(
    name: str,
    sweep: str,
    cell: Cell,
    command: Sequence[str],
    about_machine: dict[str, Any],
    sweep_file: schema.SweepFileRecord | None = None,
) -> dict[str, Any]:
    """The fields of the record that do not depend on the run; for a cell that no longer loads, those still known.

    Call it before the run: a file that the cell names may be gone afterwards.
    """
    bare = schema.CellRecord(
        **{field: getattr(cell, field) for field in ("system", "scenario", "workload", "gpus", "seed", "protocol")},
        scaling=cell.scaling,
        device=cell.device,
        settings=cell.system_settings | {f"scenario.{key}": text for key, text in cell.scenario_settings.items()},
        hash="",
    )
    nothing: dict[str, Any] = {}
    unknown: dict[str, str] = {}
    return {
        "id": name,
        "sweep": sweep,
        "cell": _or_else(lambda: cell_record(cell), bare),
        "configuration": _or_else(cell.configuration, nothing),
        "packages": _or_else(lambda: packages_of(cell.load()[0]), unknown),
        "machine": about_machine,
        "commit": machine.commit(Path()),
        "command": list(command),
        "sweep_file": sweep_file,
        "started_at": machine.now().isoformat(),
    }


def _or_else(make: Callable[[], T], otherwise: T) -> T:
    try:
        return make()
    except Exception:  # noqa: BLE001  whatever a plug-in raises; the run's reason says what
        return otherwise


def failed(known: dict[str, Any], reason: str, duration_s: float = 0.0) -> schema.RunRecord:
    """The record of a run that left nothing to measure."""
    return recordable({**known, "status": "failed", "reason": reason, "duration_s": duration_s})


def record_run(known: dict[str, Any], folder: Path, ended: Ended) -> schema.RunRecord:
    """Makes the record of the run in `folder`, and writes its series there; `known` is its preface.

    Raises OSError where nothing can be written.
    """
    try:
        return _measured(known, folder, ended)
    except Exception as problem:
        if isinstance(problem, OSError) and problem.errno in NO_ROOM:
            raise
        status, reason = ended.outcome.status, ended.outcome.reason
        how = "it ended well" if status == "finished" else f"it ended as {status}: {reason}"
        text = "\n".join(filter(None, [ended.outcome.traceback, raised.whole(problem)]))
        with suppress(FileNotFoundError):  # the folder may be gone, which is then the problem
            (folder / TRACEBACK_FILE).write_text(text, encoding="utf-8", errors="backslashreplace")
        return failed(known, f"{raised.in_a_line(problem)}, while its record was made; {how}", ended.duration_s)


def _measured(known: dict[str, Any], folder: Path, ended: Ended) -> schema.RunRecord:
    cell, outcome, telemetry = ended.cell, ended.outcome, ended.telemetry
    time_scale = getattr(ended.scenario, "time_scale", 1.0)
    nodes = gathered.describe(folder)
    lost = [one.rank for one in outcome.lost]
    parts, about_parts = parts_of(ended.scenario, cell)
    measured = measure(
        folder, cell, time_scale, telemetry, Traits.of(ended.system), lost, parts, agents_per_env(ended.scenario)
    )
    status, reason = outcome.status, outcome.reason
    if status == "finished" and measured.problem:
        status, reason = "invalid", measured.problem
    if outcome.traceback:
        (folder / TRACEBACK_FILE).write_text(outcome.traceback, encoding="utf-8", errors="backslashreplace")
    return recordable(
        {
            **known,
            "status": status,
            "reason": reason,
            "counters": measured.counters,
            "figures": measured.figures,
            "learned_from": measured.learned_from,
            "machine": nodes[0].machine if nodes else known["machine"],
            "nodes": nodes,
            "duration_s": ended.duration_s,
            **(_around_iterations(ended, *measured.iterations_s) if measured.iterations_s and not nodes else {}),
            "warnings": [
                *ended.warnings,
                *_lost(outcome, measured),
                *remarks.read(folder),
                *about_parts,
                *_warnings(cell, measured.figures, telemetry),
            ],
        }
    )


def _around_iterations(ended: Ended, first_s: float, last_s: float) -> dict[str, float]:
    return {"starting_s": first_s - ended.began_s, "ending_s": ended.began_s + ended.duration_s - last_s}


def _lost(outcome: Outcome, measured: ReducedRun) -> list[str]:
    """One line for each rank that the run lost and went on without."""
    return [
        f"{lost}; {measured.lost_samples[lost.rank]:,} {measured.counters.unit} that it had collected and not learned "
        "count as discarded"
        for lost in outcome.lost
    ]


def _warnings(cell: Cell, figures: schema.Figures, telemetry: Readings) -> list[str]:
    warnings = []
    cores = len(os.sched_getaffinity(0))
    busy, waited = figures.cpu_percent.value, figures.core_wait.value
    said = []
    if busy is not None and busy > 100 * cores * BUSY_CPU_SHARE:
        said.append(f"the {cores} {'core was' if cores == 1 else 'cores were'} {busy / cores:.0f} % busy")
    if waited is not None and waited > CORE_WAIT_SHARE:
        a_core = "the core" if cores == 1 else f"one of {cores} cores"
        said.append(f"ranks waited for {a_core} for {100 * waited:.0f} % of their time")
    if cell.device == "emulated" and said:
        warnings.append(f"{' and '.join(said)}: figures of emulated GPUs are too low; raise --time-scale")
    if cell.device == "cuda" and telemetry.problem:
        warnings.append(telemetry.problem)
    return warnings
