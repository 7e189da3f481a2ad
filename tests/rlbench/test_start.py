from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.harness.command import QUICK, RLBENCH, assert_refused, launch
from tests.rlbench.theirs import CHECK, make_project

RAISES = "raise SystemExit('somebody else was imported')\n"
THEIRS = f"""
{CHECK}
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

gymnasium.register("Theirs-v0", CartPoleEnv)
"""


def make_package(folder: Path) -> Path:
    """A package of somebody else with our name, which says so when it is imported."""
    (folder / "rlbench").mkdir(parents=True)
    (folder / "rlbench" / "__init__.py").write_text(RAISES, encoding="utf-8")
    return folder


def test_packages_of_users_with_the_names_of_our_folders(tmp_path: Path) -> None:
    """Their project's `results`, `harness` or `systems` are first on the path, and theirs within a run of ours."""
    project = make_project(tmp_path / "project")
    (project / "mine.py").write_text(THEIRS, encoding="utf-8")
    run = (
        "run",
        "--systems",
        "sync",
        "--scenario",
        "gym/mine:Theirs-v0:num_envs=2",
        "--device",
        "cpu",
        "--iterations",
        "2",
    )
    ended = launch(*run, "--out", "out", folder=tmp_path, environment={"PYTHONPATH": str(project)})
    assert ended.code == 0, ended.err
    (record,) = (tmp_path / "out").rglob("run.json")
    assert json.loads(record.read_bytes())["status"] == "finished"


def test_a_package_called_rlbench_on_pythonpath(tmp_path: Path) -> None:
    """The robot-learning one has our name: it is named with its folder and what to do, and never imported."""
    folder = make_package(tmp_path / "project")
    ended = launch("list", folder=tmp_path, environment={"PYTHONPATH": str(folder)})
    assert_refused(
        ended,
        f"rlbench: a package called 'rlbench' in {folder} (PYTHONPATH) hides ours; "
        "take that folder out of PYTHONPATH, or rename the package",
    )


def test_a_module_and_a_folder_of_the_working_folder(tmp_path: Path) -> None:
    """A module hides ours as a package does; an empty or relative entry of PYTHONPATH is a folder too."""
    (tmp_path / "rlbench.py").write_text(RAISES, encoding="utf-8")
    for entry in (".", os.pathsep):
        ended = launch("list", folder=tmp_path, environment={"PYTHONPATH": entry})
        assert_refused(ended, f"a module called 'rlbench' in {tmp_path} (PYTHONPATH)", "rename the module")


def test_what_a_terminal_would_obey_is_shown(tmp_path: Path) -> None:
    """The folder's name may hold anything."""
    folder = make_package(tmp_path / "caf\udce9\x1b[31m")
    ended = launch("list", folder=tmp_path, environment={"PYTHONPATH": str(folder)})
    assert_refused(ended, r"caf\udce9\x1b[31m (PYTHONPATH)")


def test_a_package_that_another_way_puts_before_ours(tmp_path: Path) -> None:
    """Where PYTHONPATH has no part in it, the line does not say so."""
    make_package(tmp_path)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from rlbench_start import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "list"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"a package called 'rlbench' in {tmp_path} (on Python's path before ours) hides" in done.stderr


def test_a_folder_that_is_no_package_hides_nothing(tmp_path: Path) -> None:
    """Python takes a package further down its path first: a folder of results may be called so."""
    (tmp_path / "rlbench").mkdir()
    (tmp_path / "rlbench" / "notes.txt").touch()
    ended = launch("list", folder=tmp_path, environment={"PYTHONPATH": str(tmp_path)})
    assert (ended.code, ended.err) == (0, "")


def test_a_package_in_the_working_folder(tmp_path: Path) -> None:
    """It is nobody's business: the command and all that a run starts look for none there."""
    make_package(tmp_path)
    run = ("run", "--systems", "ddppo", *QUICK, "--iterations", "2", "--out", "out")
    ran = launch(*run, folder=tmp_path)
    assert ran.code == 0, ran.err
    (record,) = (tmp_path / "out").rglob("run.json")
    assert json.loads(record.read_bytes())["status"] == "finished"


def test_as_a_module() -> None:
    """`python -m rlbench` is the command."""
    script, module = (
        subprocess.run([*command, "--version"], capture_output=True, text=True, check=True).stdout
        for command in ([RLBENCH], [sys.executable, "-m", "rlbench"])
    )
    assert script == module


def test_an_agent_looks_too(tmp_path: Path) -> None:
    """What is on the path of another machine is said by the agent there, as the last line of its output."""
    folder = make_package(tmp_path)
    command = [sys.executable, "-P", "-m", "rlbench_start", "rlbench.harness.launch.nodes.agent"]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(folder)}, input=b"", capture_output=True, check=False
    )
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert f"a package called 'rlbench' in {folder} (PYTHONPATH) hides".encode() in done.stderr
    alone = subprocess.run(command, input=b"", capture_output=True, check=False)
    assert (alone.returncode, alone.stderr) == (1, b"")  # it was told nothing
