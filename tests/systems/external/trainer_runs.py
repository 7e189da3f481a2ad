"""Runs of trainers by `rlbench run`, and what they leave."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from tests.harness.runs import END_LIMIT_S, RunningSweep

TRAINERS = Path(__file__).parent / "trainers"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ran:
    """A run of one trainer that is over."""

    code: int
    folder: Path
    record: dict[str, Any]
    num_left: int
    """Processes that were there when `rlbench` had ended."""

    @property
    def reason(self) -> str:
        """Why it failed."""
        return str(self.record["reason"])

    def text(self, name: str) -> str:
        """A file of the run's folder."""
        return (self.folder / name).read_text()

    @property
    def series(self) -> pd.DataFrame:
        """Its time series."""
        return pd.read_parquet(self.folder / "series.parquet")


def write_trainer(folder: Path, command: str | list[str], *, file: str = "mine.toml", **fields: object) -> None:
    """`mine.toml` in `folder`, for a command in which `{trainers}` is the folder of the trainers here."""
    words = [
        word.replace("{trainers}", str(TRAINERS)) for word in (command.split() if isinstance(command, str) else command)
    ]
    said = {"command": words, "environment": "instrumented", **fields}
    lines = (f"{key} = {json.dumps(value)}" for key, value in said.items())
    (folder / file).write_text("\n".join(lines))


def run_trainer(folder: Path, command: str | list[str], *options: str, **fields: Any) -> Ran:
    """Runs a command to the end of the run."""
    folder.mkdir(exist_ok=True)
    write_trainer(folder, command, **fields)
    return _run(folder, ["mine"], *options)[0]


def run_trainers(folder: Path, codes: Sequence[str], *options: str) -> list[Ran]:
    """Runs texts of Python one after the other, in one sweep."""
    names = [f"mine{number}" for number in range(len(codes))]
    for name, code in zip(names, codes, strict=True):
        write_trainer(folder, script(code), file=f"{name}.toml")
    return _run(folder, names, *options)


def _run(folder: Path, names: list[str], *options: str) -> list[Ran]:
    systems = ",".join(f"{name}={name}.toml" for name in names)
    common = ("--systems", systems, "--device", "cpu", "--scenario", "pointnav:num_envs=2")
    with RunningSweep(folder, *common, *(options or ("--seconds", "60"))) as sweep:
        code = sweep.end(len(names))
        num_left = len(sweep.processes())
        assert code in {0, 1}, sweep.stderr
        records = sorted(sweep.out.glob("*/*/run.json"))
        assert len(records) == len(names)
        return [
            Ran(code=code, folder=record.parent, record=json.loads(record.read_text()), num_left=num_left)
            for record in records
        ]


def script(code: str) -> list[str]:
    """A trainer that is one text of Python."""
    return ["{python}", "-c", code]


__all__ = ["END_LIMIT_S", "Ran", "run_trainer", "run_trainers", "script", "write_trainer"]
