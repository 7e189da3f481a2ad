from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import pytest

from rlbench.harness.commands import tracking
from rlbench.harness.commands.tracking import TRACKERS
from tests.harness import sweeps
from tests.harness.command import assert_refused, call
from tests.harness.sweeps import spoil, write_sweep

here = pytest.fixture(autouse=True)(sweeps.here)


@pytest.mark.parametrize("form", TRACKERS)
def test_runs_are_exported(here: Path, form: str) -> None:
    """A sweep becomes a folder; how many runs, of which kind, and the command that reads them are printed."""
    sweep = write_sweep(here)
    ended = call("export", str(sweep), "--format", form, "--out", "a folder/of it")
    assert (ended.code, ended.err) == (0, "")
    counted, command = ended.out.splitlines()
    assert counted == "a folder/of it: 4 runs (4 emulated)"
    assert command.startswith(form)
    assert any((here / "a folder" / "of it").iterdir())


@pytest.mark.parametrize("form", TRACKERS)
def test_no_package_of_the_users_is_taken_for_ours(here: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed rlbench has no top-level `reports`; a project around it may have one of its own."""
    monkeypatch.setitem(sys.modules, "reports", ModuleType("reports"))
    ended = call("export", str(write_sweep(here)), "--format", form, "--out", "out")
    assert (ended.code, ended.err) == (0, "")


@pytest.mark.parametrize("form", TRACKERS)
def test_a_package_that_is_missing(here: Path, form: str) -> None:
    """It is said with what installs it, and no folder is made."""
    sweep = write_sweep(here)
    with patch.object(tracking, "find_spec", lambda _: None):
        ended = call("export", str(sweep), "--format", form, "--out", "out")
    assert_refused(ended, f"--format {form}: needs the package {form}; pip install 'rlbench[{form}]'")
    assert not (here / "out").exists()


def test_a_tracker_needs_a_folder(here: Path) -> None:
    """Without --out, with a file, and with a folder that cannot be made, it is refused."""
    sweep = str(write_sweep(here))
    assert_refused(call("export", sweep, "--format", "tensorboard"), "--format tensorboard: is a folder", "--out")
    (here / "file").touch()
    ended = call("export", sweep, "--format", "tensorboard", "--out", "file")
    assert_refused(ended, "--out file: is a file")
    assert_refused(call("export", sweep, "--format", "tensorboard", "--out", "file/below"), "cannot be written")


@pytest.mark.parametrize(
    ("form", "place"), [("tensorboard", "20260101-000000-abcd"), ("mlflow", "mlflow.db"), ("wandb", "wandb")]
)
def test_links_are_not_followed(here: Path, form: str, place: str) -> None:
    """What somebody has put in a folder's or the database's place does not lead out of the tracker's folder."""
    sweep = write_sweep(here)
    (here / "elsewhere").mkdir()
    (here / "out").mkdir()
    (here / "out" / place).symlink_to(here / "elsewhere", target_is_directory=True)
    ended = call("export", str(sweep), "--format", form, "--out", "out")
    assert_refused(ended, f"--out out: cannot be written ({place} is a link, which is not followed)")
    assert list((here / "elsewhere").iterdir()) == []


def test_runs_that_cannot_be_read_are_named(here: Path) -> None:
    """The others are exported; each that is not is a line on stderr."""
    sweep = write_sweep(here)
    spoil(sweep)
    ended = call("export", str(sweep), "--format", "tensorboard", "--out", "out")
    assert ended.code == 0
    assert all(line.startswith("rlbench: warning: ") for line in ended.err.splitlines())
    assert "half written" in ended.err
    assert "is damaged" in ended.err


def test_a_damaged_telemetry_costs_its_run_alone(here: Path) -> None:
    """Where a table beside the record cannot be read, that run is left out and named."""
    sweep = write_sweep(here)
    (sweep / "001-sync-x1" / "telemetry.parquet").write_bytes(b"no table")
    ended = call("export", str(sweep), "--format", "tensorboard", "--out", "out")
    assert ended.out.startswith("out: 3 runs ")
    assert "001-sync-x1/telemetry.parquet: cannot be read" in ended.err


def test_one_run_twice(here: Path) -> None:
    """A run and its copy cannot both be written under its name."""
    sweep = write_sweep(here)
    shutil.copytree(sweep, here / "copy" / sweep.name)
    ended = call("export", str(sweep), "copy", "--format", "tensorboard", "--out", "out")
    assert_refused(ended, "are the same run", "name one of them")
