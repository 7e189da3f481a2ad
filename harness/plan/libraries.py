"""Other people's libraries that systems are made with, each in its own virtual environment in the cache folder.

A system's attribute `library` says which one it needs. Only `rlbench systems install` makes the environment, from the
exact versions in the library's requirements file. A process that uses an environment holds a shared lock on it until it
ends. Installing and removing take an exclusive lock, and are refused while a run uses the environment.
"""

from __future__ import annotations

import fcntl
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path

from rlbench.harness.contract.traits import Library, Traits
from rlbench.harness.machine import virtualenvs
from rlbench.harness.machine.machine import PACKAGES, packages, versions
from rlbench.harness.machine.virtualenvs import READY, is_ready, open_lock, python_in
from rlbench.harness.plan import registry
from rlbench.results.reading.names import known_names
from rlbench.results.records.index import cache_folder

PINNED = re.compile(r"^([A-Za-z0-9][\w.-]*)(?:\[[\w,.-]*\])?==([^\s;]+)", re.MULTILINE)
"""A line of requirements: `name[extra]==version`."""


def all_libraries() -> dict[str, Library]:
    """The libraries of all external systems, by name."""
    systems = (registry.load_system(name, {}) for name in registry.names(registry.EXTERNAL))
    found = (Traits.of(system).library for system in systems)
    return {library.name: library for library in found if library is not None}


def environment_of(library: Library) -> Path:
    """The folder of a library's environment, whether it exists or not."""
    folder = f"{library.name}-{sysconfig.get_platform()}-python{sysconfig.get_python_version()}"
    return cache_folder() / "systems" / folder


def pinned(library: Library) -> dict[str, str]:
    """The versions that a library's requirements pin, by name of the distribution, normalised as in PEP 503."""
    found = PINNED.findall(library.requirements.read_text(encoding="utf-8"))
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found}


def install_command(library: Library) -> str:
    """The command that installs a library."""
    return f"rlbench systems install {library.name}"


def why_not(library: Library) -> str | None:
    """None, or why a library cannot be used as it is, in one line with the command that helps."""
    made = environment_of(library)
    if reason := library.unavailable(made):
        return reason
    if not is_ready(made):
        return f"{library.distribution} is not installed; use: {install_command(library)}"
    there = versions(pinned(library), python_in(made))
    for name, version in pinned(library).items():
        found = there.get(name)
        if found is None or found.partition("+")[0] != version:  # `2.13.0+cpu` is a build of 2.13.0
            is_there = f"{name} {found}" if found else f"no {name}"
            return f"its environment has {is_there} where {version} is needed; use: {install_command(library)}"
    return None


def python_of(system: object) -> str:
    """The interpreter of the environment of a system's library; empty for a system without one.

    Locks the environment, shared, until this process ends. Raises ValueError that says why it cannot be used.
    """
    library = Traits.of(system).library
    if library is None:
        return ""
    made = environment_of(library)
    if made.parent.is_dir():
        _lock(made, fcntl.LOCK_SH, "is being installed or removed")  # the descriptor is never closed
    if reason := why_not(library):
        raise ValueError(reason)
    return str(python_in(made))


def packages_of(system: object) -> dict[str, str]:
    """Versions of the packages that the runs of a system use, from the system's own Python where it has one."""
    traits = Traits.of(system)
    library = traits.library
    own = str(python_in(environment_of(library))) if library else traits.python or sys.executable
    if own == sys.executable:
        return packages()
    names = PACKAGES[1:] + ((library.distribution,) if library else ())
    behind = PACKAGES if library else PACKAGES[:1]  # environments find ours behind the library's
    return versions(behind) | versions(names, Path(own))


def install(library: Library, say: Callable[[str], None]) -> None:
    """Makes a library's environment, or brings it to the pinned versions. Raises ValueError with pip's error."""
    if reason := library.unavailable(environment_of(library)):
        raise ValueError(f"{library.name}: {reason}")
    if why_not(library) is None:
        say(f"{library.name}: {_known_as(library)} is installed")
        return
    made = environment_of(library)
    try:
        made.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{made.parent}: cannot be made ({error.strerror}); set XDG_CACHE_HOME") from None
    lock = _lock(made, fcntl.LOCK_EX, "is used by a run, or is being installed")
    try:
        say(f"{library.name}: installing {_known_as(library)} in {made}; this takes minutes")
        if not python_in(made).exists():
            virtualenvs.remove(made)
            virtualenvs.make(made, library.name)
        (made / READY).unlink(missing_ok=True)
        virtualenvs.install(made, ["-r", str(library.requirements)], library.name)
        virtualenvs.mark_ready(made)
    finally:
        os.close(lock)
    say(f"{library.name}: {_known_as(library)} is installed")


def remove(library: Library, say: Callable[[str], None]) -> None:
    """Removes a library's environment. Raises ValueError while a run uses it."""
    made = environment_of(library)
    if not os.path.lexists(made):
        say(f"{library.name}: is not installed")
        return
    lock = _lock(made, fcntl.LOCK_EX, "is used by a run, or is being installed")
    try:
        virtualenvs.remove(made)
    finally:
        os.close(lock)
    say(f"{library.name}: removed")


def _known_as(library: Library) -> str:
    return f"{library.distribution} {pinned(library)[library.distribution]}"


def _lock(made: Path, kind: int, why_not: str) -> int:
    if made.is_symlink():
        raise ValueError(f"{made}: is a link, and no environment that rlbench has made; remove it yourself")
    try:
        lock = open_lock(made)
    except OSError as error:
        raise ValueError(f"{made}.lock: cannot be locked ({error.strerror}); remove it yourself") from None
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise ValueError(f"{made}: {why_not}; wait for its end") from None
    return lock


def find(names: Sequence[str]) -> list[Library]:
    """The libraries of these names, which may be names of systems; `all` is every one that pip can install here.

    Raises ValueError for an unknown name, and lists the known ones.
    """
    known = all_libraries()
    all_known = [name for name, library in known.items() if library.unavailable(environment_of(library)) is None]
    by_system = {name: Traits.of(registry.load_system(name, {})).library for name in registry.names(registry.EXTERNAL)}
    found: dict[str, Library] = {}
    for name in all_known if "all" in names else names:
        library = known.get(name) or by_system.get(name)
        if library is None:
            raise ValueError(f"{name}: unknown; {known_names(name, sorted(known))}")
        found[library.name] = library
    return list(found.values())
