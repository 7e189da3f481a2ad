"""Turns the options of `rlbench run` into how its runs are spread over machines."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace

from rlbench.harness.launch.nodes.launches import SRUN, SSH, Launch, Slurm
from rlbench.harness.launch.options import LAUNCHERS, LaunchOptions
from rlbench.results.reading.names import known_names

EXPAND_LIMIT_S = 30.0


def choose(
    options: LaunchOptions, variables: Mapping[str, str] = os.environ, *, oversubscribe: bool = False
) -> Launch | Slurm | None:
    """The machines that runs are spread over; None: only this one. Raises ValueError with the rule that is broken.

    `oversubscribe`: several ranks may share a GPU there.
    """
    if options.launcher not in LAUNCHERS:
        raise ValueError(f"--launcher {options.launcher}: unknown; {known_names(options.launcher, LAUNCHERS)}")
    if wrong := options.misplaced:
        raise ValueError(wrong)
    if options.launcher == "local":
        return None
    if options.gpus_per_node is None:
        raise ValueError(f"--launcher {options.launcher}: needs --gpus-per-node")
    if options.launcher == "slurm":
        return _slurm(options, options.gpus_per_node, oversubscribe=oversubscribe)
    hosts, remote = _hosts(options, variables)
    launch = Launch(
        hosts=hosts,
        gpus_per_node=options.gpus_per_node,
        interface=options.interface or "",
        remote=options.remote or remote,
        oversubscribe=oversubscribe,
    )
    program = shlex.split(launch.remote)[0]
    if shutil.which(program) is None:
        raise ValueError(f"--remote {launch.remote!r}: {program} is not found")
    return launch


def _slurm(options: LaunchOptions, gpus_per_node: int, *, oversubscribe: bool) -> Slurm:
    if shutil.which("sbatch") is None:
        raise ValueError("--launcher slurm: sbatch is not found; this is no login node of a Slurm cluster")
    if importlib.util.find_spec("submitit") is None:
        raise ValueError("--launcher slurm: submitit is not installed; use: pip install 'rlbench[slurm]'")
    settings = {} if options.partition is None else {"partition": options.partition}
    for part in options.slurm.split(",") if options.slurm else ():
        name, equals, value = part.strip().partition("=")
        if not equals:
            raise ValueError(f"--slurm {options.slurm}: must be options of sbatch, such as account=lab,qos=high")
        settings[name] = value
    return Slurm(
        gpus_per_node=gpus_per_node,
        interface=options.interface or "",
        settings=settings,
        at_once=options.at_once or 0,
        one_allocation=options.one_allocation,
        oversubscribe=oversubscribe,
    )


def _hosts(options: LaunchOptions, variables: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    """The hosts, and the command that reaches them: those of `--hosts`, else those of our Slurm allocation."""
    if options.hosts is not None:
        return tuple(host.strip() for host in options.hosts.split(",")), SSH
    if "SLURM_JOB_NODELIST" not in variables:
        raise ValueError("--launcher torchrun: needs --hosts a,b outside a Slurm allocation")
    return allocated_hosts(variables), SRUN


def in_this_allocation(planned: Launch, variables: Mapping[str, str] = os.environ) -> Launch:
    """A launch that was planned inside a Slurm allocation, on the nodes of the allocation that we are in now.

    Raises ValueError outside of any allocation.
    """
    if "SLURM_JOB_NODELIST" not in variables:
        raise ValueError(
            "--resume: the sweep was planned inside a Slurm allocation; take it up again inside one (salloc)"
        )
    return replace(planned, hosts=allocated_hosts(variables))


def allocated_hosts(variables: Mapping[str, str]) -> tuple[str, ...]:
    """The nodes of the Slurm allocation that this process is in. Raises ValueError where Slurm does not list them."""
    allocated = variables["SLURM_JOB_NODELIST"]
    command = ["scontrol", "show", "hostnames", allocated]
    try:
        done = subprocess.run(  # noqa: S603  Slurm's own
            command, capture_output=True, encoding="utf-8", errors="replace", timeout=EXPAND_LIMIT_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ValueError(f"--hosts: {shlex.join(command)}: {error}; name the hosts") from None
    return tuple(done.stdout.split())
