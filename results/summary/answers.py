"""The answer in a few sentences for each scenario and workload."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from rlbench.results.records import labels, units
from rlbench.results.summary.document import CellSummary, Comparison, Estimate, ToThreshold
from rlbench.results.summary.findings import faster_but_worse, held_back


def answer(
    cells: Sequence[CellSummary],
    comparisons: Sequence[Comparison],
    reference: str | None = None,
) -> list[str]:
    """Which system is best on the most GPUs, by how much, and what bounds it: a text per work, in cell order.

    Where runs had a threshold to reach, the text begins with who reached it first and at what cost. It also names what
    limits the answer: numbers of GPUs and systems without a finished run, systems that may not be compared, ties, and
    learning that is worse than the reference's.

    Args:
        cells: of one or several sweeps.
        comparisons: of those that lead with all others of their work and number of GPUs.
        reference: the system that others are held against.
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
    best = max(finished, key=lambda cell: (cell.gpus, cell.leads, _rate(cell)))
    most = max(group, key=lambda cell: cell.gpus)
    on_most = [cell for cell in finished if cell.gpus == best.gpus]
    beside = [c for c in comparisons if c.gpus == best.gpus]
    held = [c for c in beside if c.system == best.system]
    unlike = {c.against for c in held if not c.comparable}
    beaten = [c for c in held if c.comparable]
    sentences = _on_threshold([cell for cell in on_most if cell.system not in unlike])
    speed = _on_speed(best, most, beaten, reference)
    sentences.append(speed[0].upper() + speed[1:] if sentences else speed)
    if slowed := held_back(on_most):
        named = _joined([f"`{cell.system}` ({100 * (cell.core_wait or 0):.0f} % of the time)" for cell in slowed])
        low = "so their figures are too low" if len(slowed) > 1 else "so its figure is too low"
        sentences.append(f"The machine had too few cores for that: {named} waited for one, {low}")
    if best.bottleneck is not None:
        sentences.append(f"It is {best.bottleneck.sentence}")
    if num_lost := sum(best.statuses.values()) - len(best.seeds):
        sentences.append(f"{num_lost} of its {sum(best.statuses.values())} runs did not finish")
    there = {cell.system for cell in on_most}
    if missing := [f"`{name}`" for name in dict.fromkeys(cell.system for cell in group) if name not in there]:
        sentences.append(f"There is no finished run of {_joined(missing)} on as many")
    if apart := [f"`{cell.system}` ({_rates(cell)})" for cell in on_most if cell.system in unlike]:
        sentences.append(f"Not comparable with it: {_joined(apart)}")
    if worse := [f"`{cell.system}`" for cell in faster_but_worse(on_most, beside, reference)]:
        what = "which it beats" if len(worse) == 1 else "which they beat"
        learns = "learns" if len(worse) == 1 else "learn"
        steps = units.common(cell.unit for cell in on_most)
        sentences.append(f"From as many {steps} {_joined(worse)} {learns} worse than `{reference}`, {what} on speed")
    return sentences


def _on_speed(best: CellSummary, most: CellSummary, beaten: Sequence[Comparison], reference: str | None) -> str:
    """The rate of `best`, which others it beats or is not told from, and what it gains from its GPUs."""
    said = f"no run on {labels.ranks(most.gpus, most.device)} finished; " if most.gpus > best.gpus else ""
    said += f"on {labels.ranks(best.gpus, best.device)} `{best.system}` makes {_rates(best)}"
    if against := _told(beaten, reference):
        said += ", " + _joined([f"{multiple(c.ratio)} as many as {_named(c)}" for c in against])
    if tied := [_named(c) for c in beaten if c.ratio.low is not None and c.ratio.low <= 1]:
        said += f"; the intervals do not tell it from {_joined(tied)}"
    if best.scaling is not None and best.scaling_base_gpus not in {None, best.gpus}:
        said += f"; that is {multiple(best.scaling)} what it makes on {best.scaling_base_gpus}"
    return said


@dataclass(frozen=True, kw_only=True, slots=True)
class Race:
    """Which system reached the threshold of its runs first, in the median run, and at what cost."""

    goal: str
    """`return 300`."""
    first: str | None
    """None, if no system reached it in half of its runs."""
    costs: list[str]
    """Seconds, samples and, on several GPUs, GPU-seconds, as far as they are known: `38 s`."""
    later: list[tuple[str, float]]
    """The others that reached it, and after how many times as long."""
    missed: list[str]


def reached(cells: Sequence[CellSummary]) -> Race | None:
    """Who reached the threshold that the runs of some cells had first; None without one."""
    asked = [cell for cell in cells if cell.learning is not None and cell.learning.threshold is not None]
    if not asked:
        return None
    costs = {cell.system: {each.cost: each.value for each in _costs(cell)} for cell in asked}
    arrived = sorted((seconds, name) for name, cost in costs.items() if (seconds := cost.get("seconds")) is not None)
    learning = asked[0].learning
    assert learning is not None
    goal = f"{learning.metric} {learning.threshold:g}"
    if not arrived:
        return Race(goal=goal, first=None, costs=[], later=[], missed=list(costs))
    (seconds, first), *later = arrived
    known = [
        (costs[first].get("env_steps"), units.common(cell.unit for cell in asked)),
        *([] if all(cell.gpus == 1 for cell in asked) else [(costs[first].get("gpu_seconds"), "GPU-seconds")]),
    ]
    return Race(
        goal=goal,
        first=first,
        costs=[
            f"{labels.number(seconds)} s",
            *(f"{labels.number(value)} {name}" for value, name in known if value is not None),
        ],
        later=[(name, value / seconds) for value, name in later],
        missed=[name for name in costs if name not in {name for _, name in arrived}],
    )


def _on_threshold(cells: Sequence[CellSummary]) -> list[str]:
    """Who reached the threshold that the runs had first, and what it cost in the median run; nothing without one."""
    race = reached(cells)
    if race is None:
        return []
    if race.first is None:
        return [f"no system reached {race.goal} in half of its runs"]
    said = f"`{race.first}` reached {race.goal} first: after {', '.join(race.costs)}"
    if race.later:
        said += f"; {_joined([f'`{name}` after {times:.2g}x that time' for name, times in race.later])}"
    if race.missed:
        said += f"; {_joined([f'`{name}`' for name in race.missed])} did not, in half of the runs"
    return [said]


def _costs(cell: CellSummary) -> Sequence[ToThreshold]:
    return [] if cell.learning is None else cell.learning.to_threshold


def _told(beaten: Sequence[Comparison], reference: str | None) -> list[Comparison]:
    """Of the systems that the fastest beats: the slowest, the next fastest, the reference; tables have the others."""
    clear = sorted((c for c in beaten if c.ratio.low is None or c.ratio.low > 1), key=lambda c: -c.ratio.value)
    kept = {c.against for c in (clear[0], clear[-1])} if clear else set()
    return [c for c in clear if c.against in kept or c.against == reference]


def _named(comparison: Comparison) -> str:
    """The system that the fastest is compared with, and whether there is no interval."""
    return f"`{comparison.against}`" + (" (no interval)" if comparison.ratio.low is None else "")


def _rate(cell: CellSummary) -> float:
    assert cell.steps_per_s is not None
    return cell.steps_per_s.value


def _rates(cell: CellSummary) -> str:
    """`1,234 steps/s`; where environments have several agents, `1,234 agent steps/s (411 env steps/s)`."""
    said = f"{labels.number(_rate(cell))} {units.rate(cell.unit)}"
    beside = cell.env_steps_per_s
    return said if beside is None else f"{said} ({labels.number(beside)} {units.ENV_RATE})"


def multiple(ratio: Estimate) -> str:
    """A multiple with its interval, if it has one: `1.16x [1.13, 1.19]`.

    It has no more digits than two of the interval's half width, or three of the multiple.
    """
    if ratio.low is None or ratio.high is None:
        return f"{labels.number(ratio.value)}x"
    half = (ratio.high - ratio.low) / 2
    decimals = min(max(1 - math.floor(math.log10(half)), 0), 2) if half > 0 else 2
    return f"{ratio.value:.{decimals}f}x [{ratio.low:.{decimals}f}, {ratio.high:.{decimals}f}]"


def _joined(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
