"""Figures that a profile is fitted to: a CSV file with a header, and lines of comment that begin with `#`.

    system,gpus,steps_per_s,settings,workload,held_out
    ddppo,1,174,,,
    appo:overlap.max_lag=1000,1,9739,num_envs=72,,
    ver,8,2861,,,yes
    ver,64,,,,

`system` is as `--systems` takes it; empty stands for the environments alone. `settings` are of the scenario. A figure
that is held out, and a row without one, have no part in the fit. The columns after `steps_per_s` may be left out.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rlbench.harness.predicting.points import RatePoint
from rlbench.results.reading.untrusted import read_text, visible

MOST_BYTES = 1_000_000
MOST_FIGURES = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """One line of the file."""

    point: RatePoint
    steps_per_s: float | None
    """Env steps/s; None where a prediction is wanted."""
    is_held_out: bool

    @property
    def name(self) -> str:
        """What it is of."""
        point = self.point
        settings = point.scenario.partition(":")[2]
        words = (point.system or "environments alone", "on", f"{point.gpus} GPU{'s' * (point.gpus > 1)}", settings)
        return " ".join(filter(None, (*words, "" if point.workload == "homogeneous" else point.workload)))

    @property
    def fitted_to(self) -> float | None:
        """The figure, if it has a part in the fit."""
        return None if self.is_held_out else self.steps_per_s


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)

    system: str
    gpus: Annotated[int, Field(ge=1)]
    steps_per_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | Literal[""]
    settings: str = ""
    workload: Literal["homogeneous", "heterogeneous", ""] = ""
    held_out: Literal["yes", "no", ""] = ""


def read_figures(path: Path, profile: str) -> list[Figure]:
    """The figures in a file, of systems on a profile, which is named as `emulated/…` names it.

    Raises ValueError with file, line and rule.
    """
    try:
        text = read_text(path, MOST_BYTES, inside=False)
    except ValueError as problem:
        raise ValueError(f"--to {path}: {problem}") from None
    lines = {number: line for number, line in enumerate(text.splitlines(), 1) if line and not line.startswith("#")}
    if len(lines) > MOST_FIGURES:
        raise ValueError(f"--to {path}: has {len(lines):,} lines, and may have {MOST_FIGURES:,}")
    rows = csv.DictReader(lines.values(), restkey="more", restval="")
    try:
        figures = [_figure(path, number, row, profile) for number, row in zip(list(lines)[1:], rows, strict=False)]
    except csv.Error as problem:
        raise ValueError(f"--to {path}: is no CSV file: {problem}") from None
    if not any(figure.fitted_to for figure in figures):
        raise ValueError(f"--to {path}: has no figure to fit to; it is a CSV file with system,gpus,steps_per_s")
    return figures


def _figure(path: Path, number: int, row: dict[str, str], profile: str) -> Figure:
    try:
        line = _Line.model_validate(row)
    except ValidationError as error:
        first = error.errors()[0]
        said = f"{'.'.join(map(str, first['loc'][:1]))}: {first['msg']}, not {first['input']!a:.80}"
        raise ValueError(visible(f"--to {path}:{number}: {said}")) from None
    return Figure(
        point=RatePoint(
            system=line.system or None,
            gpus=line.gpus,
            scenario=f"emulated/{profile}{f':{line.settings}' if line.settings else ''}",
            workload=line.workload or "homogeneous",
        ),
        steps_per_s=line.steps_per_s or None,
        is_held_out=line.held_out == "yes",
    )
