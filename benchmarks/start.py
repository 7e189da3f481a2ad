"""How long a run takes in addition to its iterations: `nox -s bench -- start`.

It measures the seconds from the start of the command until every rank has taken an env step, as its meter shows from
outside, and from the end of the last iteration to the end of the run. In turn with the first case it times
`import torch` in a new interpreter, as a measure of the machine. Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.against.programs import machine, rlbench
from rlbench.harness.metering.meter_file import MeterFiles
from rlbench.results.records.store import PARTIAL_PREFIX, read_runs

LOOK_S = 0.002


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A run of one iteration."""

    name: str
    options: str
    num_ranks: int
    aim_s: float
    """The aim for the seconds until the first env step."""


CASES = (
    Case(name="1 rank on the CPU", options="--gpus 1 --device cpu", num_ranks=1, aim_s=1.2),
    Case(
        name="8 ranks on emulated GPUs",
        options="--gpus 8 --device emulated --scenario emulated/open-fridge --time-scale 0.05",
        num_ranks=8,
        aim_s=4.0,
    ),
)


def first_step_s(case: Case) -> tuple[float, float]:
    """Runs a case once: seconds until its first env steps, and from the end of its iteration to the end of the run."""
    with tempfile.TemporaryDirectory() as out:
        command = [*rlbench(), "run", "--systems", "sync", "--iterations", "1", *case.options.split(), "--out", out]
        began = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as running:
            meters: MeterFiles | None = None
            while meters is None or not _have_stepped(meters):
                if running.poll() is not None:
                    sys.exit(f"{' '.join(command)}: exit code {running.returncode}")
                folder = next(Path(out).glob(f"*/{PARTIAL_PREFIX}*"), None)
                meters = meters or (MeterFiles(folder, range(case.num_ranks)) if folder else None)
                time.sleep(LOOK_S)
            stepped = time.perf_counter()
            running.wait()
        (run,) = read_runs(Path(out))
        ending_s = run.record.ending_s
        assert ending_s is not None, "it had an iteration"
        return stepped - began, ending_s


def import_s() -> float:
    """Seconds that a new interpreter takes to import torch, the least that a first env step needs."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import torch, os; os._exit(0)"], check=True)
    return time.perf_counter() - began


def _have_stepped(meters: MeterFiles) -> bool:
    there = meters.there()
    return len(there) == len(meters.ranks) and all(meter.total("env_steps") for meter in there.values())


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9, help="runs of each case; the first one more is not counted")
    repeats = parser.parse_args().repeats
    print(machine(), flush=True)
    for number, case in enumerate(CASES):
        first_step_s(case)  # files are in the page cache from then on
        measured, imports = [], []
        for _ in range(repeats):
            measured.append(first_step_s(case))
            imports += [import_s()] if number == 0 else []
        steps, ends = ([each[at] for each in measured] for at in range(2))
        print(
            f"{case.name}: first env step after {_in_words(steps)}, aim {case.aim_s:g} s; "
            f"ending takes {statistics.median(ends):.2f} s, of {repeats} runs",
            flush=True,
        )
        if imports:
            print(f"`import torch` in a new interpreter, in turn with it: {_in_words(imports)}", flush=True)


def _in_words(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f})"


if __name__ == "__main__":
    main()
