"""Finds systems and scenarios by name: entry points, loaded when they are asked for.

Any installed package can add one: an entry point of the group `rlbench.systems` names a `contract.System`, one of
`rlbench.scenarios` a `contract.ScenarioFamily`. Systems that need other people's libraries, which must be installed
first (`harness.plan.libraries`), are in the group `rlbench.external_systems`. A system that a file describes has no
entry point. The reader of such files has one, in the group `rlbench.system_files`, named after their suffix.
"""

from __future__ import annotations

import functools
from contextlib import suppress
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rlbench.harness.contract.extras import Completes, NamesCode
from rlbench.harness.contract.scenario import WORKLOADS
from rlbench.harness.plan.overrides import apply_settings
from rlbench.harness.processes.raised import in_a_line, message, told_in_a_line
from rlbench.results.reading.names import known_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from rlbench.harness.contract.scenario import Scenario, ScenarioFamily
    from rlbench.harness.contract.system import System

SYSTEMS = "rlbench.systems"
EXTERNAL = "rlbench.external_systems"
PROBES = "rlbench.probes"
"""Systems that train nothing, for our own commands; no list names them."""
SCENARIOS = "rlbench.scenarios"
SYSTEM_FILES = "rlbench.system_files"


class SystemFiles(Protocol):
    """What an entry point of `rlbench.system_files` names: it makes systems from files with one suffix."""

    def read(self, path: Path) -> dict[str, Any]:
        """The content of a file, checked, as plain JSON. Raises ValueError, in one line that names the field."""

    def make(self, name: str, document: Mapping[str, Any]) -> System:
        """Makes the system of that name from what `read` returned."""


def names(group: str) -> list[str]:
    """Names of all entry points of a group, in alphabetical order."""
    return sorted(_points(group, entry_points))


@functools.cache
def _points(group: str, find: Callable[..., Iterable[EntryPoint]]) -> dict[str, EntryPoint]:
    """The entry points of a group, cached: finding them reads what is installed, and a sweep loads thousands."""
    return {point.name: point for point in find(group=group)}


def _load(group: str, name: str, what: str, *more: str) -> Any:
    """Loads what an entry point of a group, or of one of `more` groups, names. Raises ValueError when that fails."""
    groups = (*more, group)
    points = {key: point for each in groups for key, point in _points(each, entry_points).items()}
    if name not in points:
        known = [key for each in (group, *more) if each != PROBES for key in names(each)]
        raise ValueError(f"unknown {what} {name!r}; {known_names(name, known)}")
    try:
        return points[name].load()
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{what} {name}: cannot be imported: {message(error)}") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ValueError(f"{what} {name}: cannot be imported: {in_a_line(error)}") from error


def load_system(name: str, settings: Mapping[str, str]) -> System:
    """The system of that name with its settings. Raises ValueError: unknown name or field, impossible mix."""
    loaded = _load(SYSTEMS, name, "system", EXTERNAL, PROBES)
    with told_in_a_line(f"system {name}"):
        system: System = apply_settings(loaded, settings, name)
    return system


def load_family(name: str) -> ScenarioFamily:
    """The scenario family of that name. Raises ValueError for an unknown one, and lists the known ones."""
    family: ScenarioFamily = _load(SCENARIOS, name, "scenario")
    return family


def load_scenario(name: str, workload: str, settings: Mapping[str, str]) -> Scenario:
    """The scenario `family` or `family/variant` with its settings. Raises ValueError: unknown or not available."""
    if workload not in WORKLOADS:
        raise ValueError(f"--workload {workload}: unknown; {known_names(workload, WORKLOADS)}")
    check_name(name, "--scenario")
    family_name, _, variant = name.partition("/")
    family = load_family(family_name)
    with told_in_a_line(f"scenario {name}"):
        if reason := family.unavailable():
            raise ValueError(f"scenario {name} is not available here: {reason}")
        scenario = apply_settings(family.make(variant, workload), settings, name)
        return apply_settings(scenario.completed(), settings, name) if isinstance(scenario, Completes) else scenario


def drawing() -> list[str]:
    """Names of the families whose scenarios draw, of those that can be loaded."""
    found = []
    for name in names(SCENARIOS):
        with suppress(ValueError):
            if getattr(load_family(name), "draws", False):
                found.append(name)
    return found


def names_code(name: str, settings: Mapping[str, str]) -> bool:
    """Whether a scenario names code of the user's; loads none of it. Such a scenario must be typed to be loaded."""
    family_name, _, variant = name.partition("/")
    if family_name not in names(SCENARIOS):
        return False
    family = load_family(family_name)
    return isinstance(family, NamesCode) and bool(family.names_code(variant, settings))


def read_system_file(path: Path) -> dict[str, Any]:
    """A file's description of a system, as plain JSON, with the suffix that picks its reader. Raises ValueError."""
    files: SystemFiles = _load(SYSTEM_FILES, path.suffix.removeprefix("."), "kind of system file")
    document = files.read(path)
    for text in _texts_of(document):  # they include its folder, and what PATH says
        check_name(text, "--systems")
    return {"suffix": path.suffix.removeprefix("."), "document": document}


def check_name(name: str, option: str) -> None:
    """Raises ValueError for a file's name that is not UTF-8: records must hold it, because it identifies the cell."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"{option} {name}: a name that is not UTF-8, or not in this locale, cannot be in a record; rename the file "
            "or folder, or set LC_ALL=C.UTF-8"
        ) from None


def _texts_of(document: object) -> Iterator[str]:
    if isinstance(document, str):
        yield document
    elif isinstance(document, (dict, list, tuple)):
        for inner in [*document, *document.values()] if isinstance(document, dict) else document:
            yield from _texts_of(inner)


def system_of_file(name: str, described: Mapping[str, Any]) -> System:
    """Makes the system of that name from what `read_system_file` returned."""
    files: SystemFiles = _load(SYSTEM_FILES, described["suffix"], "kind of system file")
    return files.make(name, described["document"])
