"""Runs of trainers by `rlbench run`, and what they leave."""

from __future__ import annotations

import json
from collections.abc import Mapping
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
    """Of `rlbench`: 1 where a run of the sweep has failed."""
    folder: Path
    record: dict[str, Any]
    num_left: int
    """Processes that were there when `rlbench` had ended."""
    trainer_folder: Path
    """In which the trainer ran, unless its file is elsewhere."""

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
    return run_trainers(folder, {"mine": {"command": command, **fields}}, *options)["mine"]


def run_trainers(
    folder: Path, trainers: Mapping[str, Mapping[str, Any] | Path], *options: str, scenario: str = "pointnav:num_envs=2"
) -> dict[str, Ran]:
    """Runs several one after the other, in one sweep: by name, the fields of the file of each, or its file."""
    files = {name: said if isinstance(said, Path) else Path(f"{name}.toml") for name, said in trainers.items()}
    for name, said in trainers.items():
        if not isinstance(said, Path):
            write_trainer(folder, file=f"{name}.toml", **said)
    systems = ",".join(f"{name}={file}" for name, file in files.items())
    common = ("--systems", systems, "--device", "cpu", "--scenario", scenario)
    with RunningSweep(folder, *common, *(options or ("--seconds", "60"))) as sweep:
        code = sweep.end(len(trainers))
        num_left = len(sweep.processes())
        assert code in {0, 1}, sweep.stderr
        folders = [path.parent for path in sorted(sweep.out.glob("*/*/run.json"))]
        assert len(folders) == len(trainers)
        return {
            name: Ran(
                code=code,
                folder=path,
                record=json.loads((path / "run.json").read_text()),
                num_left=num_left,
                trainer_folder=folder,
            )
            for name, path in zip(trainers, folders, strict=True)
        }


def script(code: str) -> list[str]:
    """A trainer that is one text of Python."""
    return ["{python}", "-c", code]


__all__ = ["END_LIMIT_S", "Ran", "run_trainer", "run_trainers", "script", "write_trainer"]
