"""Why the gate cannot judge a cell: what the two sides ran is not the same, or did not all finish."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlbench.results.records.store import StoredRun
from rlbench.results.records.work import ReadWork, compare_work
from rlbench.results.summary.cells import CellRuns
from rlbench.results.verdicts.at_once import are_pairs
from rlbench.results.verdicts.compare import COMPARED, by_seed, differences


def why_not_comparable(before: CellRuns, after: CellRuns | None, read: ReadWork) -> str:
    """The reason why a cell cannot be judged; empty if it can."""
    if after is None:
        return "the candidate has not run it"
    if not after.finished:
        return f"no run of the candidate finished ({', '.join(sorted(after.summary.statuses))})"
    lost, lost_before = _lost(after), _lost(before)
    if lost > lost_before:
        return f"{lost} of the candidate's {sum(after.summary.statuses.values())} runs did not finish"
    said = {
        each.sentence(): None
        for sides in _compared(before, after)
        for each in differences(*sides)
        if each.aspect not in COMPARED
    }
    if said:
        return f"they differ in {'; '.join(said)}"
    return _some_warm_up(before, after) or _other_work(before, after, read)


def _compared(before: CellRuns, after: CellRuns) -> Iterator[tuple[Sequence[StoredRun], Sequence[StoredRun]]]:
    """The runs of each pair where runs are compared in pairs, which may differ in length; else those of the sides."""
    ours, theirs = by_seed(before), by_seed(after)
    if not are_pairs([run.record for run in ours], [run.record for run in theirs]):
        yield ours, theirs
        return
    for one, other in zip(ours, theirs, strict=True):
        yield [one], [other]


def _some_warm_up(before: CellRuns, after: CellRuns) -> str:
    """What is wrong where the warm-up counts in some runs alone, those of one iteration; empty if nothing is."""
    windows = [window for run in (*before.finished, *after.finished) if (window := run.record.figures.window)]
    with_warm_up = sum(window.first_iteration == 0 for window in windows)
    if not 0 < with_warm_up < len(windows):
        return ""
    return (
        f"{with_warm_up} of {len(windows)} runs have one iteration, the warm-up, which the others leave out; "
        "give runs more, by --seconds or --iterations"
    )


def _other_work(before: CellRuns, after: CellRuns, read: ReadWork) -> str:
    """Which environments did other work on the two sides, in runs of still work with equal seeds; empty if none did."""
    try:
        work = {run.record.cell.seed: read(run.path) for run in before.finished}
        pairs = [(run.record.cell.seed, read(run.path)) for run in after.finished]
    except ValueError as problem:
        return f"what their environments did cannot be read: {problem}"
    for seed, theirs in pairs:
        compared = compare_work(work[seed], theirs) if seed in work else None
        if compared is not None and compared.different:
            num, of = len(compared.different), len(compared.different) + compared.num_same
            return (
                f"their environments did not do the same work: with seed {seed}, {num} of {of} got "
                "other actions, rewards or ends; if they never do the same twice, use --protocol steady"
            )
    return ""


def _lost(cell: CellRuns) -> int:
    """Number of runs that did not finish."""
    return sum(count for status, count in cell.summary.statuses.items() if status != "finished")
