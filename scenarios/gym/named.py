"""Finds the code that a text names: `module:Name`, or `./file.py:Name` without any package.

Nothing calls this with a text that the user has not typed in this very command; `names_code` tells such texts apart
without loading anything.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

PLAIN = re.compile(r"[\w-]+|[-+]?[\d.]+(e[-+]?\d+)?(\.\.[-+]?[\d.]+(e[-+]?\d+)?)?", re.ASCII | re.IGNORECASE)
"""Words and numbers, which name no code."""
DIGITS = 16
"""Hex digits of the hash of a file that are kept."""


def is_file(name: str) -> bool:
    """Whether a text names something in a file: `./file.py:Name`."""
    return name.rpartition(":")[0].endswith(".py")


def names_code(variant: str, settings: Mapping[str, str]) -> bool:
    """Whether a scenario's name or settings name code that is not an installed environment; loads none.

    An argument of a constructor counts unless it is a number, a range, or a plain word: anything else could be a path,
    a module or `module:Name`, and what reads it may run it.
    """
    names = [variant, settings.get("ids", "")]
    arguments = [text for key, text in settings.items() if key.startswith("kwargs")]
    return (
        "wrappers" in settings
        or any(":" in name or ".py" in name or name.startswith((".", "/")) for name in names)
        or not all(PLAIN.fullmatch(text) for text in arguments)
    )


def moved(variant: str, settings: Mapping[str, str], move: Callable[[str], str]) -> tuple[str, dict[str, str]]:
    """A scenario's name and settings, with `move` of each file's path in the place of that path."""

    def one(name: str) -> str:
        file, _, inside = name.rpartition(":")
        return f"{move(file)}:{inside}" if is_file(name) and not file.startswith("~") else name

    names = ("ids", "wrappers")
    return one(variant), {
        key: "+".join(map(one, text.split("+"))) if key in names else text for key, text in settings.items()
    }


def absolute(name: str) -> str:
    """A name whose file, if it has one, has an absolute path."""
    file, _, inside = name.rpartition(":")
    return f"{Path(file).expanduser().absolute()}:{inside}" if is_file(name) else name


def digest(name: str) -> str:
    """The hash of the file that a text names, or '' for a module. Raises ValueError for a file that cannot be read."""
    if not is_file(name):
        return ""
    path = Path(name.rpartition(":")[0])
    if path.exists() and not path.is_file():
        raise ValueError(f"{name}: {path} is no regular file")
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:DIGITS]
    except FileNotFoundError:
        raise ValueError(f"{name}: {path} is not there") from None
    except OSError as error:
        raise ValueError(f"{name}: {path} cannot be read: {error.strerror}") from None


def load(name: str) -> Any:
    """What a text names. Raises ValueError, in one line: it is not there, or its module raises."""
    home, _, inside = name.rpartition(":")
    if not home or not inside:
        raise ValueError(f"{name}: must be module:Name, or ./file.py:Name")
    module = _of_file(name) if is_file(name) else import_module(home)
    found = getattr(module, inside, None)
    if found is None:
        own = [
            key for key, value in vars(module).items() if inspect.isclass(value) and value.__module__ == module.__name__
        ]
        raise ValueError(f"{name}: {home} has no {inside}; its classes: {', '.join(own) or 'none'}")
    return found


def import_module(home: str) -> ModuleType:
    """Imports an installed module. Raises ValueError, in one line."""
    if not all(part.isidentifier() for part in home.split(".")):
        raise ValueError(f"{home}: is no module; a class in a file is written ./FILE.py:CLASS")
    try:
        return importlib.import_module(home)
    except ModuleNotFoundError as error:
        if error.name and (home == error.name or home.startswith(f"{error.name}.")):
            here = Path(f"{home.partition('.')[0]}.py")
            hint = f"; for the file in this folder, write ./{here}:Class" if here.exists() else ""
            raise ValueError(f"{home}: there is no such module; install its package, or set PYTHONPATH{hint}") from None
        raise ValueError(f"{home}: cannot be imported: {said(error)}") from None
    except (Exception, SystemExit) as error:
        raise ValueError(f"{home}: cannot be imported: {said(error)}") from error


def said(error: BaseException) -> str:
    """The class of an error and the first line of its text."""
    try:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    except Exception:  # noqa: BLE001  whatever somebody else's `__str__` does
        lines = []
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


class _FromSource(SourceFileLoader):
    """Reads the file itself, and leaves nothing beside it.

    Compiled code that Python keeps is taken for the file's where its size and the second of its change are the same.
    """

    def get_code(self, fullname: str) -> CodeType:
        """Compiles what the file holds now."""
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def _of_file(name: str) -> ModuleType:
    """Imports a file under a name of its own, which differs where its text does; once in each process.

    Its folder is the last in which modules are looked for, so that it may import its neighbours and hide nobody's.
    """
    path = Path(absolute(name).rpartition(":")[0])
    known_as = f"rlbench_file_{path.stem}_{digest(absolute(name))}"
    if known_as in sys.modules and sys.modules[known_as].__file__ == str(path):
        return sys.modules[known_as]
    spec = importlib.util.spec_from_file_location(known_as, path, loader=_FromSource(known_as, str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    sys.modules[known_as] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[known_as]
        raise ValueError(f"{name}: {path.name} cannot be imported: {said(error)}") from error
    return module
