"""Parses `--systems`: names with settings, `all` for every system that needs no library, and `name=file`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlbench.harness.plan import registry
from rlbench.harness.plan.overrides import split_settings

ALL = "all"


class CannotRun(ValueError):  # noqa: N818  the name states the problem
    """A system and a scenario cannot go together, or a system cannot be loaded; the text says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedSystem:
    """A system or a scenario with its settings."""

    name: str
    settings: dict[str, str]
    is_optional: bool = False
    """It comes from `all`, so it is left out where it cannot run."""
    file: dict[str, Any] | None = None
    """The file's description of a system that is not installed; see `registry.read_system_file`."""


def parse_systems(text: str) -> list[NamedSystem]:
    """`all:learn.epochs=1,ver:preempt=never` as choices; `all` is every system in the registry, in its order."""
    choices = []
    for part in split_list(text, "--systems"):
        if file := named_file(part):
            choices.append(_of_file(*file))
            continue
        name, settings = split_settings(part, "--systems")
        names = registry.names(registry.SYSTEMS) if name == ALL else [name]
        choices += [NamedSystem(name=one, settings=settings, is_optional=name == ALL) for one in names]
    files = [choice.name for choice in choices if choice.file is not None]
    if twice := [name for name in files if files.count(name) > 1]:
        raise ValueError(f"--systems {twice[0]}=: names two files; give each a name of its own")
    return choices


def named_file(part: str) -> tuple[str, str] | None:
    """`mine=./trainer.toml` -> ("mine", "./trainer.toml"); None for what names no file."""
    name, equals, path = part.partition("=")
    return (name, path) if equals and ":" not in name else None


def _of_file(name: str, path: str) -> NamedSystem:
    """`mine=./trainer.toml`: the system that a file describes."""
    if not re.fullmatch(r"[A-Za-z0-9][\w.+-]{0,59}", name):
        raise ValueError(f"--systems {name}={path}: {name!r} must be a name of letters, digits, and any of . _ + -")
    if name == ALL or name in [*registry.names(registry.SYSTEMS), *registry.names(registry.EXTERNAL)]:
        raise ValueError(f"--systems {name}={path}: {name} is the name of a system; give yours another name")
    try:
        return NamedSystem(name=name, settings={}, file=registry.read_system_file(Path(path)))
    except ValueError as error:
        raise ValueError(f"--systems {name}={path}: {error}") from None


def split_list(text: str, flag: str) -> list[str]:
    """`a,b` -> ["a", "b"]. Raises ValueError for an empty list."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise ValueError(f"{flag}: is empty; name at least one")
    return parts
