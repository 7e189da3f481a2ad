"""Predicts many GPUs from a run on few: writes the run's profile beside the predictions that are made from it."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rlbench.harness.commands.profile.gpu import AssumedLink
from rlbench.harness.commands.profile.making import measure, write_profile
from rlbench.harness.commands.profile.own_rate import brought_to_its_rate
from rlbench.harness.plan import registry
from rlbench.reports.figures import format as fmt
from rlbench.results.records import store

if TYPE_CHECKING:
    from rlbench.harness.predicting.options import PredictOptions


def from_run(asked: PredictOptions, folder: Path, out: Path) -> tuple[PredictOptions, str]:
    """Writes the run's profile; returns the options with it as scenario, and a line that says where it is.

    System and workload default to those of the run. Raises ValueError for a run that cannot be profiled.
    """
    if not (folder / store.RUN_FILE).exists():
        raise ValueError(f"--from-run {folder}: is no run folder; give one that holds a {store.RUN_FILE}")
    registry.check_name(str(out), "--out")  # the profile is written there, and its path names the scenario
    (run,) = store.read_runs(folder)
    measured = measure(run, AssumedLink())
    path = free_path(out, run.record.id)
    out.mkdir(parents=True, exist_ok=True)
    write_profile(measured.profile, path, measured.comments)
    measured = brought_to_its_rate(measured, run, path)
    write_profile(measured.profile, path, measured.comments)
    asked = replace(
        asked,
        scenario=f"emulated/{path}",
        systems=asked.systems or fmt.system(run.record),
        workload=asked.workload or run.record.cell.workload,
    )
    return asked, f"profile of {run.path}: {path}"


def free_path(out: Path, run: str) -> Path:
    """An unused path for the profile of a run: earlier profiles, which predictions were made from, are kept."""
    run = re.sub(r"[^a-zA-Z0-9.=-]+", "-", run)  # somebody else's record may have any text there
    names = (f"profile-{run}{number}.toml" for number in ("", *(f"-{k}" for k in range(2, 10_000))))
    return next(out / name for name in names if not os.path.lexists(out / name))
