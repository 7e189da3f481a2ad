"""The options of `rlbench run` that say where runs take place; see `harness.cli.flags`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rlbench.harness.plan.options import COMMAS

LAUNCHERS = ("local", "torchrun", "slurm")
NEEDS = {
    "hosts": ("torchrun",),
    "remote": ("torchrun",),
    "gpus_per_node": ("torchrun", "slurm"),
    "interface": ("torchrun", "slurm"),
    "partition": ("slurm",),
    "slurm": ("slurm",),
    "at_once": ("slurm",),
    "one_allocation": ("slurm",),
}
"""The launchers that an option goes with."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchOptions:
    """The options as they were typed."""

    launcher: Annotated[str, "local: this machine; torchrun: several; slurm: jobs of a cluster (docs/cluster.md)."] = (
        "local"
    )
    hosts: Annotated[str | None, "Machines: a,b. [default: those of the Slurm allocation]", COMMAS] = None
    gpus_per_node: Annotated[int | None, "GPUs (ranks) of each machine."] = None
    interface: Annotated[
        str | None,
        "Network interface, alike on all machines, that everything listens on. "
        "[default: the one that leads to the others]",
    ] = None
    remote: Annotated[
        str | None, "The command that runs another on {host}. [default: ssh, or srun in a Slurm allocation]"
    ] = None
    partition: Annotated[str | None, "Slurm's partition."] = None
    slurm: Annotated[str | None, "Further options of sbatch: account=lab,qos=high.", COMMAS] = None
    at_once: Annotated[int | None, "So many Slurm jobs run at the same time. [default: as many as Slurm will]"] = None
    one_allocation: Annotated[bool, "One Slurm job for all cells, instead of one for each."] = False

    @property
    def misplaced(self) -> str | None:
        """What is wrong if an option was given that goes with another launcher; else None."""
        for name, launchers in NEEDS.items():
            if getattr(self, name) not in {None, False} and self.launcher not in launchers:
                return f"--{name.replace('_', '-')}: goes with --launcher {' or '.join(launchers)}"
        return None
