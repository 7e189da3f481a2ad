"""Brings a profile to give the rate of the run that it is of, by the time that nothing measures.

Spans and CPU times do not hold all that an env step costs: caches that are cold after a switch to another process, a
process that waits for a core while another core is idle. What is left is counted as scheduling, `cpu.schedule_ms`: per
env step, of the rank's process. So the profile's run is no evidence for the model; runs of other systems are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rlbench.harness.commands.profile import Entry
from rlbench.harness.predicting.points import Length, Planned, RatePoint
from rlbench.reports.figures import format as fmt

if TYPE_CHECKING:
    from pathlib import Path

    from rlbench.harness.commands.profile.making import MeasuredProfile
    from rlbench.results.records.store import StoredRun

TABLE, KEY = "cpu", "schedule_ms"
SECONDS, NUM_SEEDS = 40.0, 2
"""Length of each prediction, of the profile, and how many."""
MOST_GPUS = 256
"""Runs on more are not predicted: that would take minutes, and a record of somebody else may state any number."""
MOST_TIMES = 100.0
"""The time per env step is looked for up to so many times the measured time of an env step."""
MOST_MS = 1e6
"""The most that a profile may state."""


def brought_to_its_rate(measured: MeasuredProfile, run: StoredRun, path: Path) -> MeasuredProfile:
    """The profile with the scheduling that makes its model give the run's steps/s; as it was where none does.

    Args:
        measured: the profile.
        run: what it is of.
        path: a file that holds the profile.
    """
    from scipy import optimize

    cell, rate = run.record.cell, run.record.figures.steps_per_s
    if not rate or cell.gpus > MOST_GPUS:
        return measured
    point = RatePoint(
        system=fmt.system(run.record), gpus=cell.gpus, scenario=f"emulated/{path}", workload=cell.workload
    )
    try:
        planned = Planned([point], Length(seconds=SECONDS, num_seeds=lambda _: NUM_SEEDS))
    except ValueError:  # the system has no model
        return measured

    def excess(scheduling_ms: float) -> float:
        return planned.rates({f"{TABLE}.{KEY}": scheduling_ms}, least=rate / MOST_TIMES)[point] / rate - 1

    before = measured.tables[TABLE][KEY]
    most_ms = min(MOST_TIMES * 1e3 * cell.gpus / rate, MOST_MS)
    if excess(0.0) <= 0 or excess(most_ms) >= 0:
        return measured
    found_ms = float(optimize.brentq(excess, 0.0, most_ms, xtol=1e-3 * most_ms / MOST_TIMES))
    how = f"{fmt.number(before.value)} as measured ({before.how}); so much that the model gives the run's rate"
    cpu = {**measured.tables[TABLE], KEY: Entry(found_ms, how)}
    return replace(measured, tables={**measured.tables, TABLE: cpu})
