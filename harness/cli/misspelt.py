"""What is said of a command or an option that there is not."""

from __future__ import annotations

import re

import typer

from rlbench.results.reading.names import known_names, nearest


def misspelt(error: typer.TyperException) -> str | None:
    """The error in one line with the nearest names, where it is about a command or an option; None where it is not.

    The line ends so that a sentence may follow.
    """
    context = getattr(error, "ctx", None)
    if context is None:
        return None
    option = getattr(error, "option_name", None)
    if option is not None and error.format_message().startswith("No such option"):
        known = [name for parameter in context.command.params for name in parameter.opts]
        near = nearest(option, known)
        return f"No such option: {option}; " + (f"did you mean {near!r}? " if near else "")
    if command := re.fullmatch(r"No such command '(.*)'\.", error.format_message(), re.DOTALL):
        return f"No such command {command[1]!r}; {known_names(command[1], context.command.list_commands(context))}; "
    return None
