"""The keywords of `rlbench.run` and `rlbench.predict` beside the options of the commands."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

import rlbench
from rlbench.api.loaded import Results
from rlbench.api.words import FLAGS, OPTIONS, words_of
from rlbench.harness.cli.read_runs import OUT
from tests.harness.command import call

CALLS: dict[str, Callable[..., Any]] = {"run": rlbench.run, "predict": rlbench.predict}
WITHOUT_KEYWORD = {"dry-run", "explain", "save", "help"}
"""Options that make no runs."""


def kinds_of(kind: Any) -> set[Any]:
    """The types that a union allows, or the one that it is."""
    return set(get_args(kind)) or {kind}


@pytest.mark.parametrize("command", CALLS)
def test_every_option_is_a_keyword(command: str) -> None:
    """With the option's default and, among others, its type; the help of the command has no other."""
    signature = inspect.signature(CALLS[command])
    hints = get_type_hints(CALLS[command], localns={"Results": Results})
    for field in (field for kind in OPTIONS[command] for field in dataclasses.fields(kind)):
        declared = get_args(get_type_hints(_owner(command, field.name), include_extras=True)[field.name])[0]
        assert signature.parameters[field.name].default == field.default, field.name
        assert kinds_of(declared) <= kinds_of(hints[field.name]), field.name
    assert signature.parameters["out"].default == str(OUT)
    shown = set(re.findall(r"--([a-z][a-z-]+)", _options(call(command, "--help").out)))
    assert {name.replace("_", "-") for name in signature.parameters} == shown - WITHOUT_KEYWORD


@pytest.mark.parametrize("command", CALLS)
def test_every_keyword_is_described(command: str) -> None:
    """The docstring has a line for each, in the order of the signature."""
    said = inspect.getdoc(CALLS[command]) or ""
    described = re.findall(r"^    (\w+): ", said.partition("Args:")[2].partition("Returns:")[0], re.MULTILINE)
    assert described == list(inspect.signature(CALLS[command]).parameters)


def test_values_become_words() -> None:
    """Several are joined by commas, a flag is a flag, and what is as by default is left out; `out` never is."""
    given = {
        "systems": ["ver", "ver:preempt=never"],
        "gpus": np.array([1, 8]),
        "scenario": None,
        "seeds": range(3),
        "seconds": 0.1,
        "env_steps": np.int64(5),
        "time_limit": 3600,
        "stall": 60.0,
        "oversubscribe": True,
        "one_allocation": False,
        "out": Path("rlbench-runs"),
        "resume": False,
    }
    assert words_of("run", given) == [
        *("run", "--systems", "ver,ver:preempt=never", "--gpus", "1,8", "--seeds", "0,1,2", "--seconds", "0.1"),
        *("--env-steps", "5", "--time-limit", "3600", "--oversubscribe", "--out", "rlbench-runs"),
    ]
    assert words_of("run", {"gpus": 1, "seeds": [0], "time_limit": 3600.0, "resume": True}) == ["run", "--resume"]
    assert {"resume"} == set(FLAGS)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"gpus": True}, "gpus=True: must be a text, a number, or several of these, is bool"),
        ({"systems": b"ver"}, "systems=b'ver': must be a text, a number, or several of these, is bytes"),
        ({"seeds": [[1], object]}, "must be a text, a number, or several of these, is type"),
        ({"slurm": {"account": "lab"}}, "must be a text, a number, or several of these, is dict"),
        ({"oversubscribe": "yes"}, "oversubscribe='yes': must be True or False, is str"),
        ({"resume": None}, "resume=None: must be True or False, is NoneType"),
    ],
)
def test_values_of_other_types(given: dict[str, object], said: str) -> None:
    """They are refused before anything starts."""
    with pytest.raises(TypeError, match=re.escape(said)):
        words_of("run", given)


def _owner(command: str, name: str) -> type:
    """The dataclass that declares an option."""
    return next(kind for kind in OPTIONS[command] if name in {field.name for field in dataclasses.fields(kind)})


def _options(text: str) -> str:
    """The names of options at the beginnings of the lines of a help."""
    return "\n".join(re.findall(r"^\s{1,4}(--[a-z-]+)", text, re.MULTILINE))
