"""The sub-command `rlbench doctor`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer


def doctor(
    workers: Annotated[
        int | None,
        typer.Option(help="Environment workers that a run would keep busy, to hold against the cores.", min=0),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if a check warns.")] = False,
    network: Annotated[
        bool, typer.Option("--network", help="Measure messages between the ranks of several machines instead.")
    ] = False,
    hosts: Annotated[
        str | None, typer.Option(help="With --network, machines: a,b. [default: those of the Slurm allocation]")
    ] = None,
    gpus: Annotated[int | None, typer.Option(help="With --network, ranks. [default: all of all machines]")] = None,
    gpus_per_node: Annotated[int | None, typer.Option(help="With --network, GPUs (ranks) of each machine.")] = None,
    device: Annotated[
        str, typer.Option(help="With --network: cuda, or cpu for messages from and to the memory of the CPU.")
    ] = "cuda",
    interface: Annotated[
        str | None, typer.Option(help="With --network, the network interface, as of `rlbench run`.")
    ] = None,
    remote: Annotated[
        str | None, typer.Option(help="With --network, how a machine is reached, as of `rlbench run`.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="With --network, a .toml file for what was found.")] = None,
) -> None:
    """Say what this machine is, or its network, and what of it could spoil a figure.

    Exit code: 0, or 1 with --strict where a check warns, or where the machine cannot be read.
    """
    if not network:
        if given := [name for name, value in (("--hosts", hosts), ("--gpus", gpus), ("--out", out)) if value]:
            raise ValueError(f"{given[0]}: goes with --network")
        from rlbench.harness.commands.doctor import print_doctor

        raise typer.Exit(print_doctor(num_workers=workers, strict=strict))
    if strict:
        raise ValueError("--strict: does not go with --network, which makes no checks")
    from rlbench.harness.commands.doctor import doctor_network
    from rlbench.harness.launch.launcher import choose
    from rlbench.harness.launch.nodes.launches import Launch
    from rlbench.harness.launch.options import LaunchOptions

    if device not in {"cuda", "cpu"}:
        raise ValueError(f"--device {device}: must be cuda or cpu")
    options = LaunchOptions(
        launcher="torchrun", hosts=hosts, gpus_per_node=gpus_per_node, interface=interface, remote=remote
    )
    launch = choose(options, os.environ)
    assert isinstance(launch, Launch)
    ranks = len(launch.hosts) * launch.gpus_per_node if gpus is None else gpus
    raise typer.Exit(doctor_network(launch, ranks, device, out))  # type: ignore[arg-type]  # checked
