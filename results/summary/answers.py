"""The answer in a few sentences for each scenario and workload."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from results.records import labels
from results.summary.document import CellSummary, Comparison, Estimate
from results.summary.findings import faster_but_worse, held_back


def answer(cells: Sequence[CellSummary], comparisons: Sequence[Comparison], reference: str | None = None) -> list[str]:
    """Which system is fastest on the most GPUs, by how much, and what bounds it: a text per work, in cell order.

    The text also names what limits the answer: numbers of GPUs and systems without a finished run, ties, and learning
    that is worse than the reference's.
    """
    groups: dict[tuple[str, str, str, str], list[CellSummary]] = defaultdict(list)
    for cell in cells:
        groups[cell.sweep, cell.scenario, cell.workload, cell.kind].append(cell)
    several = len({cell.sweep for cell in cells}) > 1
    texts = []
    for (sweep, scenario, workload, kind), group in groups.items():
        own = [c for c in comparisons if (c.sweep, c.scenario, c.workload, c.kind) == (sweep, scenario, workload, kind)]
        sentences = _sentences(group, own, reference)
        texts.append(f"{scenario}, {workload}{f' (sweep {sweep})' if several else ''}: {'. '.join(sentences)}.")
    return texts


def _sentences(group: Sequence[CellSummary], comparisons: Sequence[Comparison], reference: str | None) -> list[str]:
    """The sentences for one work in one sweep, without full stops."""
    finished = [cell for cell in group if cell.steps_per_s is not None]
    if not finished:
        return ["no run finished"]
    best = max(finished, key=lambda cell: (cell.gpus, _rate(cell)))
    most = max(group, key=lambda cell: cell.gpus)
    beside = [c for c in comparisons if c.gpus == best.gpus]
    beaten = [c for c in beside if c.system == best.system]
    said = f"no run on {labels.ranks(most.gpus, most.device)} finished; " if most.gpus > best.gpus else ""
    said += f"on {labels.ranks(best.gpus, best.device)} `{best.system}` makes {labels.number(_rate(best))} steps/s"
    if against := _told(beaten, reference):
        said += ", " + _joined([f"{_times(c.ratio)} as many as {_named(c)}" for c in against])
    if tied := [_named(c) for c in beaten if c.ratio.low is not None and c.ratio.low <= 1]:
        said += f"; the intervals do not tell it from {_joined(tied)}"
    if best.scaling is not None and best.scaling_base_gpus not in {None, best.gpus}:
        said += f"; that is {_times(best.scaling)} what it makes on {best.scaling_base_gpus}"
    sentences = [said]
    if slowed := held_back(cell for cell in finished if cell.gpus == best.gpus):
        named = _joined([f"`{cell.system}` ({100 * (cell.core_wait or 0):.0f} % of the time)" for cell in slowed])
        low = "so their figures are too low" if len(slowed) > 1 else "so its figure is too low"
        sentences.append(f"The machine had too few cores for that: {named} waited for one, {low}")
    if best.bottleneck is not None:
        sentences.append(f"It is {best.bottleneck.sentence}")
    if num_lost := sum(best.statuses.values()) - len(best.seeds):
        sentences.append(f"{num_lost} of its {sum(best.statuses.values())} runs did not finish")
    there = {cell.system for cell in finished if cell.gpus == best.gpus}
    if missing := [f"`{name}`" for name in dict.fromkeys(cell.system for cell in group) if name not in there]:
        sentences.append(f"There is no finished run of {_joined(missing)} on as many")
    on_most = [cell for cell in finished if cell.gpus == best.gpus]
    if worse := [f"`{cell.system}`" for cell in faster_but_worse(on_most, beside, reference)]:
        what = "which it beats" if len(worse) == 1 else "which they beat"
        learns = "learns" if len(worse) == 1 else "learn"
        sentences.append(f"From as many env steps {_joined(worse)} {learns} worse than `{reference}`, {what} on speed")
    return sentences


def _told(beaten: Sequence[Comparison], reference: str | None) -> list[Comparison]:
    """Of the systems that the fastest beats: the slowest, the next fastest, the reference; tables have the others."""
    clear = sorted((c for c in beaten if c.ratio.low is None or c.ratio.low > 1), key=lambda c: -c.ratio.value)
    kept = {c.against for c in (clear[0], clear[-1])} if clear else set()
    return [c for c in clear if c.against in kept or c.against == reference]


def _named(comparison: Comparison) -> str:
    """The system that the fastest is compared with, and what weakens the comparison."""
    notes = ["no interval"] if comparison.ratio.low is None else []
    if not comparison.comparable:
        notes.append("not comparable")
    return f"`{comparison.against}`" + (f" ({', '.join(notes)})" if notes else "")


def _rate(cell: CellSummary) -> float:
    assert cell.steps_per_s is not None
    return cell.steps_per_s.value


def _times(ratio: Estimate) -> str:
    if ratio.low is None or ratio.high is None:
        return f"{ratio.value:.2f}x"
    return f"{ratio.value:.2f}x [{ratio.low:.2f}, {ratio.high:.2f}]"


def _joined(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
