"""The sub-commands of `rlbench` on runs: `evaluate` plays with the policies of runs that were made, the others read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rlbench.harness.cli.flags import flags
from rlbench.harness.commands.report.options import ReportOptions

OUT = Path("rlbench-runs")
"""Where runs are, unless the user names a folder."""
HISTORY = Path("rlbench-history.jsonl")


def command_line() -> list[str]:
    """The words of the command as records and reports show them; one that is no UTF-8 is escaped."""
    from rlbench.results.reading.untrusted import visible

    return ["rlbench", *map(visible, sys.argv[1:])]


FoldersArgument = Annotated[
    list[Path] | None,
    typer.Argument(
        help="Folders of runs, of sweeps, or of sweeps' folders; several are shown together. "
        f"[default: the newest sweep in {OUT}]"
    ),
]
ReferenceOption = Annotated[
    str | None,
    typer.Option(
        help="System that the others are held against, with its settings. [default: the first of the newest sweep]"
    ),
]
ThresholdOption = Annotated[
    float | None,
    typer.Option(help="Of success or return: when did runs reach it? [default: what `rlbench run --until` said]"),
]
ExplainOption = Annotated[
    bool, typer.Option("--explain", help="Say below the table what its columns mean, and all that spoils its figures.")
]


def results(
    folder: Annotated[Path, typer.Argument(help="Folder of runs, or of sweeps.")] = OUT,
    where: Annotated[
        list[str] | None,
        typer.Option(
            help="Only runs with this: field=value. Fields: system, scenario (both with or without settings), "
            "workload, gpus, seed, device, protocol, status, sweep. Of several all must hold."
        ),
    ] = None,
    newest: Annotated[
        int | None,
        typer.Option(help="So many runs at most, 0 for all. [default: 200 in the table, all in JSON and CSV]", min=0),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="A JSON list of the runs.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="A CSV line for each run.")] = False,
    explain: ExplainOption = False,
) -> None:
    """Print the runs in a folder as a table, JSON or CSV."""
    from rlbench.harness.commands.read_runs import print_results

    if json and csv:
        raise ValueError("--json --csv: choose one of them")
    print_results(folder, where or [], newest, "json" if json else "csv" if csv else "table", explain=explain)


@flags
def report(
    options: ReportOptions,
    folders: FoldersArgument = None,
    reference: ReferenceOption = None,
    threshold: ThresholdOption = None,
) -> None:
    """Write what runs say as one file that needs no network, HTML or PDF, and print the answers."""
    from rlbench.harness.commands.read_runs import SummaryOptions
    from rlbench.harness.commands.report.command import report as make_report

    asked = SummaryOptions(reference=reference, threshold=threshold)
    make_report(folders or [], OUT, options, asked, command_line())


def history(
    runs: Annotated[
        list[Path] | None, typer.Argument(help="Folders of runs whose revisions are added. [default: none]")
    ] = None,
    file: Annotated[Path, typer.Option(help="The history: JSON lines, to keep in a repository.")] = HISTORY,
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Keep the throughput of revisions, a row for each cell and machine class, and say where it changed."""
    from rlbench.harness.commands.read_runs import keep_history

    keep_history(runs or [], file, as_json=json)


def compare(
    runs_a: Annotated[Path, typer.Argument(metavar="RUNS_A", help="Folder of runs, of a sweep, or of sweeps.")],
    runs_b: Annotated[Path, typer.Argument(metavar="RUNS_B", help="Another, to hold against the first.")],
    reference: Annotated[
        str | None, typer.Option(help="System that the others of each folder are held against as well.")
    ] = None,
    threshold: ThresholdOption = None,
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    explain: ExplainOption = False,
) -> None:
    """Hold runs against others, cell by cell: say whether they may be compared, and what has changed."""
    from rlbench.harness.commands.read_runs import SummaryOptions, print_comparison

    asked = SummaryOptions(reference=reference, threshold=threshold)
    raise typer.Exit(print_comparison(runs_a, runs_b, asked, as_json=json, explain=explain))


def export(
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="json: all that the report says; csv, parquet: a line for each run; markdown: for a pull request; "
            "perfetto: the timelines of runs, for ui.perfetto.dev; tensorboard, mlflow, wandb: a folder for that "
            "tracker, written without a network.",
        ),
    ],
    folders: FoldersArgument = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The file, or the tracker's folder, to which runs are added. [default: stdout, for text]"),
    ] = None,
    reference: ReferenceOption = None,
    threshold: ThresholdOption = None,
) -> None:
    """Write what runs say for other programs; json has the very figures of the report."""
    from rlbench.harness.commands.read_runs import SummaryOptions
    from rlbench.harness.commands.read_runs import export as write_export

    asked = SummaryOptions(reference=reference, threshold=threshold)
    write_export(folders or [], OUT, form, out, asked)


def evaluate(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders of finished runs. [default: all finished runs of the newest sweep in --out]"),
    ] = None,
    episodes: Annotated[
        int, typer.Option(help="Episodes for each policy; rounded up to as many for each environment.")
    ] = 100,
    scenario: Annotated[
        str | None,
        typer.Option(
            help="The runs' scenarios, as they were typed; needed only where they name code, as gym/./file.py:Env."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    out: Annotated[Path, typer.Option(help="Folder of sweeps, where no run is named.")] = OUT,
    video: Annotated[
        Path | None,
        typer.Option(help="Film the first environment of one run: an .mp4 or .gif of its episodes, 2 minutes at most."),
    ] = None,
) -> None:
    """Play episodes with the policies that finished runs have left, and print how well they do."""
    from rlbench.harness.commands.evaluate import print_evaluations

    print_evaluations(runs or [], out, episodes, typed=scenario, as_json=json, video=video)


def watch(
    folder: Annotated[Path, typer.Argument(help="Folder of a sweep, or of sweeps: then the newest in it.")] = OUT,
) -> None:
    """Show a sweep live, from its folder: in another shell, or on another machine that has the folder."""
    from rlbench.harness.commands.watch import watch_sweep

    raise typer.Exit(watch_sweep(folder))


READING = (watch, results, report, compare, export, history)
"""In the order of the help."""
