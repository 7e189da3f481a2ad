"""Calls `rlbench`: in this process, for what ends before a run begins, or as people do, in a process of its own."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from rlbench.harness.cli.main import main

RLBENCH = Path(sys.executable).with_name("rlbench")
"""The console script."""
QUICK = (
    "--scenario",
    "emulated/open-fridge:num_envs=2:rollout_steps=8",
    "--time-scale",
    "0.02",
    "--device",
    "emulated",
)
"""A cell that takes little more than the start of its processes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


def call(*arguments: str) -> Ended:
    """The console script's main function, in this process; what it raises beside SystemExit, it raises here."""
    out, err = io.StringIO(), io.StringIO()
    code: int | str | None = None
    with (
        patch.object(sys, "argv", ["rlbench", *arguments]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code
    assert code is None or isinstance(code, int)
    return Ended(code=code or 0, out=out.getvalue(), err=err.getvalue())


def launch(*arguments: str, folder: Path, environment: Mapping[str, str] | None = None) -> Ended:
    """The console script as a process of its own, in `folder`."""
    done = subprocess.run(
        [RLBENCH, *arguments],
        cwd=folder,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return Ended(code=done.returncode, out=done.stdout, err=done.stderr)


def assert_refused(ended: Ended, *expected: str) -> None:
    """One line on stderr that begins as ours do and holds all of `expected`, nothing on stdout, exit code 2."""
    assert ended.err.startswith("rlbench: "), ended.err
    assert ended.err.count("\n") == 1
    assert ended.err.endswith("\n")
    assert [text for text in expected if text not in ended.err] == [], ended.err
    assert (ended.out, ended.code) == ("", 2)
