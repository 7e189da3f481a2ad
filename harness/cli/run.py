"""`rlbench run`: its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlbench.harness.cli.flags import flags
from rlbench.harness.cli.read_runs import OUT, ExplainOption, command_line
from rlbench.harness.launch.options import LaunchOptions
from rlbench.harness.plan.options import RunOptions
from rlbench.harness.run import zygote_client

OutOption = Annotated[Path, typer.Option("--out", help="Folder for the runs; made if it is not there.")]


@flags
def run(
    asked: RunOptions,
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
    explain: ExplainOption = False,
    launch: LaunchOptions = LaunchOptions(),  # noqa: B008  it is frozen
) -> None:
    """Measure every combination of systems, GPU counts, scenarios, workloads and seeds."""
    zygote_client.await_libraries()  # the imports that follow take longer than all so far
    from rlbench.harness.commands.run import run_sweep

    code = run_sweep(
        asked, out, resume=resume, dry_run=dry_run, command=command_line(), options=launch, explain=explain
    )
    raise typer.Exit(code)
