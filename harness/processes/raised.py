"""What was raised, as text that any file and any terminal can hold, whatever the exception does when it is asked.

An exception of somebody else's is hostile text: its `__str__` may raise or return megabytes, its text may hold halves
of surrogate pairs and escape sequences, its notes and causes may not be readable. Nothing here raises for any of that.
"""

from __future__ import annotations

import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING

from results.reading.untrusted import visible

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_CHARACTERS = 2_000
"""Of a line."""
SLACK = 500
"""So many more are left as they are: what was cut once, and got a few words before it, is not cut again."""
MOST_NAME = 200
"""Characters of the name of a class."""
MOST_SHOWN = 20_000
"""Characters of what a user may be told of what can be mended; a list of all known names is long."""
MOST_TRACEBACK = 2**18
"""Characters of a traceback: its head and its tail."""


class EndsTheRun(Exception):  # noqa: N818  says what it does
    """What no run goes on after, though its system survives the loss of a rank: what was learned is worth nothing."""


def in_a_line(error: BaseException) -> str:
    """`LookupError: no wall`: the class, and the first line of the text that is not blank."""
    kind, said = _kind(error), message(error)
    return f"{kind}: {said}" if said else kind


def message(error: BaseException) -> str:
    """The first line of an exception's text that is not blank, visible and not too long; empty if there is none."""
    try:
        text = str.__str__(str(error))  # a subclass of str could go on misbehaving
    except BaseException as failure:  # noqa: BLE001  whatever somebody else's `__str__` does
        return f"<its text raises {_kind(failure)}>"
    first = next((line for line in text.splitlines() if line.strip()), "")
    return visible(_cut(first.strip()))


def whole(error: BaseException) -> str:
    """Its traceback, visible, with the middle left out where it is too long; ends with a newline."""
    try:
        text = "".join(traceback.format_exception(error))
    except BaseException:  # noqa: BLE001  whatever somebody else's attributes do
        text = f"{_frames(error)}{in_a_line(error)}\n"
    if len(text) > MOST_TRACEBACK:
        half = MOST_TRACEBACK // 2
        text = f"{text[:half]}\n… ({len(text) - 2 * half:,} characters left out) …\n{text[-half:]}"
    return visible(text)


@contextmanager
def told_in_a_line(what: str) -> Iterator[None]:
    """Has what somebody else's code raises inside, a plug-in's say, become a ValueError of one line about `what`.

    ValueError itself is how such code says what the user can mend, and stays; so does a Ctrl-C.
    """
    try:
        yield
    except (ValueError, KeyboardInterrupt) as error:
        if _can_be_shown(error):
            raise
        raise ValueError(f"{what}: {message(error)}") from error
    except BaseException as error:
        raise ValueError(f"{what} raised {in_a_line(error)}") from error


def _can_be_shown(error: BaseException) -> bool:
    try:
        return len(str(error)) <= MOST_SHOWN
    except BaseException:  # noqa: BLE001  whatever somebody else's `__str__` does
        return False


def _kind(error: BaseException) -> str:
    """The name of its class, which may be any text and, asked the usual way, whatever a metaclass says."""
    name = type.__dict__["__name__"].__get__(type(error))
    return visible(" ".join(name[:MOST_NAME].split())) or "an exception"


def _cut(line: str) -> str:
    if len(line) <= MOST_CHARACTERS + SLACK:
        return line
    return f"{line[:MOST_CHARACTERS]}… ({len(line) - MOST_CHARACTERS:,} characters more)"


def _frames(error: BaseException) -> str:
    """Where it was raised, of an exception that cannot be formatted otherwise."""
    try:
        frames = traceback.format_tb(BaseException.__dict__["__traceback__"].__get__(error))
        return "".join(["Traceback (most recent call last):\n", *frames])
    except BaseException:  # noqa: BLE001  as above
        return ""
