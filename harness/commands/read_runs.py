"""What `rlbench results`, `compare` and `export` do: read run folders, and say what is in them.

Whatever is in a folder, the runs that can be read are shown, and the others are named. Modules that a list of runs does
not need are imported where they are used, so that the list appears at once.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rlbench.harness.commands import FORMATS
from rlbench.harness.commands.tracking import TRACKERS, check_tracker, export_runs
from rlbench.harness.run.sweep import PLAN_FILE, Sweep, begun
from rlbench.reports.exports.export import to_csv, to_json, write_parquet
from rlbench.reports.exports.trace import read_trace
from rlbench.reports.terminal.table import make_console, print_lines, print_table
from rlbench.results.reading.names import known_names
from rlbench.results.reading.outputs import write_output
from rlbench.results.reading.tables import SPANS_FILE
from rlbench.results.reading.untrusted import visible
from rlbench.results.records import store
from rlbench.results.records.index import FIELDS, Condition, Index
from rlbench.results.records.store import StoredRun, Unreadable
from rlbench.results.summary.cells import latest, make_cells, other_tries
from rlbench.results.summary.document import Finding, Summary
from rlbench.results.summary.findings import find_all
from rlbench.results.summary.scaled import scale
from rlbench.results.summary.side_by_side import compared, fairness, reference_of

if TYPE_CHECKING:
    from rlbench.results.verdicts.compare import Runs

MAKE_SOME = "make some: `rlbench run --systems ddppo,ver --gpus 1,8`"
NEWEST = 200
"""Largest number of runs in the table of `rlbench results`, unless told otherwise."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SummaryOptions:
    """Options of a command: what figures are compared with."""

    reference: str | None = None
    threshold: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """The runs in some folders."""

    runs: list[StoredRun]
    """Oldest first."""
    unreadable: list[Unreadable]
    partial: list[Finding] = field(default_factory=list)
    """Of sweeps some of whose cells have no run."""

    def summary(self, asked: SummaryOptions) -> Summary:
        """Summarises the runs."""
        from rlbench.results.summary.summarise import summarise

        summary = summarise(
            self.runs,
            unreadable=self.unreadable,
            reference=asked.reference,
            threshold=asked.threshold,
        )
        return summary.model_copy(update={"findings": [*self.partial, *summary.findings]})

    def folders(self) -> dict[str, Path]:
        """Run folders by sweep/id, and by id alone; among runs with one id, the first that has spans counts."""
        folders: dict[str, Path] = {}
        for run in sorted(self.runs, key=lambda run: not (run.path / SPANS_FILE).exists()):
            folders[f"{run.record.sweep}/{run.record.id}"] = run.path
            folders.setdefault(run.record.id, run.path)
        return folders


def find(folders: Sequence[Path]) -> Found:
    """Finds the runs in some folders, each of a run, a sweep or several sweeps.

    Raises ValueError for a missing folder, and when there is no run at all, not even a half-written one.
    """
    with closing(Index([path for folder in folders for path in store.run_folders(folder)])) as index:
        left = [each for folder in folders for each in store.half_written(folder)]
        runs = index.runs()
        asked = {folder.resolve() for folder in folders}
        of_sweeps = [run for run in runs if run.path.resolve() not in asked]  # a run that was named stands for itself
        found = Found(runs=runs, unreadable=[*index.unreadable(), *left], partial=list(partial(of_sweeps)))
    if not found.runs and not found.unreadable:
        raise ValueError(f"{', '.join(map(str, folders))}: no runs; {MAKE_SOME}")
    return found


def partial(runs: Iterable[StoredRun]) -> Iterator[Finding]:
    """The sweeps that these runs are of, if these are not all that was planned."""
    cells: dict[Path, set[str]] = defaultdict(set)
    for run in runs:
        cells[run.path.parent].add(run.record.cell.hash)
    for folder, hashes in cells.items():
        try:
            planned = len(Sweep.read(folder / PLAN_FILE).cells)
        except (OSError, ValueError):  # runs that somebody put there
            continue
        if len(hashes) < planned:
            text = f"{len(hashes)} of the {planned} cells of sweep {visible(folder.name)} have a run"
            yield Finding(severity="partial", text=text, runs=[visible(str(folder))])


def newest_sweep(out: Path) -> Path:
    """The folder of the sweep in `out` that began last. Raises ValueError when there is none."""
    runs = store.run_folders(out) if out.is_dir() else []
    folders = {folder.parent for folder in [*runs, *(each.path for each in store.half_written(out))]}
    if not folders:
        raise ValueError(f"{out}: no runs; {MAKE_SOME}")
    sweeps = {folder for folder in folders if (folder / PLAN_FILE).exists()}  # others hold runs that somebody put there
    return max(sweeps or folders, key=begun)


def print_results(folder: Path, where: Sequence[str], newest: int | None, form: str, *, explain: bool = False) -> None:
    """Prints the runs of a folder.

    Args:
        folder: of a run, a sweep, or several sweeps.
        where: `field=value`, all of which must hold.
        newest: largest number of runs, 0 for all; None means `NEWEST` for a table, else all.
        form: `table`, `json` or `csv`.
        explain: whether lines below the table say what its columns mean.

    Raises ValueError for a missing folder and for an unknown field.
    """
    conditions = [_condition(text) for text in where]
    if newest is None and form == "table":
        newest = NEWEST
    with closing(Index(store.run_folders(folder))) as index:
        runs = index.runs(conditions, newest or None)
        bases = index.bases(conditions, newest or None)
        num_runs = index.count(conditions)
        unreadable = [*index.unreadable(), *store.half_written(folder)]
        none = None if runs or not index.count() else _why_none(conditions, index)
    if form == "table":
        console = make_console()
        if none is not None:
            print_lines(console, [none])
            return
        print_table(listing(runs, bases, unreadable), console, explain=explain)
        if len(runs) < num_runs:
            print_lines(console, [f"the newest {len(runs):,} of {num_runs:,} runs; --newest 0 shows all"])
        return
    shown = {run.path for run in runs}
    records = [run.record for run in scale([*bases, *runs]) if run.path in shown]
    sys.stdout.write(to_json(records) if form == "json" else to_csv(records))


def _condition(text: str) -> Condition:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"--where {text}: must be field=value; fields: {', '.join(FIELDS)}")
    return name.strip(), value.strip()


def _why_none(conditions: Sequence[Condition], index: Index) -> str:
    """What of these conditions leaves no run of those that there are."""
    for name, value in conditions:
        if not index.count([(name, value)]):
            return f"no runs with {name}={value}; {known_names(value, index.values(name))}"
    return f"no runs with {' and '.join(f'{name}={value}' for name, value in conditions)}"


def listing(runs: Sequence[StoredRun], bases: Sequence[StoredRun], unreadable: Sequence[Unreadable]) -> Summary:
    """A summary that lists cells and says which is fastest; it has no learning and no answers.

    Args:
        runs: to list.
        bases: runs that they are scaled against and that are not among them.
        unreadable: what could not be read.
    """
    shown = {(run.record.sweep, run.record.id) for run in runs}
    made = make_cells([*bases, *runs])
    cells = [cell for cell in made if any((cell.summary.sweep, run) in shown for run in cell.summary.runs)]
    reference = reference_of([run.record for run in runs])
    return Summary(
        reference=reference,
        answers=[],
        findings=find_all([run.record for run in latest(runs)], unreadable, [run.record for run in other_tries(runs)]),
        fairness=list(fairness(cells)),
        cells=[cell.summary for cell in cells],
        comparisons=list(compared(cells, reference)),
        across_tasks=[],
        published=[],
        runs=[run.record for run in runs],
    )


def keep_history(folders: Sequence[Path], file: Path, *, as_json: bool) -> None:
    """Adds the revisions of some folders to a history, and prints it. Raises ValueError for a damaged history."""
    from pydantic import TypeAdapter

    from rlbench.reports.terminal.history import print_history
    from rlbench.results.summary.document import HistorySeries
    from rlbench.results.verdicts import history

    rows = history.read(file)
    if folders:
        new = history.rows_of(find(folders).runs)
        if not new:
            these = ", ".join(map(str, folders))
            raise ValueError(f"{these}: no finished run of a committed revision; commit the work tree before measuring")
        rows = history.merged(rows, new)
        history.write(file, rows)
    series = history.series_of(rows)
    if as_json:
        sys.stdout.write(TypeAdapter(list[HistorySeries]).dump_json(series, indent=1).decode() + "\n")
    else:
        print_history(series)


def print_comparison(a: Path, b: Path, asked: SummaryOptions, *, as_json: bool, explain: bool = False) -> int:
    """Compares the runs in two folders and prints the result; returns 1 when no cell was run in both, else 0.

    Raises ValueError for a folder without runs, and for an unknown reference.
    """
    from rlbench.reports.terminal.compared import print_compared
    from rlbench.results.verdicts.compare import compare

    compared = compare(
        *(_side(folder) for folder in (a, b)),
        reference=asked.reference,
        threshold=asked.threshold,
    )
    if as_json:
        sys.stdout.write(compared.to_json())
    else:
        print_compared(compared, explain=explain)
    return 0 if compared.pairs else 1


def _side(folder: Path) -> Runs:
    from rlbench.results.verdicts.compare import Runs

    found = find([folder])
    return Runs(name=visible(str(folder)), runs=found.runs, unreadable=found.unreadable)


def export(folders: Sequence[Path], default: Path, form: str, out: Path | None, asked: SummaryOptions) -> None:
    """Writes some folders, or the newest sweep in `default`, in one of `FORMATS`, to a file, a folder or to stdout.

    A trace is of all runs with a timeline in the folders; without folders, of the newest one in `default`.

    Raises ValueError for missing runs, an unknown format or reference, and a file that cannot be written.
    """
    if form not in FORMATS:
        raise ValueError(f"--format {form}: unknown; {known_names(form, FORMATS)}")
    if form == "perfetto":
        _export_trace(_with_spans(folders) if folders else [_newest_with_spans(default)], out)
        return
    where = check_tracker(form, out) if form in TRACKERS else None
    found = find(folders or [newest_sweep(default)])
    if where is not None:
        export_runs(found.runs, found.unreadable, form, where)
        return
    summary = found.summary(asked)
    if form == "json":
        from rlbench.reports.page.timeline import read_iterations, with_iterations

        summary = with_iterations(summary, read_iterations(summary, found.folders()))
    if form == "parquet":
        if out is None:
            raise ValueError("--format parquet: is not text; name a file with --out")
        write_parquet(summary.runs, out)
    else:
        _write([_text(summary, form)], out)


def _text(summary: Summary, form: str) -> str:
    if form == "markdown":
        from rlbench.reports.exports.markdown import to_markdown

        return to_markdown(summary)
    return summary.to_json() if form == "json" else to_csv(summary.runs)


def _write(pieces: Iterable[str], out: Path | None) -> None:
    if out is None:
        sys.stdout.writelines(pieces)
        return
    try:
        write_output(out, pieces)
    except BrokenPipeError:  # the reader of `--out /dev/stdout` has stopped reading
        raise
    except OSError as problem:
        raise ValueError(f"{out}: cannot be written ({problem.strerror or problem}); name another file") from None


def _export_trace(runs: Sequence[StoredRun], out: Path | None) -> None:
    trace = read_trace([(run.path, run.record) for run in runs])
    for problem in trace.problems:
        _warn(problem)
    _write(trace.pieces(), out)


def _warn(text: str) -> None:
    print(f"rlbench: warning: {visible(text)}", file=sys.stderr)  # noqa: T201  stdout may be the trace


def _with_spans(folders: Sequence[Path]) -> list[StoredRun]:
    """The only run in some folders, or all finished ones that have spans; says on stderr how many do not.

    Raises ValueError if there is none.
    """
    runs = find(folders).runs
    if len(runs) == 1:
        return runs
    found = [run for run in runs if run.record.status == "finished" and (run.path / SPANS_FILE).exists()]
    if not found:
        these = ", ".join(map(str, folders))
        raise ValueError(f"{these}: has {len(runs)} runs, none that finished with a timeline; name others")
    if left_out := len(runs) - len(found):
        _warn(f"{left_out} of {len(runs)} runs did not finish or have no timeline, and are left out")
    return found


def _newest_with_spans(out: Path) -> StoredRun:
    with closing(Index(store.run_folders(out) if out.is_dir() else [])) as index:
        finished = index.runs([("status", "finished")], NEWEST)
    for run in reversed(finished):
        if (run.path / SPANS_FILE).exists():
            return run
    raise ValueError(f"{out}: no finished run with a timeline; {MAKE_SOME}")
