"""Stands in for the modules of habitat-sim, so that habitat-baselines can be imported where that is not installed.

Any attribute of them is a class, and anything can be done with it, to no effect. The environments of rlbench need
nothing of habitat-sim, so that habitat-baselines' trainers, workers and networks are all its own. torchvision is there
for its CLIP encoder alone; the wheel that pip finds cannot be imported with a torch built for the CPU.

A line `import habitat_stand_ins` in a .pth file of an environment puts them there.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

NAMES = ("habitat_sim", "magnum", "corrade", "torchvision")


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


class Kind(type):
    """A class that has every attribute: another one."""

    def __getattr__(cls, name: str) -> Any:
        if _is_special(name):
            raise AttributeError(name)
        made = Kind(name, (Anything,), {})
        setattr(cls, name, made)
        return made

    def __or__(cls, other: object) -> Any:
        return cls

    def __getitem__(cls, key: object) -> Any:
        return cls

    def __iter__(cls) -> Iterator[Any]:
        return iter(())


class Anything(metaclass=Kind):
    """An object that has every attribute; called with one function, as a decorator is, it gives that back."""

    def __init__(self, *given: object, **named: object) -> None:
        del given, named

    def __call__(self, *given: object, **named: object) -> Any:
        """Does nothing."""
        del named
        return given[0] if len(given) == 1 and callable(given[0]) else self

    def __getattr__(self, name: str) -> Any:
        if _is_special(name):
            raise AttributeError(name)
        return Anything()


class Module(types.ModuleType):
    """A module with every attribute."""

    def __getattr__(self, name: str) -> Any:
        if _is_special(name):
            raise AttributeError(name)
        made = Kind(name, (Anything,), {})
        setattr(self, name, made)
        return made


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of `NAMES`, and whatever is said to be in them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Of a package, as any of them may have modules inside."""
        del path, target
        if fullname.partition(".")[0] not in NAMES:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """One with every attribute."""
        return Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """It has a version, which habitat-lab looks at."""
        module.__version__ = "0.3.3"  # type: ignore[attr-defined]


if __name__ == "habitat_stand_ins":  # in the environment, not in the tests
    sys.meta_path.insert(0, Finder())
