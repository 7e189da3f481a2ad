"""`rlbench run`: its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.read_runs import OUT, command_line
from harness.processes import zygote

# Typer reads these annotations at run time; Optional, because it must know on Python 3.11 too.
OutOption = Annotated[Path, typer.Option("--out", help="Folder for the runs; made if it is not there.")]
WorkloadOption = Annotated[
    str | None, typer.Option(help="homogeneous, heterogeneous, or both with a comma. [default: homogeneous]")
]
IterationsOption = Annotated[
    int | None,
    typer.Option(help="End a run after so many iterations. Limits replace the protocol's; the first counts."),
]
EnvStepsOption = Annotated[int | None, typer.Option(help="End a run after so many env steps learned.")]


def run(
    systems: Annotated[
        str | None,
        typer.Option(
            help="Systems, with settings: sync,ddppo:preempt.p=0.8; all is every one that can run on the scenario; "
            "mine=./trainer.toml is a command of your own (docs/external.md). "
            "`rlbench list` names them. [needed unless --resume]"
        ),
    ] = None,
    gpus: Annotated[
        str | None, typer.Option(help="GPU counts: 1,8 or 1..4; on the CPU, how many ranks share it. [default: 1]")
    ] = None,
    scenario: Annotated[
        str | None,
        typer.Option(
            help="Scenarios, with settings: vizdoom/basic:num_envs=4. "
            "[default: emulated/open-fridge on emulated GPUs, else pointnav]"
        ),
    ] = None,
    workload: WorkloadOption = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds: 0,1,2 or 0..4. [default: 0]")] = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            help="How long a run is, and which iterations count. steady: 30 s of training, less the warm-up that is "
            "found in them; ddppo: 10 iterations, the last 5 counted. [default: steady]"
        ),
    ] = None,
    iterations: IterationsOption = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            help="End a run after so many seconds of training, on the wall clock; a rollout that is under way then is "
            "broken off a quarter of them later, 3 s at least."
        ),
    ] = None,
    env_steps: EnvStepsOption = None,
    until: Annotated[
        str | None,
        typer.Option(
            help="End a run when the mean of a metric over the last 100 episodes is reached: success>=0.9. "
            "Metrics: return, length, success, spl."
        ),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cuda, cpu or emulated. [default: cuda where there is a GPU, else emulated]")
    ] = None,
    time_scale: Annotated[
        float | None, typer.Option(help="Emulated scenarios: 0.5 runs them twice as fast as their profile.")
    ] = None,
    oversubscribe: Annotated[bool, typer.Option("--oversubscribe", help="Let several ranks share a GPU.")] = False,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds after which a run is ended as timed-out. [default: 3600]")
    ] = None,
    stall: Annotated[
        float | None,
        typer.Option(
            help="Seconds after which an environment that does not answer is hung; a run that neither steps nor learns "
            "is after 5 times as long. [default: 60]"
        ),
    ] = None,
    memory_limit: Annotated[
        float | None,
        typer.Option(help="GiB that the processes of a run may have. [default: 90 % of the machine's memory]"),
    ] = None,
    out: OutOption = OUT,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Complete the newest sweep in --out; finished cells are not run again. Needs no other option.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the cells and the expected time, run nothing.")
    ] = False,
    launcher: Annotated[
        str, typer.Option(help="local: this machine; torchrun: several; slurm: jobs of a cluster (docs/cluster.md).")
    ] = "local",
    hosts: Annotated[
        str | None,
        typer.Option(help="Machines: a,b. [default: those of the Slurm allocation]"),
    ] = None,
    gpus_per_node: Annotated[int | None, typer.Option(help="GPUs (ranks) of each machine.")] = None,
    interface: Annotated[
        str | None,
        typer.Option(
            help="Network interface, alike on all machines, that everything listens on. "
            "[default: the one that leads to the others]",
        ),
    ] = None,
    remote: Annotated[
        str | None,
        typer.Option(
            help="The command that runs another on {host}. [default: ssh, or srun in a Slurm allocation]",
        ),
    ] = None,
    partition: Annotated[str | None, typer.Option(help="Slurm's partition.")] = None,
    slurm: Annotated[str | None, typer.Option(help="Further options of sbatch: account=lab,qos=high.")] = None,
    at_once: Annotated[
        int | None, typer.Option(help="So many Slurm jobs run at the same time. [default: as many as Slurm will]")
    ] = None,
    one_allocation: Annotated[
        bool, typer.Option("--one-allocation", help="One Slurm job for all cells, instead of one for each.")
    ] = False,
) -> None:
    """Measure every combination of systems, GPU counts, scenarios, workloads and seeds."""
    zygote.await_libraries()  # the imports that follow take longer than all so far
    from harness.commands.run import run_sweep
    from harness.launch.launcher import LaunchOptions
    from harness.plan.request import Asked

    asked = Asked.of(
        systems=systems,
        gpus=gpus,
        scenario=scenario,
        workload=workload,
        seeds=seeds,
        protocol=protocol,
        iterations=iterations,
        seconds=seconds,
        env_steps=env_steps,
        until=until,
        device=device,
        time_scale=time_scale,
        oversubscribe=oversubscribe,
        time_limit=time_limit,
        stall=stall,
        memory_limit=memory_limit,
    )
    options = LaunchOptions(
        launcher=launcher,
        hosts=hosts,
        gpus_per_node=gpus_per_node,
        interface=interface,
        remote=remote,
        partition=partition,
        slurm=slurm,
        at_once=at_once,
        one_allocation=one_allocation,
        oversubscribe=oversubscribe and launcher != "local",
    )
    command = command_line()
    raise typer.Exit(run_sweep(asked, out, resume=resume, dry_run=dry_run, command=command, options=options))
