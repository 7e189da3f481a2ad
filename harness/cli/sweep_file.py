"""A sweep file: options of `rlbench run` in TOML, by the names that they have on the command line.

    systems = ["sync", "ver:preempt=never"]
    gpus = [1, 8]
    time-scale = 0.5

Its values are checked like words of a command line, and become the same values. Paths in it are relative to its folder.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

from rlbench.harness.cli.flags import whole
from rlbench.harness.launch.options import LaunchOptions
from rlbench.harness.plan.options import COMMAS, RunOptions
from rlbench.results.reading.names import known_names
from rlbench.results.reading.untrusted import read_text, visible

if TYPE_CHECKING:
    from rlbench.results.records.schema import SweepFileRecord

SUFFIX = ".toml"
MOST_BYTES, LONGEST_LINE = 2**20, 8192
"""Limits of a file. The time to parse a dotted key grows with the square of its length: one of 8192 takes 0.1 s."""
LONGEST_VALUE = 80
"""Characters of a value that an error repeats."""
TYPED = ("resume", "dry-run", "save", "explain")
"""Options that a file cannot have."""
Options = TypeVar("Options", RunOptions, LaunchOptions)


@dataclass(frozen=True, kw_only=True, slots=True)
class Key:
    """An option that a file may have."""

    name: str
    """As on the command line, without dashes."""
    kind: type
    is_list: bool = False
    """Whether the option takes several values with commas."""

    @property
    def field(self) -> str:
        """Its name as an attribute."""
        return self.name.replace("-", "_")


def _keys() -> Iterator[Key]:
    for options in (RunOptions, LaunchOptions):
        hints = get_type_hints(options, include_extras=True)
        for field in dataclasses.fields(options):
            kind, _, *marks = get_args(hints[field.name])
            plain = next((each for each in get_args(kind) if each is not type(None)), kind)
            yield Key(name=field.name.replace("_", "-"), kind=plain, is_list=COMMAS in marks)
    yield Key(name="out", kind=Path)


KEYS = {key.name: key for key in _keys()}
"""By name, in the order in which a file is written."""
FIELDS = [key.field for key in KEYS.values()]


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepFile:
    """What a file says."""

    path: Path
    text: str
    values: Mapping[str, Any]
    """By field, as the command line would give them; paths are relative to the working folder."""

    @classmethod
    def read(cls, path: Path) -> SweepFile:
        """Reads a file. Raises ValueError, in one line with the file and the key."""
        if path.suffix != SUFFIX:
            raise ValueError(
                f"{path}: is no option, and no sweep file, whose name ends in {SUFFIX}; systems come after --systems, "
                "with commas"
            )
        if not os.path.lexists(path):
            raise ValueError(f"{path}: is not there; write it, or have `rlbench run … --save {path}` write it")
        try:
            text = read_text(path, MOST_BYTES, inside=False)
            return cls(path=path, text=text, values=values_of(text, path.resolve().parent))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    def fill(self, options: Options, typed: Collection[str]) -> Options:
        """The options with what the file says of them, except for the fields that were typed."""
        names = {field.name for field in dataclasses.fields(options)} - set(typed)
        return dataclasses.replace(options, **{name: self.values[name] for name in self.values if name in names})

    @contextmanager
    def blamed(self, typed: Collection[str]) -> Iterator[None]:
        """Names the file, in place of a flag, in an error about an option that came from it."""
        try:
            yield
        except ValueError as error:
            message = str(error)
            match = re.match(r"--([a-z-]+)(?=[: ])", message)
            field = match[1].replace("-", "_") if match else self._named(message)
            if field not in self.values or field in typed:
                raise
            raise ValueError(f"{self.path}: {message.removeprefix('--')}") from None

    def _named(self, message: str) -> str:
        """The field of whose value an error without a flag speaks: of a system or a scenario, by its name."""
        for field, known in (("systems", "system"), ("scenario", "scenario")):
            names = {re.split("[:=]", each.strip())[0] for each in str(self.values.get(field, "")).split(",")} - {""}
            if message.startswith((f"unknown {known} ", *(f"{name}:" for name in names))):
                return field
        return ""


def record_of(path: Path, text: str) -> SweepFileRecord:
    """What a run's record says of a file with that text."""
    from rlbench.results.records.schema import SweepFileRecord

    return SweepFileRecord(name=visible(path.name), sha256=hashlib.sha256(text.encode()).hexdigest())


def values_of(text: str, folder: Path) -> dict[str, Any]:
    """The values of a file in that folder, by field. Raises ValueError with the key."""
    from rlbench.harness.plan.moved_paths import MOVES, Move

    move = Move(home=folder, to=Path(os.getcwd()))  # noqa: PTH109  it has no links
    values = {}
    for name, value in _parsed(text).items():
        if name not in KEYS:
            raise ValueError(f"{visible(name)[:LONGEST_VALUE]}: {_why_unknown(name)}")
        key = KEYS[name]
        try:
            given = _value(key, value)
            if key.field in MOVES:
                given = MOVES[key.field](move, given)
        except ValueError as error:
            raise ValueError(f"{name}: {str(error).removeprefix(f'--{name} ')}") from None
        values[key.field] = Path(given) if key.kind is Path else given
    return values


def _parsed(text: str) -> dict[str, Any]:
    if any(len(line) > LONGEST_LINE for line in text.split("\n")):
        raise ValueError(f"has a line of more than {LONGEST_LINE:,} letters")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("is no sweep file: its values are nested too deeply") from None
    except ValueError as error:  # also a number of more than 4,300 digits
        said = str(error).replace("Cannot overwrite a value", "a key is there twice")
        raise ValueError(f"is no TOML: {said}") from None


def _why_unknown(name: str) -> str:
    if name in TYPED:
        return "is typed with the command, a file cannot have it"
    return f"unknown; {known_names(name, KEYS)}"


def _value(key: Key, value: object) -> Any:
    """The value as the command line would give it. Raises ValueError with the rule."""
    if key.is_list:
        return _joined(value)
    if key.kind is bool:
        if not isinstance(value, bool):
            raise ValueError(f"must be true or false, is {_shown(value)}")
        return value
    if key.kind in {int, float}:
        return _number(key.kind, value)
    if not isinstance(value, str) or (key.kind is Path and not value):
        raise ValueError(f"must be a text, is {_shown(value)}")
    return value


def _number(kind: type, value: object) -> float:
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        try:
            return whole(str(value)) if kind is int else float(value)
        except (ValueError, OverflowError):
            pass
    raise ValueError(f"must be a {'whole ' if kind is int else ''}number, is {_shown(value)}")


def _joined(value: object) -> str:
    """`["sync", "ddppo"]` -> `sync,ddppo`; a text stays as it is."""
    if not isinstance(value, list):
        return _word(value)
    words = [_word(each) for each in value]
    if not words:
        raise ValueError("is empty; name at least one, or leave the key out")
    for word in words:
        if "," in word or not word.strip():
            raise ValueError(f"each of a list must be one name or number, one is {_shown(word)}")
        if words.count(word) > 1:
            raise ValueError(f"{_shown(word)} is there twice")
    return ",".join(words)


def _word(value: object) -> str:
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return str(value)
    raise ValueError(f"must be a text, a whole number, or a list of these, is {_shown(value)}")


def _shown(value: object) -> str:
    """A value as TOML has it, more or less."""
    if isinstance(value, (dict, list)):
        return "a table" if isinstance(value, dict) else "a list"
    if isinstance(value, bool):
        return str(value).lower()
    try:
        return repr(value)[:LONGEST_VALUE] if isinstance(value, (str, int, float)) else str(value)
    except ValueError:  # Python writes no whole number of more than 4,300 digits
        return "a number of so many digits"
