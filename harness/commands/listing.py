"""`rlbench list`: systems by their choices, systems of libraries, and scenarios, as tables or as JSON."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rlbench.harness.contract.traits import Traits
from rlbench.harness.metering.counted import shown
from rlbench.harness.plan import libraries, registry
from rlbench.harness.processes.raised import message, told_in_a_line
from rlbench.reports.terminal.table import WIDE, make_console
from rlbench.results.reading.names import known_names
from rlbench.results.reading.untrusted import visible

if TYPE_CHECKING:
    from rich.console import Console

    from rlbench.harness.contract.system import System

CHOICES = ("collect", "rollout", "overlap", "preempt", "average", "correct")
"""Fields of a system; the last one is a learning setting."""
NONE = "-"
MOST_VARIANTS = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedSystem:
    """A row of the table of systems."""

    system: str
    choices: dict[str, str]
    """The variant and the fields that tell it apart, by `CHOICES`; `-` where the system has no such field."""
    about: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedLibrarySystem:
    """A row of the table of systems that need somebody else's library."""

    system: str
    about: str
    library: str
    version: str
    """The version of the library that rlbench needs."""
    installed: bool
    unavailable: str | None
    """Why it cannot run here, with the command that installs it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedScenario:
    """A row of the table of scenarios."""

    scenario: str
    about: str
    variants: tuple[str, ...]
    unavailable: str | None
    """Why it cannot run here."""


def list_systems() -> list[ListedSystem]:
    """Every installed system; for one that cannot be loaded, the reason."""
    return [_listed(name) for name in registry.names(registry.SYSTEMS)]


def _listed(name: str) -> ListedSystem:
    try:
        with told_in_a_line("the system"):
            return _row_of(name, registry.load_system(name, {}))
    except ValueError as error:
        return ListedSystem(system=name, choices=dict.fromkeys(CHOICES, NONE), about=message(error))


def _row_of(name: str, system: System) -> ListedSystem:
    variants = getattr(system, "VARIANTS", {})
    choices = {field: _shown(getattr(system, field, None), variants.get(field, {})) for field in CHOICES}
    learn = getattr(system, "learn", None)
    if isinstance(learn, Mapping):
        choices["correct"] = str(learn.get("correct", "none"))
    return ListedSystem(system=name, choices=choices, about=_text("about", system.about))


def _text(what: str, value: object) -> str:
    """An attribute of somebody else's object, as text for a terminal. Raises ValueError for anything but text."""
    if not isinstance(value, str):
        raise ValueError(f"its {what} is {shown(value)}: it must be text")  # noqa: TRY004  reported like other problems
    return visible(value)


def _shown(choice: Any, variants: Mapping[str, type]) -> str:
    """The variant's name and the fields that tell it apart: `threshold p=0.6`, `optimal fill_stale`, `gossip pull`.

    Those are all fields that are not at their defaults, and the first field unless it is a count, None or False.
    """
    names = [name for name, kind in variants.items() if type(choice) is kind]
    if not names:
        return NONE
    words = [names[0]]
    for number, field in enumerate(dataclasses.fields(choice)):
        value = getattr(choice, field.name)
        is_count = isinstance(value, int) and not isinstance(value, bool)
        if value != field.default or (number == 0 and not is_count and value not in {None, False}):
            words.append(_setting(field.name, value))
    return " ".join(words)


def _setting(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return name if value else f"no {name}"
    return value if isinstance(value, str) else f"{name}={value}"


def _names(what: str, value: object) -> tuple[str, ...]:
    """As `_text`, for several names; a single text is refused, not taken as its letters."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ValueError(f"its {what} are {shown(value)}: they must be names")  # noqa: TRY004  as above
    return tuple(_text(what, one) for one in value)


def list_library_systems() -> list[ListedLibrarySystem]:
    """Every system that needs somebody else's library, whether that is installed or not."""
    listed = (_listed_of_library(name) for name in registry.names(registry.EXTERNAL))
    return [one for one in listed if one is not None]


def _listed_of_library(name: str) -> ListedLibrarySystem | None:
    try:
        with told_in_a_line("the system"):
            system = registry.load_system(name, {})
            about, library = _text("about", system.about), Traits.of(system).library
    except ValueError as error:
        return ListedLibrarySystem(
            system=name, about=NONE, library=NONE, version="", installed=False, unavailable=message(error)
        )
    if library is None:
        return None
    reason = libraries.why_not(library)
    return ListedLibrarySystem(
        system=name,
        about=about,
        library=library.name,
        version=libraries.pinned(library).get(library.distribution, ""),
        installed=reason is None,
        unavailable=reason,
    )


def list_scenarios() -> list[ListedScenario]:
    """Every installed scenario family; for one that cannot be loaded or read, the reason."""
    return [_listed_family(name) for name in registry.names(registry.SCENARIOS)]


def _listed_family(name: str) -> ListedScenario:
    try:
        with told_in_a_line("the scenario"):
            family = registry.load_family(name)
            reason = family.unavailable()
            return ListedScenario(
                scenario=name,
                about=_text("about", family.about),
                variants=_names("variants", family.variants),
                unavailable=None if reason is None else _text("unavailable()", reason),
            )
    except ValueError as error:
        return ListedScenario(scenario=name, about=NONE, variants=(), unavailable=message(error))


def print_lists(what: str | None, *, as_json: bool = False) -> None:
    """Prints systems, scenarios or both. Raises ValueError for anything else."""
    if what not in {None, "systems", "scenarios"}:
        raise ValueError(f"list {what}: unknown; {known_names(what, ('systems', 'scenarios'))}")
    systems = list_systems() if what != "scenarios" else None
    of_libraries = list_library_systems() if what != "scenarios" else None
    scenarios = list_scenarios() if what != "systems" else None
    if as_json:
        lists = {"systems": systems, "library_systems": of_libraries, "scenarios": scenarios}
        document = {name: [asdict(one) for one in listed] for name, listed in lists.items() if listed is not None}
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
        return
    console = make_console()
    if systems is not None:
        console.print(_table_of_systems(systems, console))
    if of_libraries:
        console.print()
        console.print(_table_of_library_systems(of_libraries))
    if what is None:
        console.print()
    if scenarios is not None:
        console.print(_table_of_scenarios(scenarios, all_variants=what is not None))


def _table_of_systems(systems: Sequence[ListedSystem], console: Console) -> Table:
    """A column for each choice where there is room, else all of them in one line above the description."""
    if console.width >= WIDE:
        table = Table("system", *CHOICES, "what it is", box=None, pad_edge=False)
        for one in systems:
            table.add_row(one.system, *(Text(one.choices[field]) for field in CHOICES), Text(one.about))
        return table
    table = Table("system", f"{', '.join(CHOICES)}; what it is", box=None, pad_edge=False)
    for one in systems:
        choices = Text(", ".join(one.choices[field] for field in CHOICES))
        table.add_row(one.system, Group(choices, Padding(Text(one.about), (0, 0, 0, 2))))
    return table


def _table_of_library_systems(systems: Sequence[ListedLibrarySystem]) -> Table:
    table = Table("system of a library", "what it is", "here", box=None, pad_edge=False)
    for one in systems:
        here = f"{one.library} {one.version} is installed" if one.installed else str(one.unavailable)
        table.add_row(one.system, Text(one.about), Text(here, overflow="fold"))  # users copy the command
    return table


def _table_of_scenarios(scenarios: Sequence[ListedScenario], *, all_variants: bool) -> Table:
    table = Table("scenario", "what it is", "here", box=None, pad_edge=False)
    for one in scenarios:
        variants = _variants(one.variants, all_of_them=all_variants)
        table.add_row(one.scenario, Text(f"{one.about}{variants}"), Text(one.unavailable or "available"))
    return table


def _variants(names: Sequence[str], *, all_of_them: bool) -> str:
    if not names:
        return ""
    shown = names if all_of_them or len(names) <= MOST_VARIANTS else names[:MOST_VARIANTS]
    more = f", ... ({len(names)}; `rlbench list scenarios` shows all)" if len(shown) < len(names) else ""
    return f"\nvariants: {', '.join(shown)}{more}"
