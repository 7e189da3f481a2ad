"""Sweeps on hosts, and what they leave."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from rlbench.harness.metering.meter_file import MeterFile, meter_path
from rlbench.results.records import store
from rlbench.results.records.schema import RunRecord
from tests.nodes.hosts import TwoHosts

RLBENCH = str(Path(sys.executable).parent / "rlbench")
EMULATED = ("--device", "emulated", "--scenario", "emulated/open-fridge:num_envs=2:rollout_steps=32:time_scale=0.05")
TWO_A_HOST = ("--gpus", "4", "--gpus-per-node", "2")
LONG = ("--seconds", "600")
SYSTEMS = ("sync", "ddppo", "nover", "ver", "htsrl", "appo", "impala", "gossip", "easgd", "downpour")
START_S = 120.0


def start(hosts: TwoHosts, out: Path, *options: str, **more: object) -> subprocess.Popen[str]:
    """Starts `rlbench run` on the first host."""
    words = [RLBENCH, "run", "--out", str(out), *hosts.options, *EMULATED, *options]
    return hosts.start(0, *words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)


def finish(run: subprocess.Popen[str], limit_s: float = 120.0) -> str:
    """What it printed by its end."""
    said, _ = run.communicate(timeout=limit_s)
    return said


def records(out: Path) -> list[RunRecord]:
    """Of all runs in a folder of sweeps, in the order of their folders."""
    return [run.record for run in store.read_runs(out)]


def until(holds: Callable[[], object], what: str, limit_s: float = START_S) -> None:
    """Waits until it holds."""
    deadline = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {limit_s:g} s"
        time.sleep(0.05)


def agent_of(hosts: TwoHosts, host: int) -> psutil.Process | None:
    """The agent on a host, once it is there."""
    for one in hosts.processes(host):
        with suppress(psutil.Error):
            if "rlbench.harness.launch.nodes.agent" in one.cmdline():
                return one
    return None


def below(one: psutil.Process, module: str) -> list[psutil.Process]:
    """The processes below one that run a module."""
    found = []
    for child in one.children(recursive=True):
        with suppress(psutil.Error):
            words = child.cmdline()  # torchrun's own has `-m rlbench.harness.launch.rank` too, behind its own `-m`
            if "-m" in words and words[words.index("-m") + 1] == module:
                found.append(child)
    return found


def until_stepping(hosts: TwoHosts, host: int) -> psutil.Process:
    """The agent of a host, once the environments of each of its ranks have stepped."""
    found: list[psutil.Process] = []

    def steps() -> bool:
        agent = agent_of(hosts, host)
        if agent is None:
            return False
        with suppress(psutil.Error, FileNotFoundError):
            found[:] = [agent]
            meters = [_meter_of(rank) for rank in below(agent, "rlbench.harness.launch.rank")]
            return bool(meters) and all(meter.total("env_steps") for meter in meters)
        return False

    until(steps, "the ranks step")
    return found[0]


def _meter_of(rank: psutil.Process) -> MeterFile:
    """The meter of a rank that torchrun has started."""
    return MeterFile(meter_path(Path(rank.cmdline()[-1]), int(rank.environ()["RANK"])), writable=False)


def is_quiet(hosts: TwoHosts) -> bool:
    """Whether nothing runs on the hosts any more."""
    return not hosts.processes(0) and not hosts.processes(1)


def remote_by_host(folder: Path, prefixes: Mapping[str, str]) -> str:
    """A `--remote` command that puts something before the command of each host."""
    script = folder / "remote"
    cases = "\n".join(f'{host}) exec ip netns exec "$host" {prefix} "$@" ;;' for host, prefix in prefixes.items())
    script.write_text(
        f'#!/bin/sh\nhost=$1\nshift\ncase "$host" in\n{cases}\n*) exec ip netns exec "$host" "$@" ;;\nesac\n'
    )
    script.chmod(0o755)
    return f"{script} {{host}}"


def imports_first(folder: Path) -> str:
    """A prefix for the command of a host: what is in a folder is imported before all else."""
    return f"env PYTHONPATH={os.pathsep.join([str(folder), *filter(None, [os.environ.get('PYTHONPATH')])])}"


def copied_source(folder: Path) -> None:
    """A copy of the package, for a host that has another version of it."""
    root = Path(__file__).resolve().parents[2]
    for package in (
        "rlbench",
        "rlbench_start",
        "harness",
        "systems",
        "scenarios",
        "results",
        "reports",
        "rlbench_client",
    ):
        subprocess.run(["cp", "-r", str(root / package), str(folder)], check=True)
