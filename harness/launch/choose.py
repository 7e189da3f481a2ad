"""From the options of `rlbench run` to how its runs are spread over machines."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from harness.launch.nodes import SSH, Launch

LAUNCHERS = ("local", "torchrun")
SRUN = "srun --overlap --nodes=1 --ntasks=1 --nodelist={host}"
"""How a step of a Slurm allocation runs a command on one of its nodes."""
EXPAND_LIMIT_S = 30.0


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchOptions:
    """The options as they were typed."""

    launcher: str = "local"
    hosts: str | None = None
    gpus_per_node: int | None = None
    interface: str | None = None
    remote: str | None = None


def choose(options: LaunchOptions, variables: Mapping[str, str] = os.environ) -> Launch | None:
    """The machines that runs are spread over; None: this one alone. Raises ValueError with the rule."""
    if options.launcher not in LAUNCHERS:
        raise ValueError(f"--launcher {options.launcher}: unknown; known: {', '.join(LAUNCHERS)}")
    if options.launcher == "local":
        given = {"--hosts": options.hosts, "--gpus-per-node": options.gpus_per_node, "--remote": options.remote}
        given["--interface"] = options.interface
        if alone := next((flag for flag, value in given.items() if value is not None), None):
            raise ValueError(f"{alone}: goes with --launcher torchrun")
        return None
    hosts, remote = _hosts(options, variables)
    if options.gpus_per_node is None:
        raise ValueError("--launcher torchrun: needs --gpus-per-node")
    launch = Launch(
        hosts=hosts,
        gpus_per_node=options.gpus_per_node,
        interface=options.interface or "",
        remote=options.remote or remote,
    )
    program = shlex.split(launch.remote)[0]
    if shutil.which(program) is None:
        raise ValueError(f"--remote {launch.remote!r}: {program} is not found")
    return launch


def _hosts(options: LaunchOptions, variables: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    """Their names, and how they are reached: those that were named, else those of the Slurm allocation we are in."""
    if options.hosts is not None:
        return tuple(host.strip() for host in options.hosts.split(",")), SSH
    if not (allocated := variables.get("SLURM_JOB_NODELIST")):
        raise ValueError("--launcher torchrun: needs --hosts a,b outside a Slurm allocation")
    command = ["scontrol", "show", "hostnames", allocated]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=EXPAND_LIMIT_S, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        raise ValueError(f"--hosts: {shlex.join(command)}: {error}; name the hosts") from None
    return tuple(done.stdout.split()), SRUN
