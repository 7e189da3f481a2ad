"""`--save`: writes the options of a sweep into a sweep file.

What is there already keeps its comments, its order and how its values are written; only values that are others now are
written anew. Keys that were not given are taken out, since the file must plan what was planned.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlbench.harness.cli.sweep_file import KEYS, SUFFIX, Key, SweepFile, record_of, values_of
from rlbench.results.reading.outputs import write_output

if TYPE_CHECKING:
    from tomlkit import TOMLDocument
    from tomlkit.items import Array

    from rlbench.results.records.schema import SweepFileRecord

LONGEST_LIST = 100
"""Characters of a list in one line; a longer one has a line for each value."""


def check(path: Path) -> None:
    """Raises ValueError where nothing, or something other than a sweep file, is to be replaced."""
    if path.suffix != SUFFIX:
        raise ValueError(f"--save {path}: its name must end in {SUFFIX}")
    if not path.parent.is_dir():
        raise ValueError(f"--save {path}: {path.parent} is no folder")
    if os.path.lexists(path):
        try:
            SweepFile.read(path)
        except ValueError as error:
            raise ValueError(f"--save: there is something else than a sweep file: {error}; name another file") from None


def save(path: Path, given: Mapping[str, Any], source: SweepFile | None) -> SweepFileRecord:
    """Writes a file with these values, which are by field, as the command line gives them; returns what it is now.

    A file that is not there yet begins with the comments of the `source`, if options came from one. `check`
    was called before. Raises ValueError where it cannot be written.
    """
    base = SweepFile.read(path) if path.exists() else source
    text = _text(f"# rlbench run {path.name}\n" if base is None else base.text, given, path.parent.resolve())
    try:
        record = record_of(path, text)
        write_output(path, [text])
    except UnicodeEncodeError:
        raise ValueError(f"--save {path}: an option has a name that is not UTF-8, which TOML cannot have") from None
    except OSError as error:
        raise ValueError(f"--save {path}: cannot be written: {error.strerror}; name another file") from None
    return record


def _text(base: str, given: Mapping[str, Any], folder: Path) -> str:
    import tomlkit

    document, before = tomlkit.parse(base), values_of(base, folder)
    for key in KEYS.values():
        if key.field not in given:
            document.pop(key.name, None)
        elif key.field not in before or _plain(key, before[key.field]) != _plain(key, given[key.field]):
            _set(document, key, _written(key, given[key.field], folder))
    return document.as_string()


def _plain(key: Key, value: Any) -> object:
    """The same for values that mean the same."""
    return ",".join(_words(value)) if key.is_list else value


def _words(text: str) -> list[str]:
    return list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def _written(key: Key, value: Any, folder: Path) -> Any:
    """A value as it is written into a file in a folder."""
    from rlbench.harness.plan.moved_paths import MOVES, Move

    if key.field in MOVES:
        value = MOVES[key.field](Move(home=Path(os.getcwd()), to=folder), str(value))  # noqa: PTH109  it has no links
    if key.is_list:
        words = [int(word) if re.fullmatch(r"0|[1-9]\d{0,9}", word) else word for word in _words(value)]
        return words[0] if len(words) == 1 else words
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _set(document: TOMLDocument, key: Key, value: Any) -> None:
    """Sets a value; comments stay, and a list that is there keeps those of its values that stay."""
    import tomlkit
    from tomlkit.items import Array

    there = document.get(key.name)
    values = value if isinstance(value, list) else [value]
    if isinstance(there, Array) and _changed(there, values):
        return
    if not isinstance(value, list):
        document[key.name] = value
        return
    made = tomlkit.array()
    made.extend(values)
    document[key.name] = made.multiline(len(made.as_string()) > LONGEST_LIST)


def _changed(there: Array, values: Iterable[int | str]) -> bool:
    """Changes a list to these values by taking out and adding alone; returns False where that cannot be."""
    values = list(values)
    kept = [each for each in there.unwrap() if each in values]
    if not kept or values[: len(kept)] != kept:
        return False
    for each in there.unwrap():
        if each not in values:
            there.remove(each)
    for each in values[len(kept) :]:
        there.append(each)
    return True
