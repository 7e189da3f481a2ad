"""Steps/s on two hosts against one, for every system that may run on two: `nox -s bench -- two-hosts`, as root.

The two hosts are network namespaces on this machine with a fast link between them, each with half of the emulated GPUs,
under torchrun; the one host is the local launcher with all of them. Runs are made in turn (A B B A), and the ratio of
the medians is printed. All figures are emulated.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks.against.programs import machine, rlbench
from rlbench.results.records import store
from tests.nodes.hosts import TwoHosts, two_hosts

SYSTEMS = "sync,ddppo,nover,ver,htsrl,appo,impala,gossip,easgd,downpour"
AIM = 0.05


def run(system: str, asked: argparse.Namespace, out: Path, hosts: TwoHosts | None) -> float:
    """Steps/s of one run, on two hosts or on this machine. Raises CalledProcessError if it fails."""
    words = [*rlbench(), "run", "--systems", system, "--gpus", str(asked.gpus), "--device", "emulated"]
    words += ["--time-scale", f"{asked.time_scale:g}", "--seconds", f"{asked.seconds:g}", "--out", str(out)]
    words += ["--scenario", "emulated/open-fridge:num_envs=4:rollout_steps=32"]
    if hosts is not None:
        words += [*hosts.options, "--gpus-per-node", str(asked.gpus // 2)]
        words = ["ip", "netns", "exec", hosts.names[0], *words]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    newest = max(store.read_runs(out), key=lambda each: each.record.began)
    return newest.record.figures.steps_per_s or 0.0


def main() -> int:
    """Runs and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", default=SYSTEMS)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20, help="of training in each run, on the wall")
    parser.add_argument("--time-scale", type=float, default=1.0)
    asked = parser.parse_args()
    print(machine(), flush=True)
    worst = 0.0
    with tempfile.TemporaryDirectory(prefix="rlbench-bench-") as folder, two_hosts() as hosts:
        for system in asked.systems.split(","):
            rates: dict[bool, list[float]] = {True: [], False: []}
            for on_two in (False, True, True, False):
                rates[on_two].append(run(system, asked, Path(folder), hosts if on_two else None))
            one, two = median(rates[False]), median(rates[True])
            worst = max(worst, abs(two / one - 1))
            each = "; ".join(
                f"{name} {', '.join(f'{rate:,.0f}' for rate in rates[key])}"
                for name, key in (("one host", False), ("two", True))
            )
            print(f"{system} on {asked.gpus} emulated GPUs, steps/s: {each}; two / one {two / one:.3f}", flush=True)
    print(f"largest difference: {worst:.1%}; aim: at most {AIM:.0%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
