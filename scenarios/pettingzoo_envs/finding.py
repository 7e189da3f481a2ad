"""Finds the module of an environment: `mpe/simple_spread_v3` is `mpe2.simple_spread_v3`, if that is installed."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import re
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from types import ModuleType

from rlbench.scenarios.gym import named
from rlbench.scenarios.gym.making import told

HOMES = {
    "butterfly": ("pettingzoo.butterfly",),
    "sisl": ("pettingzoo.sisl",),
    "mpe": ("mpe2", "pettingzoo.mpe"),
    "atari": ("pettingzoo.atari",),
    "classic": ("pettingzoo.classic",),
}
"""Packages of each of PettingZoo's families; the first that is installed counts."""
INSTALL = {
    "pettingzoo.butterfly": "pip install 'pettingzoo[butterfly]'",
    "pettingzoo.sisl": "pip install 'pettingzoo[sisl]'",
    "pettingzoo.atari": "pip install 'pettingzoo[atari]'",
    "pettingzoo.classic": "pip install 'pettingzoo[classic]'",
    "mpe2": "pip install mpe2",
    "pettingzoo.mpe": "pip install mpe2",
}
"""What pip installs for each."""
SHORT = re.compile(rf"({'|'.join(HOMES)})/\w+", re.ASCII)
"""An environment of PettingZoo's own, which is data: installed, and no code of the user's."""
VERSIONED = re.compile(r"\w+_v\d+", re.ASCII)


def module_name(name: str) -> str:
    """The module that a name means: of a family, or the name itself. Raises ValueError with the nearest names."""
    family, _, own = name.rpartition("/")
    if name.endswith(".py"):
        raise ValueError(f"name its class too: pettingzoo/{name}:CLASS")
    if family in HOMES:
        home = next((home for home in HOMES[family] if _is_there(home)), None)
        if home is None:
            raise ValueError(f"is of {HOMES[family][0]}, which is not installed; {INSTALL[HOMES[family][0]]}")
        if own in _modules(home):
            return f"{home}.{own}"
    elif not family and ("." in name or (name.isidentifier() and _is_there(name))):
        return name
    hint = f"; nearest: {', '.join(near)}" if (near := _nearest(name)) else ""
    missing = [home for homes in HOMES.values() for home in homes[:1] if not _is_there(home)]
    more = "".join(f"; more after {INSTALL[home]}" for home in missing)
    raise ValueError(
        f"there is no such environment{hint}{more}; one of a package is written pettingzoo/PACKAGE.MODULE, one of a "
        "file pettingzoo/./FILE.py:CLASS"
    )


def module_of(name: str) -> ModuleType:
    """Imports the module that a name means. Raises ValueError, in one line."""
    full = module_name(name)
    home = next((home for home in INSTALL if full.startswith(f"{home}.")), None)
    if home is None:
        return named.import_module(full)
    with told("its module", hint=f"; {INSTALL[home]}"), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # PettingZoo 1.27 says so of all of its modules
        return importlib.import_module(full)


def _nearest(name: str) -> list[str]:
    """Other versions of the environment; else names like it."""
    own, known = name.rpartition("/")[2], list(known_names())
    versions = [each for each in known if _stem(each.rpartition("/")[2]) == _stem(own)]
    by_own = {each.rpartition("/")[2]: each for each in known}
    return versions or [by_own[each] for each in difflib.get_close_matches(own, by_own, n=3, cutoff=0.6)]


def _stem(own: str) -> str:
    """The name of an environment without its version."""
    return re.sub(r"_v\d+$", "", own)


def known_names() -> Iterator[str]:
    """The short names of the environments whose packages are there, whatever else they need."""
    for family, homes in HOMES.items():
        for home in homes:
            if _is_there(home):
                yield from (f"{family}/{name}" for name in _modules(home))
                break


def _modules(home: str) -> list[str]:
    spec = find_spec(home)
    places = (spec.submodule_search_locations if spec else None) or []
    found = (module.name for module in pkgutil.iter_modules(list(places)))
    return sorted(name for name in found if VERSIONED.fullmatch(name))


def _is_there(home: str) -> bool:
    try:
        return find_spec(home) is not None
    except (ImportError, ValueError):  # its parent is missing, or is no package
        return False
