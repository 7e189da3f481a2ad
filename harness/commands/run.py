"""What `rlbench run`, `systems` and `scenes` do, in steps; `harness/cli/` gives them their options."""

from __future__ import annotations

import sys
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from rlbench.harness.commands import INTERRUPTED, caller
from rlbench.harness.commands.resuming import resume_command
from rlbench.harness.contract.agents import agents_per_env
from rlbench.harness.contract.traits import Traits
from rlbench.harness.launch.launcher import choose, in_this_allocation
from rlbench.harness.launch.nodes.launches import SRUN, Launch, Slurm
from rlbench.harness.launch.options import LaunchOptions
from rlbench.harness.launch.torchrun import dry_run_lines
from rlbench.harness.live.display import FINISHED, Display
from rlbench.harness.live.expected import Expected, expect, in_words
from rlbench.harness.live.footer import progress_console
from rlbench.harness.live.live_file import LiveFile
from rlbench.harness.live.view import told_of
from rlbench.harness.plan import libraries, registry
from rlbench.harness.plan.cells import Cell, Hasher
from rlbench.harness.plan.enough import too_short
from rlbench.harness.plan.options import RunOptions
from rlbench.harness.plan.planning import plan_with_skipped
from rlbench.harness.plan.request import complete
from rlbench.harness.plan.room import check_room
from rlbench.harness.plan.system_list import CannotRun
from rlbench.harness.processes.raised import told_in_a_line
from rlbench.harness.run import zygote_client
from rlbench.harness.run.sweep import Sweep
from rlbench.harness.run.sweep_folder import SweepFolder
from rlbench.reports.terminal.table import make_console, print_lines, print_table
from rlbench.results.reading.untrusted import visible
from rlbench.results.records import store
from rlbench.results.records.index import Index

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rlbench.harness.run.runner import Runner
    from rlbench.results.records.schema import SweepFileRecord
    from rlbench.results.records.store import StoredRun, Unreadable


class LibraryCheck:
    """Raises CannotRun for a cell whose system's library is not installed; looks once for each system."""

    def __init__(self) -> None:
        self._why_not: dict[str, str | None] = dict.fromkeys(registry.names(registry.SYSTEMS))

    def __call__(self, cell: Cell) -> None:
        """Checks the library of a cell's system."""
        if cell.system not in self._why_not:
            library = Traits.of(cell.load()[0]).library
            self._why_not[cell.system] = None if library is None else libraries.why_not(library)
        if reason := self._why_not[cell.system]:
            raise CannotRun(f"{cell.system}: {reason}")


class PlaceCheck:
    """Raises ValueError for a cell too large for the machines, CannotRun for one that must not span several."""

    def __init__(self, launch: Launch | Slurm | None) -> None:
        self._launch = launch

    def __call__(self, cell: Cell) -> None:
        """Checks where a cell's ranks would be."""
        if self._launch is None:
            return
        nodes = self._launch.num_nodes(cell.gpus)
        if nodes > 1 and Traits.of(cell.load()[0]).one_machine:
            raise CannotRun(f"{cell.system}: all its ranks are on one machine, and x{cell.gpus} needs {nodes} here")


def _both(one: Callable[[Cell], None], other: Callable[[Cell], None]) -> Callable[[Cell], None]:
    def check(cell: Cell) -> None:
        one(cell)
        other(cell)

    return check


def run_sweep(
    asked: RunOptions,
    out: Path,
    *,
    resume: bool,
    dry_run: bool,
    command: Sequence[str],
    options: LaunchOptions = LaunchOptions(),  # noqa: B008  it is frozen
    sweep_file: SweepFileRecord | None = None,
    save: Callable[[], SweepFileRecord] | None = None,
    explain: bool = False,
) -> int:
    """Plans or resumes a sweep, runs what is left of it and prints its table; returns the exit code.

    `sweep_file`: where options came from. `save` writes them into another, once they are known to plan a sweep. The
    plan or the table are on stdout, all else is on stderr.
    """
    console = progress_console()
    launch = choose(options, oversubscribe=asked.oversubscribe)
    if resume:
        sweep, cells = _resumed(asked, out, console)
        if options != LaunchOptions() and launch != sweep.launch:
            raise ValueError(f"--resume: {sweep.folder} was planned for other machines; leave them out, or start anew")
        if options == LaunchOptions() and sweep.launch is not None and not sweep.launch.is_usual:
            told = "--slurm" if isinstance(sweep.launch, Slurm) else f"--remote {sweep.launch.remote}"
            raise ValueError(
                f"--resume: {sweep.folder} was planned with {told}, which could run anything; give the same options "
                "again, so that it is yours"
            )
        launch, sweep = sweep.launch, replace(sweep, sweep_file=sweep_file or sweep.sweep_file)
    else:
        request, line = complete(asked, elsewhere=launch is not None)
        cells, skipped = plan_with_skipped(request, _both(LibraryCheck(), PlaceCheck(launch)))
        for said in [line, *skipped]:
            if said:
                console.print(Text(said), soft_wrap=True)
        store.check_writable(out)
        _warn_of(_unreadable(out), console)
        sweep, sweep_file = None, save() if save else sweep_file
    if launch is None:
        _check_room(cells)
    else:
        zygote_client.end()  # it was started before the launch was known
    if dry_run:
        if sweep is not None:
            console.print(Text(_resuming(sweep, cells)), soft_wrap=True)
        _print_plan(cells, out, console)
        if isinstance(launch, Launch):
            print_lines(make_console(), dry_run_lines(launch, cells))
        return 0
    earlier = _durations(out)
    sweep = sweep or Sweep.create(out, cells, command, launch, sweep_file)
    return _run(sweep, cells, command, _expected(sweep.cells, earlier), console, is_new=not resume, explain=explain)


def _check_room(cells: Sequence[Cell]) -> None:
    """Raises ValueError unless simulators have room in shared memory; also for a scenario that cannot say its need."""
    for scenario in dict.fromkeys(cell.scenario for cell in cells):
        with told_in_a_line(f"scenario {scenario}: its shm_bytes"):
            check_room([cell for cell in cells if cell.scenario == scenario])


def _resumed(asked: RunOptions, out: Path, console: Console) -> tuple[Sweep, list[Cell]]:
    """The newest sweep, and its cells that have no finished run."""
    sweep = Sweep.newest(out)
    if isinstance(sweep.launch, Launch) and sweep.launch.remote == SRUN:
        sweep = replace(sweep, launch=in_this_allocation(sweep.launch))
    code = [cell for cell in sweep.cells if registry.names_code(cell.scenario, cell.scenario_settings)]
    if asked.systems:
        request, _ = complete(asked, elsewhere=sweep.launch is not None)
        planned, _ = plan_with_skipped(request, PlaceCheck(sweep.launch))
        if not set(map(_scenario_of, code)) <= set(map(_scenario_of, planned)) or set(map(Hasher().of, planned)) != set(
            map(Hasher().of, sweep.cells)
        ):
            raise ValueError(
                f"--resume: the newest sweep in {out} planned other cells ({' '.join(sweep.command)}); "
                "give the same options, or --resume and --out alone"
            )
        if not isinstance(sweep.launch, Slurm):  # its jobs know their cells by their places in the plan
            sweep = replace(sweep, cells=tuple(planned))  # the same work; --time-limit and --stall may differ
    elif own := next((cell.system for cell in sweep.cells if cell.system_file is not None), None):
        raise ValueError(
            f"--resume: {sweep.folder} runs a command, {own}, that came from a file; give the same options again, so "
            f"that it is yours: {resume_command(sweep, out)}"
        )
    elif code:
        raise ValueError(
            f"--resume: {sweep.folder} runs code that a scenario names, {visible(code[0].typed_scenario)}; type all "
            f"its options again, so that it is yours: {resume_command(sweep, out)}"
        )
    elif asked != RunOptions():
        raise ValueError("--resume: needs all options of the sweep, or --resume and --out alone")
    _warn_of(store.read_readable(sweep.folder)[1], console)
    finished = sweep.finished()
    hasher = Hasher()
    with told_in_a_line(f"--resume: {sweep.folder}: a system or scenario"):
        cells = [cell for cell in sweep.cells if hasher.of(cell) not in finished]
        for cell in cells:
            PlaceCheck(sweep.launch)(cell)
    return sweep, cells


def _resuming(sweep: Sweep, cells: Sequence[Cell]) -> str:
    """What is said when a sweep is taken up again."""
    done = f"{len(sweep.cells) - len(cells)} of {len(sweep.cells)} cells finished"
    return visible(f"resuming {sweep.folder}: {done}")


def _scenario_of(cell: Cell) -> tuple[str, frozenset[tuple[str, str]]]:
    return cell.scenario, frozenset(cell.scenario_settings.items())


def _run(
    sweep: Sweep,
    cells: Sequence[Cell],
    command: Sequence[str],
    expected: Sequence[Expected],
    console: Console,
    *,
    is_new: bool,
    explain: bool,
) -> int:
    from rlbench.harness.machine import machine
    from rlbench.harness.run.runner import Interrupts, Runner

    places = {id(cell): place for place, cell in enumerate(sweep.cells)}
    left = [places[id(cell)] for cell in cells]
    done = set(places.values()).difference(left)
    caller.tell(sweep.folder)
    with ExitStack() as stack:
        stack.enter_context(sweep.lock())
        display = stack.enter_context(Display(console, len(sweep.cells), expected, done))
        sweep_folder = stack.enter_context(SweepFolder(sweep, display.say))
        interrupts = stack.enter_context(Interrupts())
        stack.enter_context(closing(LiveFile(lambda: sweep_folder.path, lambda: display.state)))
        if not is_new:
            display.say(_resuming(sweep, cells))
        if not isinstance(sweep.launch, Slurm) and (removed := sweep.remove_partial()):
            display.say(
                f"removed {removed} unfinished run {'folder' if removed == 1 else 'folders'} "
                "that a killed rlbench had left"
            )
        for stranger in sweep.strangers():
            display.say(
                f"warning: {visible(str(stranger))}: is called as unfinished runs are, and is no folder; left alone"
            )
        runner = Runner(
            sweep=sweep,
            display=display,
            command=command,
            about_machine=machine.describe(),
            interrupts=interrupts,
            sweep_folder=sweep_folder,
            launch=sweep.launch if isinstance(sweep.launch, Launch) else None,
        )
        is_over = _run_all(runner, [(place + 1, sweep.cells[place]) for place in left])
        runs, unreadable = store.read_readable(sweep_folder.path)
        folder = sweep_folder.shown
    caller.tell(folder)
    if runs or unreadable or is_over:
        console.print()
        _print_runs(runs, unreadable, folder, explain=explain)
    if not is_over:
        _say_how_to_go_on(sweep)
        return INTERRUPTED
    finished = {run.record.cell.hash for run in runs if run.record.status == FINISHED}
    return 0 if finished.issuperset(map(Hasher().of, sweep.cells)) else 1


def _run_all(runner: Runner, cells: Sequence[tuple[int, Cell]]) -> bool:
    """Runs cells, each with its number in the sweep; returns False if somebody has asked for the end before."""
    from rlbench.harness.run.runner import Interrupted

    display = runner.display
    if isinstance(runner.sweep.launch, Slurm):
        from rlbench.harness.cluster.slurm import Jobs

        return Jobs(runner.sweep, runner, runner.sweep.launch).run([cell for _, cell in cells], runner.interrupts)
    for number, cell in cells:
        display.begin(number, cell)
        try:
            record = runner.run(cell)
        except Interrupted:
            display.end("interrupted", "")
            return False
        display.end(record.status, told_of(record))
    return True


def _print_runs(runs: Sequence[StoredRun], unreadable: Sequence[Unreadable], folder: Path, *, explain: bool) -> None:
    """Prints the table of what has ended, unless a Python process shows that itself, and where it is."""
    from rlbench.results.summary.summarise import summarise

    sys.stderr.flush()
    console = make_console()
    if not caller.is_there():
        print_table(summarise(runs, unreadable=unreadable), console, explain=explain)
    print_lines(console, [f"runs: {folder}"])


def _say_how_to_go_on(sweep: Sweep) -> None:
    command = resume_command(sweep, sweep.folder.parent)
    said = f"interrupted; `{command}` goes on"
    if isinstance(sweep.launch, Slurm):
        said = (
            f"stopped waiting; the jobs go on: `{command}` waits for them, `scancel --name=rlbench-{sweep.id}` ends "
            "them"
        )
    sys.stdout.flush()
    if not caller.hears(said):
        print(f"rlbench: {said}", file=sys.stderr)  # noqa: T201  a command line prints


def _print_plan(cells: Sequence[Cell], out: Path, console: Console) -> None:
    """Prints the cells and their expected times, from their limits or from earlier runs in `out`."""
    expected = _expected(cells, _durations(out))
    for number, (cell, one) in enumerate(zip(cells, expected, strict=True), start=1):
        sys.stdout.write(f"[{number}/{len(cells)}] {cell.label}: {one.seconds:.0f} s ({one.how})\n")
    open_ended = any(one.is_at_most for one in expected)
    total = sum(cell.time_limit_s for cell in cells) if open_ended else sum(one.seconds for one in expected)
    what = "1 cell" if len(cells) == 1 else f"{len(cells)} cells"
    sys.stdout.write(f"{what}, expected time {'at most' if open_ended else 'about'} {in_words(total)}\n")
    sys.stdout.writelines(f"{line}\n" for line in _budgets(cells))
    if short := too_short(cells):
        console.print(Text(f"warning: {short}", style="yellow"), soft_wrap=True)


def _expected(cells: Sequence[Cell], earlier: Mapping[str, float]) -> list[Expected]:
    """How long each cell will take, by its limits or as it took `earlier`, by hash."""
    hasher = Hasher()
    return [expect(cell, earlier.get(hasher.of(cell)) if earlier else None) for cell in cells]


def _budgets(cells: Sequence[Cell]) -> Iterator[str]:
    """What `--env-steps` counts, for scenarios whose environments have several agents."""
    for cell in {cell.scenario: cell for cell in cells if cell.limits.env_steps is not None}.values():
        if (agents := agents_per_env(cell.load()[1])) > 1:
            yield f"{cell.scenario}: --env-steps {cell.limits.env_steps} counts agent steps, of {agents} agents each"


def _durations(out: Path) -> dict[str, float]:
    """How long cells took when they were last run in a folder, by their hashes."""
    if not out.exists():
        return {}
    with closing(Index(store.run_folders(out))) as index:
        return index.durations()


def _unreadable(out: Path) -> list[Unreadable]:
    """The earlier runs in a folder that cannot be read. Raises ValueError for a run of a newer schema.

    New runs must not be mixed with such runs.
    """
    if not out.exists():
        return []
    with closing(Index(store.run_folders(out))) as index:
        unreadable = index.unreadable()
    for each in unreadable:
        if each.is_newer:
            raise ValueError(each.reason)
    return unreadable


def _warn_of(unreadable: Sequence[Unreadable], console: Console) -> None:
    """Warns that earlier runs are damaged; new ones are made anyway."""
    if unreadable:
        more = f" (and {len(unreadable) - 1} more; `rlbench results` lists them)" if len(unreadable) > 1 else ""
        print_lines(console, [f"warning: {unreadable[0].reason}{more}"])


def install_libraries(names: Sequence[str]) -> None:
    """Installs libraries, one after the other."""
    for library in libraries.find(names):
        libraries.install(library, _say)


def remove_libraries(names: Sequence[str]) -> None:
    """Removes the environments of libraries."""
    for library in libraries.find(names):
        libraries.remove(library, _say)


def _say(line: str) -> None:
    make_console().print(Text(line))


def export_scenes(out: Path, count: int, seed: int, workload: str) -> None:
    """Writes floor plans as .glb files."""
    family = registry.load_family("pointnav")
    export = getattr(family, "export_scenes", None)
    if export is None:
        raise ValueError("scenes: the installed pointnav scenario exports none; reinstall rlbench")
    for path in export(out, count, seed, workload):
        print(path)  # noqa: T201  a command line prints
