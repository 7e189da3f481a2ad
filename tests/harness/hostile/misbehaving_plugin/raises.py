"""Exceptions of every built-in class with hostile texts, and classes that misbehave themselves."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from typing import Any, cast

TEXTS = {
    "plain": "no wall behind the wall",
    "nothing": "",
    "surrogate": "half \udcff of a pair",
    "blank": " \n\t\n  \nnot on the first line",
    "escape": "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J",
    "lines": "one\r\ntwo\x0bthree\x0cfour\u2028five",
    "nul": "before\x00after",
    "turned": "\u202ereversed\u202c \u200f",
    "markup": "[bold]loud[/bold] [link=file:///etc]x[/link] [/]",
    "braces": "{0} %s %(x)d ${HOME} \\N{BULLET}",
    "long": "megabytes " * 1_000_000,
}


def built_in(kind: type[BaseException] = BaseException) -> Iterator[type[BaseException]]:
    """Every built-in class of exceptions, once."""
    found = {each for each in vars(builtins).values() if isinstance(each, type) and issubclass(each, kind)}
    return iter(sorted(found, key=lambda each: each.__name__))


class StrRaises(Exception):  # noqa: N818  says what it does
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise ValueError("no text")


class StrExits(Exception):  # noqa: N818  says what it does
    """Who asks for its text ends."""

    def __str__(self) -> str:
        raise SystemExit("no text")


class StrIsNone(Exception):  # noqa: N818  says what it does
    """Its text is none."""

    def __str__(self) -> str:
        return cast("str", None)


class OddText(str):
    """A text that cannot be split."""

    __slots__ = ()

    def splitlines(self, keepends: bool = False) -> list[str]:
        del keepends
        raise RuntimeError("not to be split")


class StrIsOdd(Exception):  # noqa: N818  says what it does
    """Its text is a kind of str that misbehaves too."""

    def __str__(self) -> str:
        return OddText("odd text")


class NotesRaise(Exception):  # noqa: N818  says what it does
    """Its notes cannot be had, so that Python's own module cannot format it."""

    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]  # it misbehaves
        raise RuntimeError("no notes")


class ReprRaises(Exception):  # noqa: N818  says what it does
    """Not even its repr."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    __str__ = __repr__


def _cyclic() -> BaseException:
    one, two = LookupError("one"), KeyError("two")
    one.__cause__, two.__cause__ = two, one
    return one


def _deep() -> BaseException:
    error = LookupError("the last one")
    for number in range(2_000):
        error, error.__cause__ = LookupError(f"number {number}"), error
    return error


def _grouped() -> BaseException:
    group: ExceptionGroup[Exception] = ExceptionGroup("inner", [ValueError(str(n)) for n in range(5_000)])
    for _ in range(50):
        group = ExceptionGroup("outer", [group, LookupError("beside")])
    return group


def _from_builtins() -> BaseException:
    return cast("BaseException", type("name\nof two \x1b[1m lines", (RuntimeError,), {})("odd class"))


ODD: dict[str, Callable[[], BaseException]] = {
    "StrRaises": StrRaises,
    "StrExits": StrExits,
    "StrIsNone": StrIsNone,
    "StrIsOdd": StrIsOdd,
    "NotesRaise": lambda: NotesRaise("notes"),
    "ReprRaises": ReprRaises,
    "Cyclic": _cyclic,
    "Deep": _deep,
    "Grouped": _grouped,
    "NameOfTwoLines": _from_builtins,
    "LongName": lambda: cast("BaseException", type("Long" * 5_000, (Exception,), {})("long name")),
}
ODD_NAMES = {
    "StrRaises": "StrRaises: <its text raises ValueError>",
    "StrExits": "StrExits: <its text raises SystemExit>",
    "StrIsNone": "StrIsNone: <its text raises TypeError>",
    "StrIsOdd": "StrIsOdd: odd text",
    "NotesRaise": "NotesRaise: notes",
    "ReprRaises": "ReprRaises: <its text raises RuntimeError>",
    "Cyclic": "LookupError: one",
    "Deep": "LookupError: number 1999",
    "Grouped": "ExceptionGroup: outer (2 sub-exceptions)",
    "NameOfTwoLines": r"name of two \x1b[1m lines: odd class",
    "LongName": "LongLongLong",
}


def make_error(kind: str, text: str) -> BaseException:
    """An exception of a built-in class with one of `TEXTS`, or one of `ODD`."""
    if kind in ODD:
        return ODD[kind]()
    made, said = getattr(builtins, kind), TEXTS[text]
    arguments: dict[str, tuple[Any, ...]] = {
        "UnicodeDecodeError": ("utf-8", b"\xff", 0, 1, said),
        "UnicodeEncodeError": ("utf-8", "\udcff", 0, 1, said),
        "UnicodeTranslateError": ("\udcff", 0, 1, said),
        "ExceptionGroup": (said, [LookupError(said)]),
        "BaseExceptionGroup": (said, [KeyboardInterrupt(said)]),
    }
    return cast("BaseException", made(*arguments.get(kind, (said,))))
