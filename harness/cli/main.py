"""`rlbench`: one short function per sub-command; those that read runs are in `read_runs.py`.

Heavy modules (torch, pandas, simulators) are imported where they are needed, so that `--help` answers at once.
"""

from __future__ import annotations

import inspect
import io
import os
import signal
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from rlbench.harness.cli.completing import SHELL, print_completions
from rlbench.harness.cli.doctor import doctor
from rlbench.harness.cli.flags import flags
from rlbench.harness.cli.gate import gate
from rlbench.harness.cli.libraries import libraries
from rlbench.harness.cli.misspelt import misspelt
from rlbench.harness.cli.read_runs import OUT, READING, ExplainOption, command_line, evaluate
from rlbench.harness.cli.run import OutOption, run
from rlbench.harness.commands import INTERRUPTED, caller
from rlbench.harness.commands.profile.options import ProfileOptions
from rlbench.harness.predicting.options import PredictOptions

app = typer.Typer(
    name="rlbench",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,  # typer's do not complete behind a colon in bash, and take no shell's name
    suggest_commands=False,  # `misspelt` does
)

FINISHED, USAGE = 0, 2
OUTPUT_CLOSED = 128 + signal.SIGPIPE
"""What a shell says of a program that SIGPIPE ended; 1 would say that a cell had failed."""
BROKEN = os.EX_SOFTWARE
"""After a defect of ours; 1 would say that a gate had found a regression."""


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"rlbench {version('rlbench')}")  # noqa: T201  a command line prints
        raise typer.Exit


def _install_completion(shell: str | None) -> None:
    if shell is not None:
        from rlbench.harness.cli.shells import install

        print(install(shell, Path.home(), os.environ))  # noqa: T201  a command line prints
        raise typer.Exit


def _show_completion(shell: str | None) -> None:
    if shell is not None:
        from rlbench.harness.cli.shells import script_of

        print(script_of(shell), end="")  # noqa: T201  a command line prints
        raise typer.Exit


@app.callback()
def rlbench(
    *,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", callback=_version)] = False,
    install_completion: Annotated[
        str | None,
        typer.Option(
            metavar="<shell>",
            help="Have bash, zsh or fish complete commands, systems, scenarios and settings. "
            "[default: the shell you are in]",
            callback=_install_completion,
        ),
    ] = None,
    show_completion: Annotated[
        str | None,
        typer.Option(metavar="<shell>", help="Print what that installs, and exit.", callback=_show_completion),
    ] = None,
) -> None:
    """Runs distributed RL systems on the same work and says which is fastest, and why."""


app.command()(run)


@app.command()
@flags
def predict(
    asked: PredictOptions,
    from_run: Annotated[
        Path | None,
        typer.Option(
            help="Folder of a finished run: what would it be on other GPU counts? Its profile is kept in --out."
        ),
    ] = None,
    out: OutOption = OUT,
    explain: ExplainOption = False,
) -> None:
    """Predict, by a model, what systems would do on GPUs that are not there."""
    from rlbench.harness.commands.predict.command import print_predictions

    raise typer.Exit(print_predictions(asked, from_run, out, command_line(), explain=explain))


@app.command()
def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="ver-table1, ver-navigation, ddppo-scaling, sample-factory-table1, sample-factory-table-a2; all."
        ),
    ],
    held_out: Annotated[
        bool,
        typer.Option(
            "--held-out", help="Fit profiles without some of the figures, and predict these; takes minutes to an hour."
        ),
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder of runs; those on emulated GPUs are shown beside.")] = OUT,
) -> None:
    """Predict a paper's table and hold it against the published figures; exit code 1 outside its tolerance."""
    from rlbench.harness.commands.reproduce.command import reproduce as print_reproduced

    raise typer.Exit(print_reproduced(name, out, held_out=held_out))


@app.command()
def fit(
    profile: Annotated[str, typer.Option(help="Where to begin: a shipped profile, or the path of a .toml file.")],
    to: Annotated[
        Path,
        typer.Option(
            help="CSV with system,gpus,steps_per_s, and settings,workload,held_out if there are any; without a figure, "
            "or held out, a line is only predicted."
        ),
    ],
    keys: Annotated[
        str | None, typer.Option(help="Keys to fit, such as gpu.infer_fixed_ms. [default: all that are above 0]")
    ] = None,
    seconds: Annotated[float, typer.Option(help="Of the profile, that each prediction takes.")] = 100.0,
    out: Annotated[Path, typer.Option(help="The fitted profile, a new .toml file.")] = Path("fitted.toml"),
) -> None:
    """Fit a profile to figures that were measured or published, and say how well they determine it."""
    from rlbench.harness.commands.fit.command import fit_profile

    raise typer.Exit(fit_profile(profile, to, keys, seconds, out))


@app.command("list")
def list_(
    what: Annotated[str | None, typer.Argument(help="systems or scenarios. [default: both]")] = None,
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """List systems, by their choices, and scenarios, with what each needs."""
    from rlbench.harness.commands.listing import print_lists

    print_lists(what, as_json=json)


app.command()(doctor)
for command in (*READING, gate):
    app.command()(command)
app.add_typer(libraries, name="systems")


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
    from rlbench.harness.commands.run import export_scenes

    export_scenes(out, count, seed, workload)


app.command()(evaluate)


@app.command()
@flags
def profile(
    asked: ProfileOptions,
    from_run: Annotated[
        list[Path] | None,
        typer.Option(
            help="Folder of a finished run, of any system on any GPUs: takes it, runs nothing. Again for runs of the "
            "same environments in batches of other sizes."
        ),
    ] = None,
    latency_ms: Annotated[float, typer.Option(help="Of a message between ranks: is assumed, not measured.")] = 0.05,
    bandwidth_mb_per_s: Annotated[float, typer.Option(help="Of a GPU's link: is assumed, not measured.")] = 10_000.0,
    out: Annotated[
        Path | None, typer.Option(help="The profile, a new .toml file. [default: the scenario's name, with .toml]")
    ] = None,
    runs: Annotated[Path, typer.Option(help="Folder for the run, which is kept as a sweep of one cell.")] = OUT,
) -> None:
    """Measure a scenario on this machine and write its times as a profile, to emulate and to predict with."""
    from rlbench.harness.commands.profile.command import profile_runs, profile_scenario
    from rlbench.harness.commands.profile.gpu import AssumedLink

    link = AssumedLink(latency_ms=latency_ms, bandwidth_mb_per_s=bandwidth_mb_per_s)
    if not from_run:
        raise typer.Exit(profile_scenario(asked, out, runs, link, command_line()))
    if asked != ProfileOptions():
        raise ValueError(
            f"--from-run {from_run[0]}: that run was made; leave --scenario, --workload, --device, --seconds, --seed "
            "and --system out"
        )
    raise typer.Exit(profile_runs(from_run, out, link))


for each in (*app.registered_commands, *libraries.registered_commands):  # else the list cuts them at one line
    each.short_help = (inspect.getdoc(each.callback) or "").partition(". ")[0].partition("\n\n")[0]


def main() -> None:
    """What the console script starts: one line and exit code 2 for what the user can mend; a traceback is a defect."""
    _replace_closed_streams()
    _escape_what_cannot_be_encoded()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # means what Ctrl-C means
    if SHELL in os.environ:
        print_completions(typer.main.get_command(app))
        sys.exit(FINISHED)
    try:
        code = _run(sys.argv[1:])
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:  # whoever read our output has had enough
        _drop_output()
        code = OUTPUT_CLOSED
    except OSError:  # not even what went wrong can be said
        _drop_output()
        code = USAGE
    except Exception:  # noqa: BLE001  whatever it is
        traceback.print_exc()
        code = BROKEN
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    """Runs a command and says what went wrong; returns its exit code. Raises BrokenPipeError: nobody reads that."""
    try:
        if arguments in (["--install-completion"], ["--show-completion"]):
            from rlbench.harness.cli.shells import running_shell

            arguments = [*arguments, running_shell(os.environ)]
        code = app(arguments, prog_name="rlbench", standalone_mode=False)
        sys.stdout.flush()
    except typer.TyperException as error:
        message = error.format_message()
        if len(arguments) == 0 or "\n" in message:  # no command at all: the help
            print(message)  # noqa: T201  a command line prints
        else:
            said = misspelt(error) or f"{message.rstrip('.')}; "
            _fail(f"{said}{_where_to_look(arguments[0])}")
        return USAGE
    except ValueError as error:
        _fail(str(error))
        return USAGE
    except BrokenPipeError:
        raise
    except OSError as error:
        _fail(f"{error.filename or 'cannot write the output'}: {error.strerror or error}")
        _drop_output()
        return USAGE
    except KeyboardInterrupt:
        _fail("interrupted")
        return INTERRUPTED
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # typer and rich end the process by themselves, with 1
            raise end.__context__ from None
        raise
    return int(code or FINISHED)


def known_commands() -> list[str]:
    """Their names, in the order of the help."""
    single = [command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands]
    return [*single, *(group.name for group in app.registered_groups if group.name)]


def _where_to_look(first: str) -> str:
    return f"`rlbench {first} --help` says more" if first in known_commands() else "`rlbench --help` says more"


def _replace_closed_streams() -> None:
    """Makes a standard stream that was closed (`>&-`) the null device: else the next file would take its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null == number:
                os.set_inheritable(null, True)  # noqa: FBT003  it takes no keyword
            else:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115  it stays open


def _escape_what_cannot_be_encoded() -> None:
    r"""Has what a stream's encoding lacks appear as `\udce9`: a name may hold any byte, and a terminal be ASCII."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """What is still buffered cannot be written, and must not be tried again at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # it has no descriptor
            os.dup2(null, stream.fileno())


def _fail(message: str) -> None:
    from rlbench.results.reading.untrusted import visible

    line = visible(" ".join(message.split()))
    if not caller.hears(line):
        print(f"rlbench: {line}", file=sys.stderr)  # noqa: T201  a command line prints
