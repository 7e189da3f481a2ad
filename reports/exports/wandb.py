"""Runs as offline folders of Weights & Biases, `OUT/wandb/offline-run-…`, which `wandb sync` uploads.

    this process, a run after the other --(local socket)--> wandb's service, a process --> the run's folder

The service is a child of this process. It is started with the first run, and told to end when the last one is written
or an exception passes, a Ctrl-C too; it also ends when this process is gone. Nothing is sent anywhere. A run's id is
`Tracked.key`: exported again, it replaces its folder, and uploaded again, its figures.

The x-axis of charts is `global_step`, the point's step: the rows of wandb are numbered by themselves, since a
point of the telemetry may have the same step as another.
"""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rlbench.results.reading.outputs import refuse_links

if TYPE_CHECKING:
    from pathlib import Path

    from rlbench.reports.exports.tracked import Tracked

PROJECT = "rlbench"
STEP = "global_step"
LONGEST_NAME = 128
"""Of a run's name and its group."""
FOLDERS = ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR")
"""Where wandb would leave files beside the run's."""

QUIET: Mapping[str, Any] = {
    "mode": "offline",
    "silent": True,
    "console": "off",
    "disable_git": True,
    "disable_code": True,
    "save_code": False,
    "x_disable_stats": True,
    "x_disable_meta": True,
    "x_disable_machine_info": True,
    "x_save_requirements": False,
}
"""Nothing is sent or printed, and nothing is recorded of this process and this machine: they are not the run's."""


def write(runs: Iterable[Tracked], out: Path) -> str:
    """Writes the folders of some runs; returns the command that uploads them. Raises OSError, ValueError."""
    refuse_links(out / "wandb")
    with _alone():
        import wandb

        try:
            for run in runs:
                _write(wandb, run, out)
        except wandb.errors.Error as problem:
            said = str(problem).partition("\n")[0]
            raise ValueError(f"{out}: wandb cannot write runs there ({said}); name another folder") from None
        finally:
            wandb.teardown()
    return f"wandb sync {shlex.quote(str(out))}/wandb/offline-run-*"


@contextmanager
def _alone() -> Iterator[None]:
    """Wandb without a network, reports of its own errors, and files in the user's folders."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="rlbench-wandb-", ignore_cleanup_errors=True) as folder:
        own = {name: value for name, value in before.items() if not name.startswith("WANDB_")}
        os.environ.clear()
        os.environ |= own | dict.fromkeys(FOLDERS, folder)
        os.environ |= {"WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false"}
        try:
            yield
        finally:
            os.environ.clear()
            os.environ |= before


def _write(wandb: Any, run: Tracked, out: Path) -> None:
    for old in (out / "wandb").glob(f"offline-run-*-{run.key}"):
        shutil.rmtree(old)
    made = wandb.init(
        dir=str(out),
        project=PROJECT,
        id=run.key,
        name=run.name[:LONGEST_NAME],
        group=run.sweep[:LONGEST_NAME],
        tags=[run.kind, run.status],
        notes="\n".join(run.notes),
        config={**run.tags, **run.settings},
        settings=wandb.Settings(**QUIET),
    )
    try:
        made.define_metric("*", step_metric=STEP)
        for point in run.points:
            made.log({**point.numbers, STEP: point.step, "_timestamp": point.time_s})
        made.summary.update(dict(run.figures))
    finally:
        made.finish(exit_code=0 if run.status == "finished" else 1)
