"""`rlbench run`: its options, which a file may have too."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlbench.harness.cli.flags import flags
from rlbench.harness.cli.read_runs import OUT, ExplainOption, command_line
from rlbench.harness.launch.options import LaunchOptions
from rlbench.harness.plan.options import RunOptions
from rlbench.harness.run import zygote_client

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rlbench.harness.cli.sweep_file import SweepFile
    from rlbench.results.records.schema import SweepFileRecord

OutOption = Annotated[Path, typer.Option("--out", help="Folder for the runs; made if it is not there.")]


@flags
def run(
    context: typer.Context,
    asked: RunOptions,
    sweep_file: Annotated[
        Path | None,
        typer.Argument(
            metavar="SWEEP_FILE",
            help="A .toml file that has these options by their names, without dashes; what is typed wins over it "
            "(docs/commands.md).",
        ),
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
    save: Annotated[
        Path | None,
        typer.Option(help="Also write the options, typed or of SWEEP_FILE, to this .toml file; its comments stay."),
    ] = None,
    explain: ExplainOption = False,
    launch: LaunchOptions = LaunchOptions(),  # noqa: B008  it is frozen
) -> None:
    """Measure every combination of systems, GPU counts, scenarios, workloads and seeds."""
    zygote_client.await_libraries()  # the imports that follow take longer than all so far
    from rlbench.harness.cli.sweep_file import FIELDS, SweepFile, record_of
    from rlbench.harness.commands.run import run_sweep

    if resume and save is not None:
        raise ValueError("--save: goes with a new sweep; leave --resume out")
    typed = {field for field in FIELDS if _is_typed(context, field)}
    file = None if sweep_file is None else SweepFile.read(sweep_file)
    if file is not None:
        asked, launch = file.fill(asked, typed), file.fill(launch, typed)
        out = out if "out" in typed else file.values.get("out", out)
    given = {**asdict(asked), **asdict(launch), "out": out}
    given = {field: given[field] for field in [*typed, *(file.values if file else ())]}
    with nullcontext() if file is None else file.blamed(typed):
        code = run_sweep(
            asked,
            out,
            resume=resume,
            dry_run=dry_run,
            command=command_line(),
            options=launch,
            sweep_file=None if file is None else record_of(file.path, file.text),
            save=None if save is None else _saver(save, given, file),
            explain=explain,
        )
    raise typer.Exit(code)


def _is_typed(context: typer.Context, field: str) -> bool:
    source = context.get_parameter_source(field)
    return source is not None and source.name == "COMMANDLINE"


def _saver(path: Path, given: Mapping[str, Any], source: SweepFile | None) -> Callable[[], SweepFileRecord]:
    from rlbench.harness.cli.saved_sweep import check
    from rlbench.harness.cli.saved_sweep import save as save_sweep
    from rlbench.results.reading.untrusted import visible

    check(path)

    def saved() -> SweepFileRecord:
        record = save_sweep(path, given, source)
        typer.echo(f"saved {visible(str(path))}", err=True)
        return record

    return saved
