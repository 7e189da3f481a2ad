from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlbench_start import OURS
from tests.harness.command import QUICK, RLBENCH, assert_refused, launch

RAISES = "raise SystemExit('somebody else was imported')\n"
AS_MODULE = [sys.executable, "-m", "rlbench"]


def make_package(folder: Path, name: str) -> Path:
    """A package of somebody else, which says so when it is imported."""
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(RAISES, encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", OURS)
def test_a_package_of_our_names_on_pythonpath(name: str, tmp_path: Path) -> None:
    """It is named with its folder and what to do, and never imported."""
    folder = make_package(tmp_path / "project", name)
    ended = launch("list", folder=tmp_path, environment={"PYTHONPATH": str(folder)})
    assert_refused(
        ended,
        f"rlbench: a package called '{name}' in {folder} (PYTHONPATH) hides rlbench's own; "
        "take that folder out of PYTHONPATH, or rename the package",
    )


def test_a_package_called_rlbench_does_not_matter(tmp_path: Path) -> None:
    """The robot-learning one has our name: the command never imports it."""
    folder = make_package(tmp_path / "project", "rlbench")
    ended = launch("--version", folder=tmp_path, environment={"PYTHONPATH": str(folder)})
    assert (ended.code, ended.err) == (0, "")


def test_a_module_and_a_folder_of_the_working_folder(tmp_path: Path) -> None:
    """A module hides ours as a package does; an empty or relative entry of PYTHONPATH is a folder too."""
    (tmp_path / "results.py").write_text(RAISES, encoding="utf-8")
    for entry in (".", os.pathsep):
        ended = launch("list", folder=tmp_path, environment={"PYTHONPATH": entry})
        assert_refused(ended, f"a module called 'results' in {tmp_path} (PYTHONPATH)", "rename the module")


def test_what_a_terminal_would_obey_is_shown(tmp_path: Path) -> None:
    """The folder's name may hold anything."""
    folder = make_package(tmp_path / "caf\udce9\x1b[31m", "harness")
    ended = launch("list", folder=tmp_path, environment={"PYTHONPATH": str(folder)})
    assert_refused(ended, r"caf\udce9\x1b[31m (PYTHONPATH)")


def test_a_package_that_another_way_puts_before_ours(tmp_path: Path) -> None:
    """Where PYTHONPATH has no part in it, the line does not say so."""
    make_package(tmp_path, "reports")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from rlbench_start import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "list"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"a package called 'reports' in {tmp_path} (on Python's path before ours) hides" in done.stderr


def test_a_folder_that_is_no_package_hides_nothing(tmp_path: Path) -> None:
    """Python takes a package further down its path first: a folder of results may be called so."""
    for name in OURS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes.txt").touch()
    ended = launch("list", folder=tmp_path, environment={"PYTHONPATH": str(tmp_path)})
    assert (ended.code, ended.err) == (0, "")


def test_packages_in_the_working_folder(tmp_path: Path) -> None:
    """They are nobody's business: the command, `python -m rlbench` and all that a run starts look for none there."""
    for name in OURS:
        make_package(tmp_path, name)
    run = ("run", "--systems", "ddppo", *QUICK, "--iterations", "2", "--out", "out")
    planned = subprocess.run([*AS_MODULE, *run, "--dry-run"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (planned.returncode, planned.stderr) == (0, "")
    ran = launch(*run, folder=tmp_path)
    assert (ran.code, ran.err) == (0, ""), ran.out
    (record,) = (tmp_path / "out").rglob("run.json")
    assert json.loads(record.read_bytes())["status"] == "finished"


def test_as_a_module(tmp_path: Path) -> None:
    """`python -m rlbench` is the command, and refuses as it does."""
    folder = make_package(tmp_path, "systems")
    variables = {**os.environ, "PYTHONPATH": str(folder)}
    refused = subprocess.run([*AS_MODULE, "list"], env=variables, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert f"a package called 'systems' in {folder} (PYTHONPATH) hides" in refused.stderr
    script, module = (
        subprocess.run([*command, "--version"], capture_output=True, text=True, check=True).stdout
        for command in ([RLBENCH], AS_MODULE)
    )
    assert script == module


def test_an_agent_looks_too(tmp_path: Path) -> None:
    """What is on the path of another machine is said by the agent there, as the last line of its output."""
    folder = make_package(tmp_path, "harness")
    command = [sys.executable, "-P", "-m", "rlbench_start", "harness.launch.nodes.agent"]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(folder)}, input=b"", capture_output=True, check=False
    )
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert f"a package called 'harness' in {folder} (PYTHONPATH) hides".encode() in done.stderr
    alone = subprocess.run(command, input=b"", capture_output=True, check=False)
    assert (alone.returncode, alone.stderr) == (1, b"")  # it was told nothing
