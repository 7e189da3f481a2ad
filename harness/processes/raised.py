"""Turns exceptions into text that is safe for any file and any terminal, however badly the exception behaves.

The exception of somebody else's code is hostile: its `__str__` may raise or return megabytes, its text may hold halves
of surrogate pairs and escape sequences, its notes and causes may be unreadable. Nothing here raises for any of that.
"""

from __future__ import annotations

import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rlbench.results.reading.untrusted import visible

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_CHARACTERS = 2_000
"""Characters that are kept of a line that is too long."""
SLACK = 500
"""A line is cut only if it has this many more, so that a line that was cut and got a prefix is not cut again."""
MOST_NAME = 200
"""Characters that are kept of a class's name."""
MOST_SHOWN = 20_000
"""Most characters of an error that the user can mend; a list of all known names is long."""
MOST_TRACEBACK = 2**18
"""Characters that are kept of a traceback, half at its head and half at its tail."""


class EndsTheRun(Exception):  # noqa: N818  says what it does
    """Ends the run even if its system survives the loss of a rank, because what was learned is worth nothing."""


def in_a_line(error: BaseException) -> str:
    """The class and the first line of the text that is not blank, as in `LookupError: no wall`."""
    kind, said = _kind(error), message(error)
    return f"{kind}: {said}" if said else kind


def message(error: BaseException) -> str:
    """The first line of an exception's text that is not blank, made visible and cut; empty if there is none."""
    try:
        text = str.__str__(str(error))  # a plain str: the text could be of a subclass that misbehaves
    except BaseException as failure:  # noqa: BLE001  whatever somebody else's `__str__` does
        return f"<its text raises {_kind(failure)}>"
    first = next((line for line in text.splitlines() if line.strip()), "")
    return visible(_cut(first.strip()))


def whole(error: BaseException) -> str:
    """The traceback, made visible, with the middle left out if it is too long; ends with a newline."""
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
    """Turns whatever somebody else's code (a plug-in's, say) raises inside into a one-line ValueError about `what`.

    Ctrl-C passes through. So does a ValueError that can be shown: with it, such code says what the user can mend.
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
    """The name of an exception's class, which may be any text; read so that no metaclass can interfere."""
    name = type.__dict__["__name__"].__get__(type(error))
    return visible(" ".join(name[:MOST_NAME].split())) or "an exception"


def _cut(line: str) -> str:
    if len(line) <= MOST_CHARACTERS + SLACK:
        return line
    return f"{line[:MOST_CHARACTERS]}… ({len(line) - MOST_CHARACTERS:,} characters more)"


def _frames(error: BaseException) -> str:
    """The frames of an exception that cannot be formatted in the usual way."""
    try:
        frames = traceback.format_tb(BaseException.__dict__["__traceback__"].__get__(error))
        return "".join(["Traceback (most recent call last):\n", *frames])
    except BaseException:  # noqa: BLE001  as above
        return ""
