"""Python values as the words of a command: what `rlbench.run(gpus=[1, 8])` says in a shell."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, SupportsFloat

from rlbench.harness.commands.report.options import ReportOptions
from rlbench.harness.launch.options import LaunchOptions
from rlbench.harness.plan.options import RunOptions
from rlbench.harness.predicting.options import PredictOptions

OPTIONS = {"run": (RunOptions, LaunchOptions), "predict": (PredictOptions,), "report": (ReportOptions,)}
"""By command, the options that are declared by dataclasses."""
FLAGS = ("resume",)
"""Flags that are not."""


def words_of(command: str, given: Mapping[str, object]) -> list[str]:
    """The words of a command, with only the options that are not what they are by default; `out` always.

    Args:
        command: one of `OPTIONS`.
        given: values by option: a text, a number, a path, a flag, or several of these; None is an option left out.

    Raises TypeError for a value that is none of these.
    """
    usual: dict[str, Any] = {field.name: field.default for kind in OPTIONS[command] for field in fields(kind)}
    words = [command]
    for name, value in given.items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(usual.get(name, name in FLAGS or None), bool):
            words += [option] if _flag(name, value) else []
        elif value is not None and (text := _text(name, value)) != str(usual.get(name)):
            words += [option, text]
    return words


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name}={value!r}: must be True or False, is {type(value).__name__}")
    return value


def _text(name: str, value: object) -> str:
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    if isinstance(value, Iterable) and not isinstance(value, (bytes, Mapping)):
        return ",".join(_text(name, each) for each in value)
    if isinstance(value, (bool, bytes)) or not isinstance(value, SupportsFloat):
        raise TypeError(f"{name}={value!r}: must be a text, a number, or several of these, is {type(value).__name__}")
    return str(value)
