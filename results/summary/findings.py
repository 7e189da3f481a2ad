"""Problems that spoil the figures of a set of runs, or may spoil them: the first thing that a report says.

Findings are the warnings in the records, and what follows from them: rates that are not steady, shared cores or GPUs,
GPUs that others use or that are throttled, sweeps that were resumed on another machine. Warnings of several runs that
differ only in numbers are merged into one, with the range of the numbers.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from rlbench.results.fairness.aspects import gpus_of, usable_cores
from rlbench.results.fairness.differences import Difference, find_changes
from rlbench.results.reading.untrusted import visible
from rlbench.results.records import labels
from rlbench.results.records.schema import Evenness, RunRecord
from rlbench.results.records.store import Unreadable
from rlbench.results.records.units import common
from rlbench.results.summary.document import CellSummary, Comparison, Finding

BUSY_CORES_SHARE = 0.9
"""If the cores are busier than this, there are too few: processes wait for one."""
CORE_WAIT_SHARE = 0.15
"""If ranks on emulated GPUs wait for a core for more of their time than this, the machine distorts their figures."""
FOREIGN_GPU_MEMORY_SHARE = 0.05
"""If more of a GPU's memory than this is in use before a sweep begins, somebody else is using the GPU."""
UNEVEN_P = 1e-3
"""If chance gives as uneven shares with less than this probability, and `UNEVEN_DISTANCE` is exceeded, a finding says
so. Simulated even shares that depend on their neighbours (`tests/results/statistics/test_evenness.py`) come out as less
likely in at most 1.2 % of experiments with 5 to 31 blocks."""
UNEVEN_DISTANCE = 0.01
"""Part of the samples that would have to be of other environments; less is no matter, however certain."""
FAVOURED = 0.5
"""A rank correlation of speed and share beyond this, either way, is said."""
TAKES_WHAT_COMES = {
    ("rollout", "Variable"): "takes the env steps that end first",
    ("rollout", "Trajectories"): "takes the trajectories that end first",
    ("preempt", "Threshold"): "cuts stragglers",
    ("preempt", "Optimal"): "cuts stragglers",
    ("average", "Gossip"): "has ranks that wait for no other",
    ("average", "Elastic"): "has ranks that wait for no other",
    ("average", "ParameterServer"): "has ranks that wait for no other",
}
"""Choices of rlbench's own systems, as configurations name them, that learn from environments unevenly by design."""
NUMBER = re.compile(r"(?<![\w.])(?<!GPU )(?<!rank )\d+(?:,\d{3})*(?:\.\d+)?")
"""A quantity; the number of a GPU or a rank does not match, because it is a name."""


def find_all(
    records: Sequence[RunRecord], unreadable: Sequence[Unreadable] = (), repeated: Sequence[RunRecord] = ()
) -> list[Finding]:
    """All findings: folders that cannot be read, runs that did not finish, then warnings about the others.

    Args:
        records: the runs that count, one for each cell of a sweep.
        unreadable: folders that cannot be read.
        repeated: other runs of the same cells, which do not count.
    """
    ids = _Ids([*records, *repeated])
    found = [Finding(severity="unreadable", text=each.reason, runs=[visible(str(each.path))]) for each in unreadable]
    found += _failures(records, ids)
    again = [(f"{run.status}, and was run again: {label(run)}: {run.reason}", run) for run in repeated if run.reason]
    warnings = _merged([*again, *((text, run) for run in records for text in _warnings(run))], ids)
    found += [Finding(severity="warning", text=text, runs=runs) for text, runs in warnings]
    found += _changes(records, ids)
    return found


def label(record: RunRecord, seeds: Sequence[int] = ()) -> str:
    """A run in words; with several `seeds`, the runs that differ only in these."""
    cell = record.cell
    told = sorted(seeds) if len(seeds) > 1 else [cell.seed]
    seed = f"{'seeds' if len(told) > 1 else 'seed'} {', '.join(map(str, told))}"
    ranks = labels.ranks(cell.gpus, cell.device)
    return f"{labels.system(cell)}, {labels.scenario(cell)}, {cell.workload}, {ranks}, {seed}"


def faster_but_worse(
    cells: Iterable[CellSummary], comparisons: Sequence[Comparison], reference: str | None
) -> list[CellSummary]:
    """The cells that are faster than the reference but learn worse, each beyond the interval."""
    faster = {
        (c.sweep, c.scenario, c.workload, c.gpus, c.system)
        for c in comparisons
        if c.against == reference and (c.ratio.value if c.ratio.low is None else c.ratio.low) > 1
    }
    return [
        cell
        for cell in cells
        if cell.learning is not None
        and cell.learning.against_reference == "worse"
        and (cell.sweep, cell.scenario, cell.workload, cell.gpus, cell.system) in faster
    ]


def find_bought_speed(
    cells: Sequence[CellSummary], comparisons: Sequence[Comparison], reference: str | None
) -> list[Finding]:
    """Warns of speed at the cost of learning: a warning for each system and work, with the numbers of GPUs."""
    alike: dict[tuple[str, ...], list[CellSummary]] = defaultdict(list)
    for cell in faster_but_worse(cells, comparisons, reference):
        alike[cell.sweep, cell.system, cell.scenario, cell.workload, cell.device].append(cell)
    several = len({cell.sweep for cell in cells}) > 1
    found = []
    for (_, system, scenario, workload, device), group in alike.items():
        gpus = [labels.ranks(cell.gpus, device) for cell in group]
        steps = common(cell.unit for cell in group)
        text = f"{system} is faster than {reference} but learns worse from as many {steps}: {scenario}, {workload}"
        runs = [f"{cell.sweep}/{run}" if several else run for cell in group for run in cell.runs]
        found.append(Finding(severity="warning", text=f"{text}, {', '.join(gpus)}", runs=runs))
    return found


def held_back(cells: Iterable[CellSummary]) -> list[CellSummary]:
    """The cells on emulated GPUs whose ranks waited so long for a core that their figures are too low."""
    return [c for c in cells if c.kind == "emulated" and c.core_wait is not None and c.core_wait > CORE_WAIT_SHARE]


class _Ids:
    """Names runs by id, or by `sweep/id` if there are several sweeps: ids are unique only within a sweep."""

    def __init__(self, records: Iterable[RunRecord]) -> None:
        self._several = len({record.sweep for record in records}) > 1

    def of(self, record: RunRecord) -> str:
        return f"{record.sweep}/{record.id}" if self._several else record.id


def _failures(records: Iterable[RunRecord], ids: _Ids) -> Iterator[Finding]:
    """One finding for all runs that ended in the same way and differ only in their seeds."""
    alike: dict[tuple[str, ...], list[RunRecord]] = defaultdict(list)
    for record in records:
        if record.reason:
            work = (labels.system(record.cell), labels.scenario(record.cell), record.cell.workload, record.cell.device)
            alike[record.sweep, record.status, record.reason, str(record.cell.gpus), *work].append(record)
    for runs in alike.values():
        named = label(runs[0], [run.cell.seed for run in runs])
        text = f"{runs[0].status}: {named}: {runs[0].reason}"
        yield Finding(severity="failed", text=text, runs=[ids.of(run) for run in runs])


def _warnings(run: RunRecord) -> Iterator[str]:
    """The run's own warnings, and those that follow from its figures and its machine."""
    window = run.figures.window
    if run.status == "finished" and window is not None and not window.steady:
        yield f"not steady: {window.reason}"
    yield from run.warnings
    if not run.figures.predicted:
        yield from _crowded(run)
    yield from _uneven(run)
    if run.cell.device == "cuda":
        yield from (text for gpu in gpus_of(run) for text in _of_gpu(gpu))


def _uneven(run: RunRecord) -> Iterator[str]:
    """Warnings that environments, or their agents, are not learned from alike, or not kept alike.

    Agents that leave early are rightly learned from less: their shares say nothing.
    """
    found, has_agents = run.learned_from, run.counters.unit == "agent steps"
    if found is None:
        return
    if _differs(found.shares) and not has_agents:
        fast = found.fast_favoured or 0.0
        who = f"{'fast' if fast > 0 else 'slow'} environments" if abs(fast) >= FAVOURED else "some environments"
        shares = found.shares
        yield (
            f"{who} are learned from more: an environment's share is at least {100 * shares.least:.2g} % and at most "
            f"{100 * shares.most:.2g} % of the samples, where {100 * shares.even:.2g} % would be even{_by_design(run)}"
        )
    if found.kept is not None and _differs(found.kept):
        kept = found.kept
        yield (
            f"samples are not discarded alike: of one {'agent' if has_agents else 'environment'} at least "
            f"{100 * kept.least:.3g} % and at most "
            f"{100 * kept.most:.3g} % were learned, of all {100 * kept.even:.3g} %; the rest was too old"
        )


def _differs(figure: Evenness) -> bool:
    return figure.p is not None and figure.p < UNEVEN_P and figure.distance > UNEVEN_DISTANCE


def _by_design(run: RunRecord) -> str:
    """Why a system learns from what comes first, where its choices say so."""
    system = run.configuration.get("system")
    chosen = system if isinstance(system, Mapping) else {}
    kinds = {(name, choice.get("kind")) for name, choice in chosen.items() if isinstance(choice, Mapping)}
    why = list(dict.fromkeys(text for choice, text in TAKES_WHAT_COMES.items() if choice in kinds))
    return f"; {run.cell.system} {' and '.join(why)}, by design" if why else ""


def _crowded(run: RunRecord) -> Iterator[str]:
    usable, busy = usable_cores(run), run.figures.cpu_percent.value
    if run.cell.device != "emulated" and usable and busy is not None and busy > 100 * usable * BUSY_CORES_SHARE:
        were, they_are = ("core was", "it is") if usable == 1 else ("cores were", "they are")
        yield f"the {usable:g} {were} {busy / usable:.0f} % busy: {they_are} oversubscribed, processes wait for one"
    if run.cell.device == "cpu" and usable and run.cell.gpus > usable:
        yield f"{run.cell.gpus} CPU ranks share {usable:g} cores"
    num_gpus = len(gpus_of(run))
    if run.cell.device == "cuda" and 0 < num_gpus < run.cell.gpus:
        yield f"{run.cell.gpus} ranks share {num_gpus} {'GPU' if num_gpus == 1 else 'GPUs'}"


def _of_gpu(gpu: Mapping[str, Any]) -> Iterator[str]:
    """Warnings about a GPU before the sweep began: whatever was running on it then was somebody else's."""
    name = f"GPU {gpu.get('index')} ({gpu.get('name')})"
    if slowdowns := _list(gpu.get("slowdowns")):
        yield f"{name} was held back by {', '.join(map(str, slowdowns))} when the sweep began"
    processes = _list(gpu.get("process_ids"))
    used, memory = (_number(gpu.get(name)) for name in ("memory_used_bytes", "memory_bytes"))
    if processes or used > FOREIGN_GPU_MEMORY_SHARE * memory > 0:
        share = f"{100 * used / memory:.0f} % of its memory was" if memory else "its memory was"
        yield f"{name} had {len(processes)} foreign processes when the sweep began, and {share} in use"


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else ()


def _number(value: Any) -> float:
    return value if isinstance(value, (int, float)) else 0


def _merged(told: Sequence[tuple[str, RunRecord]], ids: _Ids) -> Iterator[tuple[str, list[str]]]:
    """Merges texts that differ only in numbers, unless they are of the same run; with the runs of each."""
    alike: dict[tuple[str, int], list[tuple[str, str]]] = defaultdict(list)
    times: dict[tuple[str, str], int] = defaultdict(int)
    for text, run in dict.fromkeys((text, ids.of(run)) for text, run in told):
        pattern = NUMBER.sub("#", text)
        alike[pattern, times[pattern, run]].append((text, run))
        times[pattern, run] += 1
    for each in alike.values():
        yield _ranged([text for text, _ in each]), [run for _, run in each]


def _ranged(texts: Sequence[str]) -> str:
    """One text for several that differ only in numbers: `the 2 cores were 91 to 93 % busy`."""
    columns = iter(zip(*(NUMBER.findall(text) for text in texts), strict=True))

    def spread(_: re.Match[str]) -> str:
        numbers = sorted(next(columns), key=lambda number: float(number.replace(",", "")))
        return numbers[0] if numbers[0] == numbers[-1] else f"{numbers[0]} to {numbers[-1]}"

    return NUMBER.sub(spread, texts[0])


def _changes(records: Iterable[RunRecord], ids: _Ids) -> Iterator[Finding]:
    """Sweeps whose runs were not made in the same surroundings: resumed elsewhere, or after an upgrade."""
    sweeps: dict[str, list[RunRecord]] = defaultdict(list)
    for record in records:
        if record.status == "finished":
            sweeps[record.sweep].append(record)
    severity: Literal["warning"] = "warning"
    for runs in sweeps.values():
        by_id = {run.id: run for run in runs}
        for changed in find_changes(runs):
            common = max(changed.values.values(), key=len)
            others = [name for names in changed.values.values() if names is not common for name in names]
            text = (
                f"the runs of a sweep differ in {_counted(changed)}; its scaling factors and means over seeds mix them"
            )
            yield Finding(severity=severity, text=text, runs=[ids.of(by_id[name]) for name in others])


def _counted(changed: Difference) -> str:
    told = (f"{value} ({len(names)} {'run' if len(names) == 1 else 'runs'})" for value, names in changed.values.items())
    return f"{changed.aspect}: {', '.join(told)}"
