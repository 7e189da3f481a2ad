"""Compares predictions from profiles of real scenarios with runs on this machine: `nox -s validate -- --real`.

For each scenario and number of CPU ranks: runs all systems, in turn; profiles the middle run of one of them; predicts
all of them from that profile. The one that was profiled is to be within 5 %, the others, which had no part in it,
within 15 %. A run whose window has fewer than three iterations is made again, twice as long. Prints a table; the exit
code is 1 if a cell misses its aim. `--out` keeps runs and profiles, and goes on with them after a stop.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from benchmarks.against.programs import machine, rlbench
from rlbench.harness.plan.planning import parse_gpus
from rlbench.harness.predicting.points import Length, Planned, RatePoint
from rlbench.results.records import store

STILL = ":learn.learning_rate=1e-12"
"""Policies stay as they are: where a system learns more in these seconds, its episodes get longer than the others'."""
PROFILED = f"nover{STILL}"
OTHERS = ",".join(f"{name}{STILL}" for name in ("sync", "ddppo", "ver", "appo", "impala", "gossip"))
MOST_OF_ITSELF, MOST_OF_OTHERS = 0.05, 0.15
"""Largest relative errors of steps/s."""
LEAST_ITERATIONS = 3
"""Of a window, after the warm-up."""
PREDICTED = Length(seconds=60.0, num_seeds=lambda _: 3)
HEADER = (
    "| scenario | CPU ranks | system | steps/s, measured | predicted | error |\n| --- | --- | --- | --- | --- | --- |"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """A system on a scenario: what was measured, and what its profile predicts."""

    scenario: str
    ranks: int
    system: str
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Of the prediction, relative to what was measured."""
        return self.predicted / self.measured - 1

    @property
    def holds(self) -> bool:
        """Whether the aim is met."""
        return abs(self.error) <= (MOST_OF_ITSELF if self.system == PROFILED else MOST_OF_OTHERS)

    def row(self) -> str:
        """Its row of the Markdown table."""
        named = self.system.removesuffix(STILL)
        named = f"{named}, profiled" if self.system == PROFILED else named
        return (
            f"| {self.scenario} | {self.ranks} | {named} | {self.measured:,.0f} | {self.predicted:,.0f} | "
            f"{self.error:+.1%} |"
        )


def measure(asked: argparse.Namespace, scenario: str, ranks: int, folder: Path) -> dict[str, list[store.StoredRun]]:
    """Runs all systems, or goes on with that; returns the runs of each. Raises CalledProcessError if one fails."""
    runs: dict[str, list[store.StoredRun]] = {system: [] for system in asked.systems.split(",")}
    seconds = dict.fromkeys(runs, asked.seconds)
    what = ["--scenario", scenario, "--device", "cpu", "--gpus", str(ranks)]
    for turn in range(asked.rounds):  # a machine that gets slower is to be so for all of them
        for system, made in runs.items():
            out = folder / str(turn) / system
            while not (rates := [run for run in finished(out) if tells_a_rate(run)]):
                seconds[system] *= 2 if finished(out) else 1
                length = ["--seconds", f"{seconds[system]:g}", "--seeds", str(turn)]
                subprocess.run([*rlbench(), "run", "--systems", system, *what, *length, "--out", str(out)], check=True)
            made.append(rates[-1])
    return runs


def finished(out: Path) -> list[store.StoredRun]:
    """The runs that are there and ended as they should."""
    return [run for run in store.read_runs(out) if run.record.status == "finished"] if out.exists() else []


def tells_a_rate(run: store.StoredRun) -> bool:
    """Whether it is long enough: else it counts what fills the queues, or what they held when the window began."""
    window = run.record.figures.window
    return window is not None and window.last_iteration - window.first_iteration + 1 >= LEAST_ITERATIONS


def rate(runs: list[store.StoredRun]) -> float:
    """Median steps/s."""
    return median(run.record.figures.steps_per_s or 0.0 for run in runs)


def compare(asked: argparse.Namespace, scenario: str, ranks: int, folder: Path) -> list[Compared]:
    """Runs, profiles and predicts."""
    runs = measure(asked, scenario, ranks, folder / "runs")
    of_it = sorted(runs[PROFILED], key=lambda run: run.record.figures.steps_per_s or 0.0)
    profiled = of_it[(len(of_it) - 1) // 2]
    profile = folder / "profile.toml"
    made = [*rlbench(), "profile", "--from-run", str(profiled.path), "--out", str(profile)]
    profile.unlink(missing_ok=True)
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
    points = {system: RatePoint(system=system, gpus=ranks, scenario=f"emulated/{profile}") for system in runs}
    rates = Planned(list(points.values()), PREDICTED).rates()
    return [
        Compared(
            scenario=scenario,
            ranks=ranks,
            system=system,
            measured=rate([profiled] if system == PROFILED else runs[system]),
            predicted=rates[point],
        )
        for system, point in points.items()
    ]


def main() -> None:
    """Runs, predicts and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", default=f"{PROFILED},{OTHERS}")
    parser.add_argument("--scenarios", default="pointnav,atari,vizdoom")
    parser.add_argument("--ranks", default="1,2")
    parser.add_argument("--seconds", type=float, default=10, help="of each run, at first")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each system, in turn; their median counts")
    parser.add_argument("--out", type=Path, help="folder of runs and profiles; a temporary one by default")
    asked = parser.parse_args()
    print(machine(), flush=True)
    compared: list[Compared] = []
    with tempfile.TemporaryDirectory(prefix="rlbench-validate-") as scratch:
        for scenario in asked.scenarios.split(","):
            for ranks in parse_gpus(asked.ranks):
                folder = (asked.out or Path(scratch)) / f"{scenario.replace('/', '-')}-{ranks}"
                folder.mkdir(parents=True, exist_ok=True)
                compared += compare(asked, scenario, ranks, folder)
    print(HEADER)
    for one in compared:
        print(one.row())
    for name, of_kind in (("profiled", True), ("others", False)):
        errors = [abs(one.error) for one in compared if (one.system == PROFILED) == of_kind]
        if errors:
            print(f"{name}: {len(errors)} cells, error {fmean(errors):.1%} on average, {max(errors):.1%} at most")
    missed = [one for one in compared if not one.holds]
    print(f"{len(missed)} of {len(compared)} cells miss their aim")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
