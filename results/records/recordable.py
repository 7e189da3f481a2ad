"""Makes sure that every record that is written can be read again.

Error messages, settings of plug-ins and descriptions of machines come into a record from outside. Values that our JSON
reader refuses are replaced, texts that are too long are cut, and the record's warnings name both.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from rlbench.results.reading.untrusted import LARGEST_WHOLE, MOST_DEPTH, RECORD_BYTES, parse_json, visible
from rlbench.results.records.schema import RunRecord

LONGEST_TEXT = 10_000
"""Maximum length of a text in characters; a reason or a warning is a line."""
ROOM_FOR_COUNT = 40
"""Characters reserved for the note that counts what was cut."""
MOST_WARNINGS = 20_000
"""Maximum number of warnings: one for each of 16,384 ranks, and some more."""
MOST_NAMED = 5
"""Maximum number of places that the warning about replaced values names."""
MOST_WORDS = 1_000
"""Maximum number of words of a command."""
MOST_IN_COMMAND = 1_000_000
"""Maximum number of characters of a command's words."""
LEFT_OUT = "configuration", "machine", "nodes", "packages", "warnings", "cell.settings", "figures.time_shares"
"""Parts that are left out, the largest first, until the record is small enough."""

Note = Callable[[str], None]


def cut(text: str, most: int = LONGEST_TEXT) -> str:
    """A text of at most `most` characters that can be shown and written; a note counts the characters cut off."""
    shown = visible(text[: most + 1])  # no more of it: a hostile text is huge
    if len(shown) <= most:
        return shown
    kept = shown[: max(0, most - ROOM_FOR_COUNT)]
    return f"{kept} … ({len(text) - len(kept):,} characters more)"


def recordable(fields: Mapping[str, Any]) -> RunRecord:
    """Makes the record with these fields of `RunRecord`, so that it can be written and read again.

    Raises ValueError for a field that is missing or breaks a rule of the schema, such as a counter below 0.
    """
    places: list[str] = []
    document: dict[str, Any] = {name: _allowed(each, (name,), places.append) for name, each in fields.items()}
    warnings = list(document.get("warnings", ()))[:MOST_WARNINGS]
    if places:
        more = f" and {len(places) - MOST_NAMED} more" if len(places) > MOST_NAMED else ""
        named = ", ".join(places[:MOST_NAMED])
        warnings.append(f"not recorded as it was, since a record cannot hold it: {named}{more}")
    if isinstance(command := document.get("command"), list):
        document["command"] = _first_words(command)
    document["warnings"] = warnings
    left_out: list[str] = []
    while True:
        said = [f"{name} was left out: the record would be too large" for name in left_out]
        made = RunRecord.model_validate(document | {"warnings": said + document["warnings"]})
        if is_recordable(text := made.model_dump_json(indent=1)):
            parse_json(text)  # fails now, not at the next reading, if it cannot be read again
            return made
        sizes = {name: _size(document, name) for name in LEFT_OUT if name not in left_out}
        if not sizes:
            raise ValueError(f"a record has at most {RECORD_BYTES:,} bytes")
        left_out.append(largest := max(sizes, key=sizes.__getitem__))
        _leave_out(document, largest)


def is_recordable(text: str) -> bool:
    """Whether the text of a record is small enough to be read again."""
    return len(text.encode()) < RECORD_BYTES


def _first_words(command: list[Any]) -> list[Any]:
    kept, room = 0, MOST_IN_COMMAND
    for word in command[:MOST_WORDS]:
        room -= len(str(word))
        if room < 0:
            break
        kept += 1
    return command if kept == len(command) else [*command[:kept], f"… ({len(command) - kept:,} words more)"]


def _leave_out(document: dict[str, Any], name: str) -> None:
    part, _, inner = name.partition(".")
    if inner:
        document[part] = {key: value for key, value in document.get(part, {}).items() if key != inner}
    elif part == "warnings":
        document[part] = []
    else:
        document.pop(part, None)


def _size(document: Mapping[str, Any], name: str) -> int:
    """Approximate size of a part of the record, in characters of JSON."""
    part: Any = document
    for key in name.split("."):
        part = part.get(key) if isinstance(part, Mapping) else None
    return len(json.dumps(part, default=str))


def _allowed(value: Any, place: tuple[str, ...], note: Note) -> Any:
    """The value or its replacement; calls `note` with the place of each replaced value."""
    if isinstance(value, BaseModel):
        value = value.model_dump()
    if isinstance(value, (Mapping, list, tuple)):
        return _tree(value, place, note)
    if isinstance(value, str):
        return _text(value, place, note)
    if isinstance(value, int) and not -LARGEST_WHOLE - 1 <= value <= LARGEST_WHOLE:
        return _replaced(f"a whole number of {value.bit_length()} bits", place, note)
    return value if value is None or isinstance(value, (int, float)) else _replaced(repr(value), place, note)


def _tree(value: Mapping[Any, Any] | Sequence[Any], place: tuple[str, ...], note: Note) -> Any:
    if len(place) >= MOST_DEPTH - 1:
        return _replaced("…", place, note)
    if not isinstance(value, Mapping):
        return [_allowed(each, (*place, str(at)), note) for at, each in enumerate(value)]
    return {_text(str(key), place, note): _allowed(each, (*place, str(key)), note) for key, each in value.items()}


def _text(value: str, place: tuple[str, ...], note: Note) -> str:
    is_line = value.isprintable() and len(value) <= LONGEST_TEXT
    return value if is_line else _replaced(value, place, note) if cut(value) != value else value


def _replaced(value: str, place: tuple[str, ...], note: Note) -> str:
    note(cut(".".join(place), 100))
    return cut(value)
