"""Options of a command from the fields of dataclasses, so that each is declared once.

A field is `name: Annotated[type, "what the help says"] = default`; the option is called as the field is.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, get_args, get_type_hints

import typer


def flags(command: Callable[..., None]) -> Callable[..., None]:
    """A command for typer: each parameter whose type is a dataclass of options stands for options of its fields.

    They stand in the help in the order of the parameters.
    """
    hints = get_type_hints(command, include_extras=True)
    kinds: dict[str, Any] = {name: kind for name, kind in hints.items() if dataclasses.is_dataclass(kind)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        alone = parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
        parameters += _parameters_of(kinds[name]) if name in kinds else [alone]

    @functools.wraps(command)
    def call(**given: Any) -> None:
        made = {
            name: kind(**{field.name: given.pop(field.name) for field in dataclasses.fields(kind)})
            for name, kind in kinds.items()
        }
        command(**made, **given)

    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def whole(text: str | int) -> int:
    """A whole number, which may be written as 1e6. Raises ValueError for anything else."""
    with suppress(ValueError):
        return int(text)
    with suppress(ValueError):
        if (number := float(text)).is_integer():
            return int(number)
    raise ValueError(f"must be a whole number, is {text}")


def _parameters_of(kind: type) -> list[inspect.Parameter]:
    """A keyword for each field, with what the help says of it."""
    hints = get_type_hints(kind, include_extras=True)
    made = []
    for field in dataclasses.fields(kind):
        value, said = get_args(hints[field.name])[:2]
        names = [f"--{field.name.replace('_', '-')}"] if value is bool else []  # without a --no-…
        parsing: dict[str, Any] = {"parser": whole, "metavar": "<int>"} if int in (value, *get_args(value)) else {}
        option = Annotated[value, typer.Option(*names, help=said, **parsing)]  # type: ignore[valid-type]  # made here
        made.append(
            inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=option)
        )
    return made
