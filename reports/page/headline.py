"""What a report says first: its title, and three tiles for each work and number of GPUs.

The tiles say which system is fastest and by how much, why, and the caveat that matters most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rlbench.reports.figures.columns import off_held_out, spread_of
from rlbench.reports.page.charts.works import Placed, Work
from rlbench.results.records import labels, units
from rlbench.results.summary.answers import Race, multiple, reached
from rlbench.results.summary.document import CellSummary, Comparison, Summary
from rlbench.results.summary.findings import held_back

MOST_NAMED = 3
PREFERRED = ("measured", "emulated", "predicted")
"""Where a work has several kinds of figures, the first of these is the headline's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tile:
    """A tile; words between backticks are code."""

    heading: str
    value: str
    lines: Sequence[str]
    about: Mapping[str, str] = field(default_factory=dict)
    """The rivals that lines are about, by line: the page shows the line of the first that its filters let through, and
    that of the baseline."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Headline:
    """What the tiles say of a cell, where filters let no cell through that is to be named before it."""

    best: Placed
    tiles: Sequence[Tile]
    winner: str | None = None
    """The system that reached a threshold first, if the first tile is about that."""
    instead: Tile | None = None
    """The first tile where filters hide that system."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What is said of a work on a number of GPUs."""

    gpus: int
    headlines: Sequence[Headline]
    """One for each cell; the page shows the first that its filters let through."""
    apart: frozenset[int]
    """Places of cells that may not be compared with the fastest, or are of another sweep or kind."""
    of_several: bool
    """Whether there are cells of other sweeps or kinds."""
    bounds: Mapping[str, Sequence[str]]
    """The systems that each stage bounds."""

    @property
    def best(self) -> Placed:
        """The cell that is named where nothing is filtered."""
        return self.headlines[0].best


def title(summary: Summary) -> str:
    """What was compared, as in `sync, ver and 4 more on open-fridge, 1 to 256 GPUs, predicted`."""
    if not summary.cells:
        return "No runs"
    systems = list(dict.fromkeys(cell.system for cell in summary.cells))
    scenarios = list(dict.fromkeys(_short(cell.scenario) for cell in summary.cells))
    kinds = [kind for kind in PREFERRED if any(cell.kind == kind for cell in summary.cells)]
    of_kind = [] if kinds == ["measured"] else [" and ".join(kinds)]
    return ", ".join([f"{_several(systems)} on {_several(scenarios)}", _gpus(summary.cells), *of_kind])


def _short(scenario: str) -> str:
    """`open-fridge` for `emulated/open-fridge:time_scale=0.5`."""
    return scenario.partition(":")[0].rpartition("/")[2] or scenario


def _several(names: Sequence[str]) -> str:
    if len(names) > MOST_NAMED:
        return f"{', '.join(names[: MOST_NAMED - 1])} and {len(names) - MOST_NAMED + 1} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _gpus(cells: Iterable[CellSummary]) -> str:
    counts = sorted({cell.gpus for cell in cells})
    what = "CPU rank" if all(cell.device == "cpu" for cell in cells) else "GPU"
    what += "" if counts == [1] else "s"
    return f"{counts[0]} {what}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} {what}"


def verdicts(work: Work, summary: Summary) -> list[Verdict]:
    """The tiles of a work, on each number of GPUs on which a run finished, ascending."""
    return [_verdict(work, gpus, summary) for gpus in work.gpus]


def _verdict(work: Work, gpus: int, summary: Summary) -> Verdict:
    there = [placed for series in work.series if (placed := series.on(gpus))]
    key = (work.scenario, work.workload, gpus)
    compared = [each for each in summary.comparisons if (each.scenario, each.workload, each.gpus) == key]
    order = _in_order(there, compared)
    best = order[0].cell
    group = [each for each in there if _race_of(each) == _race_of(order[0])]
    against = _against(best, compared)
    fair = {best.system, *(each.against for each in against if each.comparable)}
    within = {placed.place for placed in group if not against or placed.cell.system in fair}
    return Verdict(
        gpus=gpus,
        headlines=[_headline(work, order[at:], compared, summary) for at in range(len(order))],
        apart=frozenset(placed.place for placed in there if placed.place not in within),
        of_several=len(group) < len(there),
        bounds=_bounds(group),
    )


def _race_of(placed: Placed) -> tuple[str, str]:
    """Cells of one kind and sweep are held against each other."""
    return placed.cell.kind, placed.cell.sweep


def _in_order(there: Sequence[Placed], compared: Sequence[Comparison]) -> list[Placed]:
    """Cells on a number of GPUs as they are to be named.

    Measured ones come first, then those of the newest sweep, its leader, what may be compared with that, the fastest.
    """
    leaders = [placed.cell for placed in there if placed.cell.leads]
    beside = [each for cell in leaders for each in _against(cell, compared) if each.comparable]
    fair = {(each.kind, each.sweep, each.against) for each in beside}

    def key(placed: Placed) -> tuple[int, str, bool, bool, float]:
        cell = placed.cell
        is_fair = (cell.kind, cell.sweep, cell.system) in fair
        return -PREFERRED.index(cell.kind), cell.sweep, cell.leads, is_fair, _rate(cell)

    return sorted(there, key=key, reverse=True)


def _headline(work: Work, order: Sequence[Placed], compared: Sequence[Comparison], summary: Summary) -> Headline:
    """The tiles of the first of these cells, beside those of the others."""
    best = order[0]
    against = _against(best.cell, compared)
    group = [placed for placed in order if _race_of(placed) == _race_of(best)]
    race = reached([placed.cell for placed in group])
    is_beaten = any(_rate(placed.cell) > _rate(best.cell) for placed in group)
    told = _told(against, {placed.cell.system: placed.cell for placed in group}, summary.reference)
    of_sweep = len({placed.cell.sweep for placed in order}) > 1
    is_alone = not any(each.comparable for each in against)
    fastest = _fastest(work, best.cell, told, is_beaten=is_beaten, is_alone=is_alone, of_sweep=of_sweep)
    tiles = [
        fastest if race is None else _first(work, best.cell, race, fastest),
        _why(best.cell),
        _caveat(work, best.cell, [placed.cell for placed in group], against, summary),
    ]
    if race is None or race.first is None:
        return Headline(best=best, tiles=tiles)
    return Headline(best=best, tiles=tiles, winner=race.first, instead=fastest)


def _against(cell: CellSummary, compared: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons of a cell with others; those of others with it are turned round."""
    found = []
    for each in compared:
        if (each.kind, each.sweep) != (cell.kind, cell.sweep):
            continue
        if each.system == cell.system:
            found.append(each)
        elif each.against == cell.system and each.ratio.value > 0:
            low, high = (1 / end if end else None for end in (each.ratio.high, each.ratio.low))
            ratio = each.ratio.model_copy(update={"value": 1 / each.ratio.value, "low": low, "high": high})
            found.append(each.model_copy(update={"system": each.against, "against": each.system, "ratio": ratio}))
    return found


def _bounds(group: Sequence[Placed]) -> dict[str, list[str]]:
    by_stage: dict[str, list[str]] = {}
    for placed in group:
        if placed.cell.bottleneck is not None:
            by_stage.setdefault(placed.cell.bottleneck.stage, []).append(placed.cell.system)
    return by_stage


def _rate(cell: CellSummary) -> float:
    assert cell.steps_per_s is not None
    return cell.steps_per_s.value


def _fastest(
    work: Work, best: CellSummary, told: Mapping[str, str], *, is_beaten: bool, is_alone: bool, of_sweep: bool
) -> Tile:
    """The fastest system, and how many times as fast it is as others.

    `told`: lines about others, and their names; `is_beaten`: by a system that may not be compared with it;
    `is_alone`: no system may be; `of_sweep`: the work has several sweeps.
    """
    rate = f"{labels.number(_rate(best))} {units.rate(best.unit)}"
    if best.env_steps_per_s is not None:
        rate += f" ({labels.number(best.env_steps_per_s)} {units.ENV_RATE})"
    alone = ["Nothing comparable ran beside it."] if is_alone else []
    sweep = [f"Of sweep {best.sweep}; the others' bars are pale."] if of_sweep else []
    most = ", the largest number" if best.gpus == work.gpus[-1] and len(work.gpus) > 1 else ""
    where = f"{labels.ranks(best.gpus, best.device)}{most}{'' if work.alone else f'; {work.workload}'}"
    return Tile(
        heading=f"Fastest {'comparable ' if is_beaten else ''}on {where}",
        value=best.system,
        lines=[rate, *told, *alone, *sweep],
        about=told,
    )


def _first(work: Work, best: CellSummary, race: Race, fastest: Tile) -> Tile:
    """Who reached the threshold of the runs first, and then who is fastest."""
    where = f"{labels.ranks(best.gpus, best.device)}{'' if work.alone else f', {work.workload}'}"
    heading = f"First to {race.goal} on {where}"
    speed = f"Fastest: `{fastest.value}`, {fastest.lines[0]}"
    if race.first is None:
        return Tile(heading=heading, value="None", lines=["No system got there in half of its runs.", speed])
    lines = [f"{', '.join(race.costs)}, in the median run"]
    lines += [f"`{name}` after {times:.2g}x that time" for name, times in race.later[:2]]
    return Tile(heading=heading, value=race.first, lines=[*lines, speed])


def _told(against: Sequence[Comparison], cells: Mapping[str, CellSummary], reference: str | None) -> dict[str, str]:
    """How many times as fast the fastest system is as each of the `cells`, the next first, and whose line that is."""
    fair = sorted((each for each in against if each.comparable), key=lambda each: each.ratio.value)
    return {_than(each, cells, reference): each.against for each in fair if each.against in cells}


def _than(each: Comparison, cells: Mapping[str, CellSummary], reference: str | None) -> str:
    baseline = ", the baseline" if each.against == reference else ""
    ratio = each.ratio
    if ratio.low is None or ratio.high is None:
        of = {name: cells[name].steps_per_s for name in (each.against, each.system)}
        few = [f"`{name}`" for name, rate in of.items() if rate and rate.low is None]
        said = f"no interval: too few iterations or seeds of {' and '.join(few)}" if few else "no interval"
        return f"{labels.number(ratio.value)}x as fast as `{each.against}`{baseline} ({said})"
    if ratio.low <= 1 <= ratio.high:
        return f"no significant difference from `{each.against}`{baseline} ({multiple(ratio)})"
    times, _, interval = multiple(ratio).partition(" ")
    return f"{times} as fast as `{each.against}`{baseline} {interval}"


def _why(best: CellSummary) -> Tile:
    """What bounds the fastest system, and what it gains from its GPUs."""
    lines = []
    if best.bottleneck is not None:
        bound, _, gain = best.bottleneck.sentence.partition(": ")
        value, lines = bound[:1].upper() + bound[1:], [gain] if gain else []
    else:
        largest = max(best.time_shares, key=best.time_shares.__getitem__, default=None)
        value = "Not known" if largest is None else f"Mostly {largest}"
    if best.scaling is not None and best.scaling_base_gpus not in {None, best.gpus} and best.efficiency is not None:
        base = labels.ranks(best.scaling_base_gpus or 1, best.device)
        lines.append(f"{multiple(best.scaling)} its rate on {base}: {best.efficiency.value:.0%} efficiency")
    return Tile(heading=f"What limits {best.system}", value=value, lines=lines)


def _caveat(
    work: Work, best: CellSummary, group: Sequence[CellSummary], against: Sequence[Comparison], summary: Summary
) -> Tile:
    """The caveat that matters most; the others are counted."""
    partial = [("Partial sweep", f"{each.text}.") for each in summary.findings if each.severity == "partial"]
    found = [*partial[:1], *_caveats(work, best, group, against)]
    more = sum(finding.severity != "failed" for finding in summary.findings)
    if not found:
        said = "No caveat for these figures." if not more else "None for these figures; others are listed below."
        return Tile(heading="Caveat", value="None", lines=[said])
    (value, line), *others = found
    also = [f"Also: {'; '.join(short[0].lower() + short[1:] for short, _ in others)}."] if others else []
    return Tile(heading="Main caveat", value=value, lines=[*([line] if line else []), *also])


def _caveats(
    work: Work, best: CellSummary, group: Sequence[CellSummary], against: Sequence[Comparison]
) -> Iterator[tuple[str, str]]:
    """Caveats of a group of cells, the gravest first: in a few words, and in a sentence."""
    unlike = [each.against for each in against if not each.comparable]
    ended = Counter(
        status for placed in work.cells if placed.cell.gpus == best.gpus
        for status, count in placed.cell.statuses.items() for _ in range(count) if status != "finished"
    )  # fmt: skip
    if best.kind == "predicted":
        yield "Simulated by a model, not measured", off_held_out(best.scenario) or "It speaks of its profile."
    if ended:
        said = ", ".join(f"{count} {status}" for status, count in ended.items())
        yield "Some runs did not finish", f"On {labels.ranks(best.gpus, best.device)}: {said}."
    if slowed := held_back(group):
        yield "Too few cores", f"{_several([cell.system for cell in slowed])} waited for one: the rate is too low."
    if best.kind == "emulated":
        yield "Emulated GPUs", "The figures speak of their profile, not of this machine."
    if best.steady is False:
        yield "Not steady", f"`{best.system}` was not in a steady state for long enough."
    if unlike:
        yield f"Not comparable: {_several(unlike)}", "More than the systems' own choices differs."
    rates = [cell.steps_per_s for cell in group]
    lacking = [cell.system for cell in group if cell.steps_per_s is None or cell.steps_per_s.low is None]
    if not spread_of(rates):
        yield "No intervals", "Runs were too short, or alone."
        return
    if lacking:
        yield f"No interval for {_several(lacking)}", "There are too few iterations or seeds."
    if all(rate is None or rate.units == "iterations" for rate in rates):
        yield "One seed", "Intervals do not cover other runs or seeds."
