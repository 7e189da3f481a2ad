"""`--systems` as a list of choices: names with settings, and `all` for every system that is installed."""

from __future__ import annotations

from dataclasses import dataclass

from harness import registry
from harness.overrides import parse_choice

ALL = "all"


class CannotRun(ValueError):  # noqa: N818  says what is the case, as ValueError's kin do
    """A system and a scenario cannot go together, or a system cannot be loaded; the text says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """A system or a scenario with its settings."""

    name: str
    settings: dict[str, str]
    is_optional: bool = False
    """It was not named but is one of `all`: where it cannot run, it is left out."""


def parse_systems(text: str) -> list[Choice]:
    """`all:learn.epochs=1,ver:preempt=never` as choices; `all` is every system in the registry, in its order."""
    choices = []
    for part in split_list(text, "--systems"):
        name, settings = parse_choice(part, "--systems")
        names = registry.names(registry.SYSTEMS) if name == ALL else [name]
        choices += [Choice(name=one, settings=settings, is_optional=name == ALL) for one in names]
    return choices


def split_list(text: str, flag: str) -> list[str]:
    """`a,b` -> ["a", "b"]. Raises ValueError for an empty list."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise ValueError(f"{flag}: is empty; name at least one")
    return parts
