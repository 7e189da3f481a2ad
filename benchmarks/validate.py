"""Compares predictions with our own engine on emulated GPUs: `nox -s validate`.

Runs every system on 1, 2, 4 and 8 emulated GPUs (on 8 at half the speed), predicts the same iterations of the same
cells with the same draws, and prints a table: steps/s measured and predicted, the error, and the share of time that
differs most. The exit code is 1 if a cell misses an aim. `--out` keeps the runs, and goes on with them after a stop.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.against.programs import machine, rlbench
from rlbench.harness.contract.budget import Limits
from rlbench.harness.contract.prediction import Prediction
from rlbench.harness.metering.window import Window
from rlbench.harness.plan.cells import Cell
from rlbench.harness.plan.planning import parse_gpus
from rlbench.harness.predicting.planning import predict_cell
from rlbench.harness.predicting.record import as_left
from rlbench.harness.run.figures import count, work_out
from rlbench.harness.run.sweep import PLAN_FILE, Sweep
from rlbench.results.records import store
from rlbench.results.records.parts import SERIES_COLUMNS, SERIES_FILE, join_ranks
from rlbench.results.records.schema import Figures
from rlbench.results.verdicts.prediction_check import COLUMNS, FILE

MOST_ERROR = 0.05
"""Largest relative error of steps/s."""
MOST_POINTS = 0.05
"""Largest difference of a share of time."""
CROWDED = 4
"""With more GPUs than this, two cores are too busy for time scale 1, as `rlbench run` says; it is 2 there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """One run, and what the model says of it."""

    label: tuple[str, str, int]
    """System, workload, GPUs."""
    measured: float
    predicted: float
    iterations: int
    shares: dict[str, tuple[float, float]]
    """The share of time of every kind of span: measured, predicted."""

    @property
    def error(self) -> float:
        """The error of the predicted rate, relative to the measured one."""
        return self.predicted / self.measured - 1

    @property
    def worst(self) -> tuple[str, float]:
        """The share that is off most, and by how much."""
        off = {kind: predicted - measured for kind, (measured, predicted) in self.shares.items()}
        kind = max(off, key=lambda name: abs(off[name]))
        return kind, off[kind]

    @property
    def holds(self) -> bool:
        """Whether both aims are met."""
        return abs(self.error) <= MOST_ERROR and abs(self.worst[1]) <= MOST_POINTS

    def row(self) -> str:
        """Its row of the Markdown table."""
        system, workload, gpus = self.label
        kind, off = self.worst
        measured, predicted = self.shares[kind]
        return (
            f"| {system} | {workload} | {gpus} | {self.measured:,.0f} | {self.predicted:,.0f} | {self.error:+.1%} | "
            f"{kind} {measured:.0%}, {predicted:.0%} | {100 * off:+.1f} | {self.iterations} |"
        )


HEADER = (
    "| system | workload | GPUs | steps/s, emulated | predicted | error | share that is off most: emulated, predicted "
    "| points | iterations |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


def run(asked: argparse.Namespace, folder: Path) -> None:
    """Makes the runs, or goes on with them. Raises CalledProcessError if one fails."""
    gpus = parse_gpus(asked.gpus)
    groups = {1.0: [count for count in gpus if count <= CROWDED], 2.0: [count for count in gpus if count > CROWDED]}
    for scale, counts in groups.items():
        if not counts:
            continue
        out = folder / f"scale-{scale:g}"
        command = [*rlbench(), "run", "--out", str(out)]
        if any(out.glob(f"*/{PLAN_FILE}")):
            subprocess.run([*command, "--resume"], check=True)
            continue
        options = {
            "systems": asked.systems,
            "scenario": asked.scenario,
            "workload": asked.workload,
            "device": "emulated",
            "time-scale": f"{scale:g}",
            "gpus": ",".join(map(str, counts)),
            "seconds": f"{asked.seconds * scale:g}",
        }
        words = [*command, *(part for name, value in options.items() for part in (f"--{name}", value))]
        subprocess.run(words, check=True)


def check(cell: Cell, run: store.StoredRun) -> Checked:
    """Predicts the iterations in a run's window, and sets them beside what was measured."""
    import pandas as pd

    record = run.record
    window, rate = record.figures.window, record.figures.steps_per_s
    assert window is not None, f"{record.id}: {record.status}: {record.reason}"
    assert rate is not None
    iterations = 1 + int(pd.read_parquet(run.path / SERIES_FILE)["iteration"].max())
    predicted = replace(cell, device="predicted", limits=Limits(iterations=iterations))
    figures = figures_within(predicted, predict_cell(predicted), window.first_iteration, window.last_iteration)
    assert figures.steps_per_s is not None
    measured_shares, predicted_shares = record.figures.time_shares, figures.time_shares
    kinds = [*measured_shares, *(kind for kind in predicted_shares if kind not in measured_shares)]
    return Checked(
        label=(record.cell.system, record.cell.workload, record.cell.gpus),
        measured=rate,
        predicted=figures.steps_per_s,
        iterations=1 + window.last_iteration - window.first_iteration,
        shares={kind: (measured_shares.get(kind, 0.0), predicted_shares.get(kind, 0.0)) for kind in kinds},
    )


def figures_within(cell: Cell, prediction: Prediction, first: int, last: int) -> Figures:
    """The figures of the iterations from `first` to `last`, to compare with a run whose same iterations count."""
    left = as_left(cell, prediction)
    rows = (tuple(row[name] for name in SERIES_COLUMNS) for row in left.rows)
    parts = [part for part in join_ranks(rows, in_step=left.in_step) if first <= part.iteration <= last]
    return work_out(left, count(left), Window(protocol=cell.protocol, parts=tuple(parts)))


def keep(checked: Sequence[Checked]) -> None:
    """Writes the figures that tables of predictions quote."""
    with FILE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([*one.label, f"{one.measured:.1f}", f"{one.predicted:.1f}"] for one in checked)


def main() -> None:
    """Runs, predicts and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", default="all")
    parser.add_argument("--gpus", default="1,2,4,8")
    parser.add_argument("--workload", default="homogeneous")
    parser.add_argument("--scenario", default="emulated/open-fridge")
    parser.add_argument("--seconds", type=float, default=40, help="of the profile, in each run")
    parser.add_argument("--out", type=Path, help="folder of the runs; a temporary one by default")
    parser.add_argument("--keep", action="store_true", help=f"write the figures to {FILE.name}, which tables quote")
    asked = parser.parse_args()
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory(prefix="rlbench-validate-") as scratch:
        folder = asked.out or Path(scratch)
        run(asked, folder)
        plans = folder.glob(f"scale-*/*/{PLAN_FILE}")
        cells = {cell.hash(): cell for plan in plans for cell in Sweep.read(plan).cells}
        stored = (one for out in folder.glob("scale-*") for one in store.read_runs(out))
        runs = {one.record.cell.hash: one for one in stored if one.record.status == "finished"}
        checked = [check(cell, runs[name]) for name, cell in cells.items()]
    checked.sort(key=lambda one: (one.label[1], one.label[0], one.label[2]))
    print(HEADER)
    for one in checked:
        print(one.row())
    errors = [abs(one.error) for one in checked]
    missed = [one for one in checked if not one.holds]
    print(
        f"{len(checked)} cells: error of steps/s {sum(errors) / len(errors):.1%} on average, "
        f"{max(errors):.1%} at most; {len(missed)} beyond {MOST_ERROR:.0%} or {100 * MOST_POINTS:.0f} points"
    )
    if asked.keep:
        keep(checked)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
