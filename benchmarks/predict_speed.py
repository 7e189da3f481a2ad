"""How long predictions take, and how much memory: `nox -s bench -- predict`.

Everything runs on one core, each part as a command in its own process: first six systems on ten GPU counts, with
nothing compiled before and then once more; then every system on 1,024 GPUs for 10 iterations; then `ver` on 64 to 1,024
GPUs, to see how the time grows.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.against.programs import machine, rlbench

SIX = "sync,ddppo,nover,ver,appo,gossip"
TEN = "1,2,4,8,16,32,64,128,256,1024"
MOST_S, MOST_OF_ONE_S, MOST_GIB = 60.0, 30.0, 2.0
"""Aims: six systems on ten GPU counts; one system on 1,024 GPUs for 10 iterations, and its memory."""


def timed(options: list[str], cache: Path) -> tuple[float, float]:
    """Seconds of `rlbench predict` with these options, on one core, and its peak memory in GiB."""
    with tempfile.TemporaryDirectory() as out:
        command = [*rlbench(), "predict", *options, "--out", out]
        began = time.perf_counter()
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "XDG_CACHE_HOME": str(cache)})
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            sys.exit(f"rlbench predict {' '.join(options)}: exit code {child.returncode}")
        return time.perf_counter() - began, used.ru_maxrss / 2**20


def main() -> None:
    """Measures and prints."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        sweep = ["--systems", SIX, "--gpus", TEN]
        for what in ("with an empty cache", "compiled before"):
            seconds, gib = timed(sweep, cache)
            print(f"{SIX} on {TEN} GPUs, {what}: {seconds:.1f} s (aim: {MOST_S:.0f}), {gib:.2f} GiB", flush=True)
        for system in [*SIX.split(","), "htsrl", "impala", "easgd", "downpour"]:
            seconds, gib = timed(["--systems", system, "--gpus", "1024", "--iterations", "10"], cache)
            aims = f"(aims: {MOST_OF_ONE_S:.0f}, {MOST_GIB:.0f})"
            print(f"{system} on 1,024 GPUs, 10 iterations: {seconds:.1f} s, {gib:.2f} GiB {aims}", flush=True)
        for gpus in (64, 128, 256, 512, 1024):
            seconds, _ = timed(["--systems", "ver", "--gpus", str(gpus), "--iterations", "10"], cache)
            each = f"{1e3 * seconds / gpus:.1f} ms for each GPU"
            print(f"ver on {gpus} GPUs, 10 iterations: {seconds:.1f} s, {each}", flush=True)


if __name__ == "__main__":
    main()
