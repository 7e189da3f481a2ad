"""`rlbench`: one short function per sub-command.

Heavy modules (torch, pandas, simulators) are imported where they are needed, so that `--help` answers at once.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="rlbench",
    help="Runs distributed RL systems on the same work and says which is fastest, and why.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

FINISHED, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
OUT = Path("rlbench-runs")

# Typer reads these annotations at run time; Optional, because it must know on Python 3.11 too.
OutOption = Annotated[Path, typer.Option("--out", help="Folder for the runs; made if it is not there.")]


@app.command()
def run(
    systems: Annotated[
        str | None,
        typer.Option(help="Systems, with settings: sync,ddppo:preempt.p=0.8. `rlbench list` names them."),
    ] = None,
    gpus: Annotated[str, typer.Option(help="GPU counts: 1,8 or 1..4.")] = "1",
    scenario: Annotated[
        str | None, typer.Option(help="Scenarios, with settings: vizdoom/basic:num_envs=4. [default: by device]")
    ] = None,
    workload: Annotated[str, typer.Option(help="homogeneous, heterogeneous, or both with a comma.")] = "homogeneous",
    seeds: Annotated[str, typer.Option(help="Seeds: 0,1,2 or 0..4.")] = "0",
    protocol: Annotated[str, typer.Option(help="How the window is chosen: steady or ddppo.")] = "steady",
    iterations: Annotated[int | None, typer.Option(help="End a run after so many iterations.")] = None,
    seconds: Annotated[float | None, typer.Option(help="End a run after so many seconds of training.")] = None,
    env_steps: Annotated[int | None, typer.Option(help="End a run after so many env steps learned.")] = None,
    until: Annotated[
        str | None, typer.Option(help="End a run when a metric of the last 100 episodes is reached: success>=0.9.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cuda, cpu or emulated. [default: cuda where there is a GPU, else emulated]")
    ] = None,
    time_scale: Annotated[
        float | None, typer.Option(help="Emulated scenarios: 0.5 runs them twice as fast as their profile.")
    ] = None,
    oversubscribe: Annotated[bool, typer.Option(help="Let several ranks share a GPU.")] = False,
    time_limit: Annotated[float, typer.Option(help="Seconds after which a run is ended as timed-out.")] = 3600.0,
    stall: Annotated[
        float, typer.Option(help="Seconds after which an environment that does not answer is hung.")
    ] = 60.0,
    out: OutOption = OUT,
    resume: Annotated[
        bool, typer.Option("--resume", help="Complete the newest sweep in --out; finished cells are not run again.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the cells and the expected time, run nothing.")
    ] = False,
) -> None:
    """Measure every combination of systems, GPU counts, scenarios, workloads and seeds."""
    from harness.commands import run_sweep
    from harness.request import Asked

    asked = Asked(
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
    )
    raise typer.Exit(run_sweep(asked, out, resume=resume, dry_run=dry_run, command=["rlbench", *sys.argv[1:]]))


@app.command("list")
def list_(
    what: Annotated[str | None, typer.Argument(help="systems or scenarios. [default: both]")] = None,
) -> None:
    """List systems and scenarios, with what each needs."""
    from harness.commands import print_lists

    print_lists(what)


@app.command()
def doctor(
    workers: Annotated[
        int | None, typer.Option(help="Environment workers that a run would keep busy, to hold against the cores.")
    ] = None,
) -> None:
    """Say what this machine is, and what of it could spoil a figure."""
    from harness.doctor import print_doctor
    from reports.table import make_console

    raise typer.Exit(print_doctor(make_console(), workers))


@app.command()
def results(
    folder: Annotated[Path, typer.Argument(help="Folder of runs, or of sweeps.")] = OUT,
    json: Annotated[bool, typer.Option("--json", help="A JSON list of the runs.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="A CSV line for each run.")] = False,
) -> None:
    """Print the runs in a folder as a table, JSON or CSV."""
    from harness.commands import print_results

    if json and csv:
        raise ValueError("--json --csv: choose one of them")
    print_results(folder, "json" if json else "csv" if csv else "table")


@app.command()
def scenes(
    out: Annotated[Path, typer.Option(help="Folder for the .glb files; made if it is not there.")],
    count: Annotated[int, typer.Option(help="How many floor plans.")] = 8,
    seed: Annotated[int, typer.Option(help="Of the generator: the same seed gives the same plans.")] = 0,
    workload: Annotated[str, typer.Option(help="homogeneous: small plans alike; heterogeneous: sizes differ.")] = (
        "homogeneous"
    ),
) -> None:
    """Export pointnav's floor plans as .glb scenes, for habitat-sim and other simulators."""
    from harness.commands import export_scenes

    export_scenes(out, count, seed, workload)


def main() -> None:
    """The console script: one line and exit code 2 for what the user can mend, never a traceback."""
    arguments = sys.argv[1:]
    try:
        code = app(arguments, standalone_mode=False)
    except typer.TyperException as error:
        message = error.format_message()
        if len(arguments) == 0 or "\n" in message:  # no command at all: the help
            print(message)  # noqa: T201  a command line prints
        else:
            _fail(f"{message} (rlbench {shlex.join(arguments[:1])} --help says more)")
        code = USAGE
    except ValueError as error:
        _fail(str(error))
        code = USAGE
    except OSError as error:
        _fail(f"{error.filename or 'rlbench'}: {error.strerror or error}")
        code = USAGE
    except KeyboardInterrupt:
        _fail("interrupted")
        code = INTERRUPTED
    sys.exit(code)


def _fail(message: str) -> None:
    print(f"rlbench: {' '.join(message.split())}", file=sys.stderr)  # noqa: T201  a command line prints
