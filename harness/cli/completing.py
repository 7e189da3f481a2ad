"""Completion in a shell: what may stand at the end of a command line.

A shell's function (`shells.py`) starts `rlbench` with two environment variables: its name, and the line up to the
cursor. It reads whole words, each on a line with a tab and what it means.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

SHELL, LINE = "_RLBENCH_COMPLETING", "_RLBENCH_LINE"
"""Names of the environment variables."""


def completions(root: Any, line: str) -> list[tuple[str, str]]:
    """Words that may be the last of a line, each with what it means.

    Args:
        root: the whole command, as typer makes it.
        line: the command line up to the cursor; its last word may be unfinished or empty.
    """
    *words, last = _split(line)
    command, name, option, num_arguments = root, "", None, 0
    for word in words[1:]:
        if option is not None:
            option = None
        elif word.startswith("-"):
            found = _options(command).get(word)
            option = None if found is None or getattr(found, "is_flag", False) else found
        elif hasattr(command, "commands"):
            if word not in command.commands:
                return []
            command, name = command.commands[word], word
        else:
            num_arguments += 1
    if option is not None:
        return _values(_named(option), last, name)
    if last.startswith("--") and "=" in last:
        typed, _, value = last.partition("=")
        found = _options(command).get(typed)
        return [] if found is None else [(f"{typed}={said}", "") for said, _ in _values(_named(found), value, name)]
    if last.startswith("-"):
        return [(each, _brief(found.help)) for each, found in _options(command).items() if each.startswith(last)]
    if hasattr(command, "commands"):
        known = command.commands.items()
        return [(each, _brief(found.help)) for each, found in known if each.startswith(last)]
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    argument = arguments[min(num_arguments, len(arguments) - 1)] if arguments else None
    return _values(f"{name} {argument.name}", last) if argument is not None else []


def print_completions(root: Any) -> None:
    """Prints what the environment asks for; nothing where anything goes wrong, because a shell would show it."""
    with suppress(Exception):
        for value, meaning in completions(root, os.environ.get(LINE, "")):
            print(f"{value}\t{meaning}" if meaning else value)  # noqa: T201  a shell reads it


def _values(name: str, text: str, command: str = "") -> list[tuple[str, str]]:
    """The values of an option, of this command where others have one of the same name."""
    from rlbench.harness.commands.known_values import VALUES, values

    own = f"{command} {name}"
    return [(value, "") for value in values(own if own in VALUES else name, text)]


def _named(option: Any) -> str:
    return str(max(option.opts, key=len)).lstrip("-")


def _options(command: Any) -> dict[str, Any]:
    found = {each: parameter for parameter in command.params for each in parameter.opts if each.startswith("-")}
    return found | {"--help": _Help()}


class _Help:
    """The option that every command has and none lists."""

    is_flag, help = True, "Show the options and exit."


def _brief(text: str | None) -> str:
    """The first sentence of a help."""
    return " ".join((text or "").split()).partition(". ")[0].removesuffix(".")


def _split(line: str) -> Iterator[str]:
    """The words of a line; the last is empty after a space. Quotes may be open."""
    for end in ("", "'", '"'):
        with suppress(ValueError):
            words = shlex.split(line + end)
            return iter(words if words and not line[-1:].isspace() else [*words, ""])
    return iter([""])
