"""The file that describes a trainer: how it is started, with which variables, and what it may use.

The file is checked when a sweep is planned, and its contents are kept with the plan, with absolute paths. So a run does
what was planned even if the file has changed since.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import stat
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from rlbench.results.reading.names import known_names

LARGEST_BYTES = 65_536
PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}|\{(\w+)\}")
"""`{name}` is filled in, `{{name}}` is the text `{name}`."""
PLACEHOLDERS = {
    "gpus": "ranks of the run",
    "rank": "the rank that the command is started for, from 0",
    "device": "where its tensors lie: cpu or cuda:k",
    "seed": "of the cell",
    "scenario": "its name, with the variant",
    "workload": "homogeneous or heterogeneous",
    "num_envs": "environments of a rank, as the scenario says",
    "rollout_steps": "T, as the scenario says",
    "seconds": "the budget's, or 1000000000000 where it has none, as the next two",
    "env_steps": "the budget's",
    "iterations": "the budget's",
    "python": "the interpreter",
    "env": "the id of the run's environments, for gymnasium.make",
    "env_box": "the same with observations in one Box",
    "folder": "a folder for temporary files, removed at the end of the run",
}


def _words(value: object) -> object:
    """Splits a command line given as one text, as a shell does; leaves a list of words as it is."""
    return tuple(shlex.split(value)) if isinstance(value, str) else value


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class TrainerLimits(_Table):
    """Limits on the processes of one rank."""

    processes: int = Field(default=1024, ge=1, le=16_384)
    """The trainer is ended when it has more."""
    output_mib: float = Field(default=16.0, gt=0, le=1024)
    """MiB of its output that are kept, half of them from the beginning and half from the end."""


class Trainer(_Table):
    """A trainer, as its file describes it."""

    command: Annotated[tuple[str, ...], BeforeValidator(_words)] = Field(min_length=1)
    about: str = Field(default="a trainer of one's own", max_length=200)
    environment: Literal["ours", "instrumented"]
    """`ours`: it makes the run's environments; `instrumented`: it counts its own, with `rlbench_client.count`."""
    ranks: Literal["ours", "its own"] = "ours"
    """`ours`: the command is started once for each rank, with torchrun's variables; `its own`: once."""
    python: str = ""
    """The interpreter of its own virtual environment; rlbench's if empty."""
    folder: str = ""
    """Its working folder; that of the file if empty."""
    variables: dict[str, str] = Field(default_factory=dict)
    limits: TrainerLimits = Field(default_factory=TrainerLimits)

    @field_validator("command")
    @classmethod
    def _names_known_placeholders(cls, command: tuple[str, ...]) -> tuple[str, ...]:
        for word in command:
            fill(word, PLACEHOLDERS)
            if "\0" in word:
                raise ValueError("a word must hold no NUL character")
        return command

    @field_validator("variables")
    @classmethod
    def _can_be_set(cls, variables: dict[str, str]) -> dict[str, str]:
        for name, value in variables.items():
            fill(value, PLACEHOLDERS)
            if not re.fullmatch(r"[A-Za-z_]\w*", name) or "\0" in value:
                raise ValueError(f"{name!r} can be no variable of a process")
        return variables

    @property
    def search_path(self) -> str:
        """PATH of the command: the interpreter's folder comes first, so `torchrun` is the one installed there."""
        path = self.variables.get("PATH", os.environ.get("PATH", os.defpath))
        return os.pathsep.join([str(Path(self.python).parent), path])


def fill(text: str, values: Mapping[str, str]) -> str:
    """Fills in the placeholders of a text. Raises ValueError for an unknown one, naming the known ones."""

    def value(match: re.Match[str]) -> str:
        escaped, name = match.groups()
        if escaped:
            return f"{{{escaped}}}"
        if name not in values:
            raise ValueError(f"{{{name}}} is unknown; {known_names(name, values)}; write {{{{{name}}}}} for the text")
        return values[name]

    return PLACEHOLDER.sub(value, text)


def read(path: Path) -> Trainer:
    """Reads a file; makes its paths absolute. Raises ValueError: one line with the field, the rule and the value."""
    try:
        trainer = Trainer.model_validate(tomllib.loads(_text(path)))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"is no TOML: {error}") from None
    except ValidationError as error:
        raise ValueError(_in_words(error)) from None
    here = path.resolve().parent
    folder = (here / trainer.folder).resolve()
    if not folder.is_dir():
        raise ValueError(f"folder: {trainer.folder}: is no folder")
    # The link is kept: a virtual environment's interpreter is a link, and finds its packages by where the link lies.
    python = os.path.abspath(here / trainer.python) if trainer.python else sys.executable  # noqa: PTH100
    if not os.access(python, os.X_OK) or Path(python).is_dir():
        raise ValueError(f"python: {trainer.python}: is no program; name the interpreter of a virtual environment")
    resolved = trainer.model_copy(update={"folder": str(folder), "python": python})
    program = fill(resolved.command[0], {**dict.fromkeys(PLACEHOLDERS, "0"), "python": python})
    if shutil.which(folder / program if "/" in program else program, path=resolved.search_path) is None:
        raise ValueError(f"command: {program}: is not found, or is no program")
    return resolved


def _text(path: Path) -> str:
    """The text of a regular file of at most `LARGEST_BYTES`; a pipe does not block it. Raises ValueError otherwise."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("is no file; name a TOML file")
        data = os.read(descriptor, LARGEST_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(data) > LARGEST_BYTES:
        raise ValueError(f"is larger than {LARGEST_BYTES:,} bytes: a trainer's file is a few lines")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ValueError("is no text in UTF-8") from None


def _in_words(error: ValidationError) -> str:
    first = error.errors()[0]
    field = ".".join(map(str, first["loc"])) or "the file"
    shown = "" if first["type"] == "missing" else f"{_shown(first['input'])}: "
    rule = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        rule = f"unknown field; {known_names(str(first['loc'][-1]), _known(first['loc']))}"
    return f"{field}: {shown}{rule}"


def _known(location: tuple[Any, ...]) -> list[str]:
    return list(TrainerLimits.model_fields if location[0] == "limits" and len(location) > 1 else Trainer.model_fields)


def _shown(value: object) -> str:
    text = "nan" if isinstance(value, float) and math.isnan(value) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
