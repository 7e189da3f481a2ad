"""What a run that was made on few GPUs says of many: its profile, beside the predictions that are made of it."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.commands.profile.gpu import Link
from harness.commands.profile.making import measure, write_profile
from harness.plan import registry
from reports.figures import format as fmt
from results.records import store

if TYPE_CHECKING:
    from harness.commands.predict.options import PredictOptions


def from_run(asked: PredictOptions, folder: Path, out: Path) -> tuple[PredictOptions, str]:
    """The options with the run's profile as scenario, and a line that says what was made of what.

    System and workload are the run's own where they are left open. Raises ValueError for a run that cannot be profiled.
    """
    if not (folder / store.RUN_FILE).exists():
        raise ValueError(f"--from-run {folder}: is no run folder; give one that holds a {store.RUN_FILE}")
    registry.check_name(str(out), "--out")  # the profile lies there, and names the scenario
    (run,) = store.read_runs(folder)
    measured = measure(run.path, run.record, Link())
    path = free_path(out, run.record.id)
    out.mkdir(parents=True, exist_ok=True)
    write_profile(measured.profile, path, measured.comments)
    asked = replace(
        asked,
        scenario=f"emulated/{path}",
        systems=asked.systems or fmt.system(run.record),
        workload=asked.workload or run.record.cell.workload,
    )
    return asked, f"profile of {run.path}: {path}"


def free_path(out: Path, run: str) -> Path:
    """Where a profile of a run can be written: profiles that predictions were made of are kept."""
    run = re.sub(r"[^a-zA-Z0-9.=-]+", "-", run)  # a record that somebody made may have any text there
    names = (f"profile-{run}{number}.toml" for number in ("", *(f"-{k}" for k in range(2, 10_000))))
    return next(out / name for name in names if not os.path.lexists(out / name))
