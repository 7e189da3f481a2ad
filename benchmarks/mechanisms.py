"""Measures what VER's mechanisms gain on `emulated/open-fridge`, heterogeneous: `nox -s bench -- mechanisms`.

Runs `ver`, its ablation `nover`, and `ddppo` in turn, on 1 and on 8 emulated GPUs at time scale 1, and prints the
ratios of their medians over seeds. All figures are emulated. Published (VER, Table 1, means, V100s): ver / ddppo is
2.46 on 1 GPU and 2.68 on 8.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import median

from benchmarks.against.programs import machine, rlbench
from rlbench.results.records import store

SYSTEMS = ("ver", "nover", "ddppo")
AIM = 2.2
"""The least that ver / ddppo should be."""


def measure(asked: argparse.Namespace, folder: Path) -> dict[int, dict[str, list[float]]]:
    """Steps/s of each run, by GPUs, then system, in the order of the seeds. Raises CalledProcessError if one fails."""
    options = {
        "systems": ",".join(SYSTEMS),
        "scenario": "emulated/open-fridge",
        "workload": "heterogeneous",
        "device": "emulated",
        "time-scale": "1",
        "gpus": asked.gpus,
        "seeds": asked.seeds,
        "seconds": f"{asked.seconds:g}",
        "out": str(folder),
    }
    command = [*rlbench(), "run", *(part for name, value in options.items() for part in (f"--{name}", value))]
    subprocess.run(command, check=True)
    found: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in store.read_runs(folder):
        found[run.record.cell.gpus][run.record.cell.system].append(run.record.figures.steps_per_s or 0.0)
    return found


def main() -> None:
    """Runs and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", default="1,8")
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--seconds", type=float, default=45, help="of training in each run")
    asked = parser.parse_args()
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory(prefix="rlbench-bench-") as folder:
        found = measure(asked, Path(folder))
    for gpus, by_system in sorted(found.items()):
        middle = {system: median(by_system[system]) for system in SYSTEMS}
        each = "; ".join(f"{name} {', '.join(f'{x:,.0f}' for x in by_system[name])}" for name in SYSTEMS)
        print(f"{gpus} emulated GPUs, steps/s: {each}")
        ver, nover, ddppo = (middle[system] for system in SYSTEMS)
        print(f"  ratios of the medians: ver / ddppo {ver / ddppo:.2f} (aim: {AIM}), nover / ddppo {nover / ddppo:.2f}")


if __name__ == "__main__":
    main()
