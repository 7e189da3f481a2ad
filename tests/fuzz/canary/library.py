"""Folders of sweeps as people have them, made once: real ones, one of which was killed, and such as nobody has run.

`make_library` leaves a folder for each kind of sweep, with the name of the kind; a round has a copy of some.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlbench.harness.launch.nodes.launches import SSH
from rlbench.harness.processes.scratch import FILE, SHORT_TMPDIR
from rlbench.harness.run.sweep import PLAN_FILE
from rlbench.results.records.store import PARTIAL_PREFIX, RUN_FILE
from tests.fuzz import samples
from tests.fuzz.canary.tree import Place
from tests.harness.command import QUICK, RLBENCH
from tests.harness.runs import RunningSweep, wait_until
from tests.harness.sweeps import spoil, write_sweep

OPTIONS = ("--systems", "sync", *QUICK)
ITERATIONS = 2
ENDLESS_S = 600
GIT = (
    "git",
    "-c",
    "user.name=me",
    "-c",
    "user.email=me@x",
    "-c",
    "commit.gpgsign=false",
    "-c",
    "init.defaultBranch=main",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Library:
    """What `make_library` has made."""

    folder: Path
    """Holds a folder for each kind of sweep, and `repository`, a working folder."""
    scratch: Path
    """Temporary files of the killed run."""


QUICK_KINDS = ("done", "slurm", "hosts", "synthetic", "samples")
"""Kinds of which `--resume` starts no run that takes long."""
KINDS = ("interrupted", *QUICK_KINDS)
SLOW_KINDS = ("interrupted",) * 4 + KINDS
"""As often as a round that may run cells has them."""


def make_library(folder: Path) -> Library:
    """Makes it in an empty folder; takes the time of two runs."""
    made = _finished(folder / "made")
    scratch = _add_killed(made, folder / "killed")
    for kind in KINDS[:4]:
        shutil.copytree(made, folder / kind / made.name, symlinks=True)
    _keep_first_cell(folder / "done" / made.name)
    jobs = {"0": {"job": "41_0", "runs_before": 1}, "1": {"job": "41_1", "runs_before": 0}}
    slurm = folder / "slurm" / made.name
    (slurm / "jobs.json").write_text(json.dumps(jobs))
    (slurm / "slurm").mkdir()
    (slurm / "slurm" / "41_0_log.out").write_text("starting\n")
    for number in (1, 2):
        (slurm / f".cell-{number:03d}.lock").touch()
    _launch(slurm, {"gpus_per_node": 1})
    _keep_first_cell(folder / "hosts" / made.name)
    _launch(folder / "hosts" / made.name, {"hosts": ["a", "b"], "gpus_per_node": 1, "remote": SSH})
    (folder / "synthetic").mkdir()
    spoil(write_sweep(folder / "synthetic"))
    _change_plan(samples.make_sweep(folder / "samples"), lambda plan: plan | {"cells": []})
    _repository(folder / "repository")
    return Library(folder=folder, scratch=scratch)


def _finished(folder: Path) -> Path:
    """A sweep of two finished runs."""
    (folder / "t").mkdir(parents=True)
    limits = ("--seeds", "0,1", "--iterations", str(ITERATIONS))
    words = [str(RLBENCH), "run", *OPTIONS, *limits, "--out", str(folder / "runs")]
    variables = os.environ | {"TMPDIR": str(folder / "t"), "XDG_CACHE_HOME": str(folder / "cache")}
    subprocess.run(words, env=variables, cwd=folder, check=True, capture_output=True)
    (sweep,) = (folder / "runs").iterdir()
    return sweep


def _add_killed(made: Path, folder: Path) -> Path:
    """In the place of its second run the sweep has what a killed one leaves; returns its temporary files."""
    folder.mkdir()
    with RunningSweep(folder, *OPTIONS, "--seconds", str(ENDLESS_S)) as sweep:
        partial = sweep.wait_collecting(1)
        (keeper,) = sweep.of_module("rlbench.harness.run.keeper")
        sweep.process.send_signal(signal.SIGSTOP)  # so that it does not see the keeper die
        keeper.kill()
        sweep.process.kill()
        wait_until(lambda: not sweep.processes(), "all processes have died")
        name: str = json.loads((partial / FILE).read_text())["name"]
        made_in = next(place for place in (sweep.scratch, Path(SHORT_TMPDIR)) if (place / name).exists())
        scratch = (made_in / name).rename(sweep.scratch / name)  # for a long path it is in the short one
    (second,) = made.glob("002-*")
    shutil.rmtree(second)
    left = made / f".partial-{second.name}"
    partial.rename(left)
    plan = json.loads((made / PLAN_FILE).read_text())
    (left / "cell.json").write_text(json.dumps(plan["cells"][1], indent=1))
    return scratch


def _keep_first_cell(sweep: Path) -> None:
    _change_plan(sweep, lambda plan: plan | {"cells": plan["cells"][:1]})


def _launch(sweep: Path, launch: Mapping[str, Any]) -> None:
    _change_plan(sweep, lambda plan: plan | {"launch": launch})


def _change_plan(sweep: Path, change: Any) -> None:
    path = sweep / PLAN_FILE
    path.write_text(json.dumps(change(json.loads(path.read_text())), indent=1))


def _repository(folder: Path) -> None:
    """A working folder with a git repository of one commit."""
    folder.mkdir()
    (folder / "README").write_text("x\n")
    (folder / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "0"\n')
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "x"]):
        subprocess.run([*GIT, *words], cwd=folder, check=True, capture_output=True)


def copy(library: Library, kind: str, out: Path, name: str, place: Place) -> Path:
    """A sweep of a kind, under that name; what its killed run has left in the temporary folder is in the place's."""
    (sweep,) = (library.folder / kind).iterdir()
    subprocess.run(["cp", "-a", str(sweep), str(out / name)], check=True)
    for path in (out / name).glob(f"*/{RUN_FILE}"):
        path.write_bytes(path.read_bytes().replace(sweep.name.encode(), name.encode()))
    scratch = library.scratch
    if scratch.name not in place.own:
        subprocess.run(["cp", "-a", str(scratch), str(place.tmp)], check=True)
        place.own.add(scratch.name)
    for link in (out / name).glob(f"{PARTIAL_PREFIX}*/*"):
        if link.is_symlink() and link.readlink() == scratch:
            link.unlink()
            link.symlink_to(place.tmp / scratch.name)
    return out / name
