"""Memory of a run over time: does anything grow?

`python -m benchmarks.memory --system appo --minutes 10` runs the system on an emulated GPU. Every `--every` seconds it
prints the proportional (PSS) and resident (RSS) memory of its processes by kind, and at the end their slopes in MB per
minute: least-squares lines through all but the first quarter of the time. PSS divides shared memory by the number of
processes that share it, so its sum is what the run takes, but it moves when other programs that map the same libraries
begin or end. RSS counts shared memory once for each process. Anonymous memory, heaps and stacks, depends on no other
program: a leak shows there.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil

RLBENCH = Path(sys.executable).with_name("rlbench")
KINDS = ("runner", "keeper", "rank", "fork server", "worker", "other")
MODULES = {"keeper": "rlbench.harness.run.keeper", "rank": "rlbench.harness.launch.rank"}
WARM_UP_SHARE = 0.25
MB = 1e6


class Memory(NamedTuple):
    """Memory of all processes of one kind, in bytes."""

    pss: int
    rss: int
    anonymous: int


class Look(NamedTuple):
    """One look at all processes of a run."""

    seconds: float
    """Since the run was started."""
    memory: dict[str, Memory]
    """By kind."""
    num_processes: int


def kind_of(one: psutil.Process) -> str:
    """The kind of a process below the runner. Workers are children of the fork server, and have its command line."""
    command = " ".join(one.cmdline())
    if "multiprocessing.forkserver" in command:
        parent = one.parent()
        forked = parent is not None and "multiprocessing.forkserver" in " ".join(parent.cmdline())
        return "worker" if forked else "fork server"
    return next((kind for kind, module in MODULES.items() if module in command), "other")


def look(runner: psutil.Process, began: float) -> Look:
    """Adds up the memory of a run's processes; leaves out one that ends meanwhile."""
    pss: Counter[str] = Counter()
    rss: Counter[str] = Counter()
    anonymous: Counter[str] = Counter()
    processes = [runner, *runner.children(recursive=True)]
    for one in processes:
        with suppress(psutil.Error):
            memory = one.memory_full_info()
            kind = "runner" if one == runner else kind_of(one)
            pss[kind] += memory.pss
            rss[kind] += memory.rss
            anonymous[kind] += memory.rss - memory.shared
    seconds = time.perf_counter() - began
    return Look(seconds, {kind: Memory(pss[kind], rss[kind], anonymous[kind]) for kind in KINDS}, len(processes))


def watch(command: list[str], every_s: float) -> list[Look]:
    """Runs a command and looks at it until it ends; prints a line for each look."""
    print("seconds  processes  " + "  ".join(f"{kind + ' PSS/RSS MB':>22}" for kind in KINDS))
    looks: list[Look] = []
    began = time.perf_counter()
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as running:
        runner = psutil.Process(running.pid)
        while True:
            with suppress(subprocess.TimeoutExpired):
                running.wait(every_s)
                break
            looks.append(look(runner, began))
            shown = (f"{memory.pss / MB:.1f}/{memory.rss / MB:.1f}" for memory in looks[-1].memory.values())
            print(
                f"{looks[-1].seconds:7.0f}  {looks[-1].num_processes:9}  " + "  ".join(f"{cell:>22}" for cell in shown)
            )
    if running.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {running.returncode}")
    return looks


def slope_mb_per_minute(looks: list[Look], amounts: list[int]) -> float:
    """The slope of a least-squares line through amounts of memory, in bytes, one for each look."""
    minutes = np.array([one.seconds for one in looks]) / 60
    return float(np.polyfit(minutes, np.array(amounts) / MB, 1)[0])


def main() -> None:
    """Makes the run and prints what it took."""
    parser = argparse.ArgumentParser(description="memory of a run over time")
    parser.add_argument("--system", default="appo", help="a system, as for `rlbench run --systems`")
    parser.add_argument("--scenario", default="emulated/open-fridge:num_envs=16:time_scale=0.25")
    parser.add_argument("--device", default="emulated")
    parser.add_argument("--gpus", default="1")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two looks")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        command = [str(RLBENCH), "run", "--out", folder, "--seconds", str(60 * asked.minutes)]
        for name in ("system", "scenario", "device", "gpus"):
            command += ["--systems" if name == "system" else f"--{name}", getattr(asked, name)]
        looks = watch(command, asked.every)
    asked_s = 60 * asked.minutes  # the run counts them from when its processes have started, so none has left by then
    later = [one for one in looks if WARM_UP_SHARE * asked_s <= one.seconds <= asked_s]
    if len(later) < 2:
        raise SystemExit(
            f"{len(later)} looks after the first quarter: must be at least 2; use --every, or more minutes"
        )
    print(f"slope of {asked.system} on {asked.scenario}, {len(later)} looks after the first quarter, MB per minute:")
    for kind in KINDS:
        slopes = [
            slope_mb_per_minute(later, [one.memory[kind][which] for one in later])
            for which in range(len(Memory._fields))
        ]
        print(f"  {kind:12} PSS {slopes[0]:+8.3f}  RSS {slopes[1]:+8.3f}  anonymous {slopes[2]:+8.3f}")
    total = [sum(memory.anonymous for memory in one.memory.values()) for one in later]
    slope = slope_mb_per_minute(later, total)
    print(f"  {'all':12} anonymous {slope:+8.3f}, of {total[-1] / MB:.0f} MB at the end")


if __name__ == "__main__":
    main()
