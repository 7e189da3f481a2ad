"""Outputs, caches and repositories that somebody else has laid out: nothing is written, removed or run through them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rlbench.harness.cluster.slurm import JOBS_FILE, read_jobs
from rlbench.harness.commands.gate.revisions import remove_all_but
from rlbench.harness.launch.nodes.gathered import LIVE_FILE, LiveNodes
from rlbench.harness.machine import machine, virtualenvs
from rlbench.results.records.index import Index, index_path
from tests.harness import sweeps
from tests.harness.command import call
from tests.harness.hostile.test_folders import tree

here = pytest.fixture(autouse=True)(sweeps.here)
ENVIRONMENT = f"{'a' * 40}-linux-x86_64-python3.11"


PLANTED: dict[str, Callable[[Path, Path], None]] = {
    "link": lambda path, canary: path.symlink_to(canary),
    "dangling": lambda path, canary: path.symlink_to(canary.with_name("new")),
    "hard-link": lambda path, canary: os.link(canary, path),
}
COMMANDS = {
    "report": ["report", "SWEEP"],
    "csv": ["export", "SWEEP", "--format", "csv", "--out", "rlbench-report.html"],
    "parquet": ["export", "SWEEP", "--format", "parquet", "--out", "rlbench-report.html"],
    "history": ["history", "SWEEP", "--file", "rlbench-report.html"],
    "gate": ["gate", "--baseline", "SWEEP", "--candidate", "SWEEP", "--junit", "rlbench-report.html"],
}


@pytest.fixture
def shown(here: Path) -> Path:
    """A sweep to be read."""
    return sweeps.write_sweep(here, commit="a" * 40)


@pytest.mark.parametrize("kind", PLANTED)
@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_is_written_through_what_lies_in_an_output_s_place(
    here: Path, shown: Path, command: str, kind: str
) -> None:
    """A link, to a file or to none, and another name of a file: what they lead to keeps its bytes."""
    canary = here / "canary"
    canary.write_text("")
    PLANTED[kind](here / "rlbench-report.html", canary)
    ended = call(*(str(shown) if word == "SWEEP" else word for word in COMMANDS[command]))
    assert "Traceback" not in ended.err
    assert (here / "rlbench-report.html").stat().st_size, ended
    assert canary.read_text() == ""
    assert not canary.with_name("new").exists()
    assert list(here.glob(".new-*")) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_a_pipe_in_an_output_s_place_is_not_waited_for(here: Path, shown: Path, command: str) -> None:
    """It is named in one line, and stays."""
    os.mkfifo(here / "rlbench-report.html")
    ended = call(*(str(shown) if word == "SWEEP" else word for word in COMMANDS[command]))
    assert ended.code == 2
    assert ended.err.count("\n") == 1, ended.err
    assert (here / "rlbench-report.html").is_fifo()


def test_an_output_may_be_a_stream(here: Path, shown: Path) -> None:
    """Names of the system's, such as /dev/null, are written to."""
    assert call("export", str(shown), "--format", "csv", "--out", "/dev/null").code == 0
    assert Path("/dev/null").is_char_device()
    del here


def test_a_gate_s_output_may_be_a_pipe_that_is_already_open(here: Path, shown: Path) -> None:
    """As /dev/stdout is where a shell pipes it."""
    readable, writable = os.pipe()
    with os.fdopen(readable) as pipe:
        ended = call("gate", "--baseline", str(shown), "--candidate", str(shown), "--json", f"/dev/fd/{writable}")
        os.close(writable)
        assert "checks" in json.load(pipe), ended
    assert ended.err == ""
    del here


@pytest.fixture
def canary_folder(tmp_path: Path) -> Path:
    """A folder of the user's that is nobody else's business."""
    folder = tmp_path / "canary"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "thesis.tex").write_text("years of work")
    (folder / "pyvenv.cfg").touch()
    return folder


def spoil_environment(made: Path, canary_folder: Path, kind: str) -> None:
    """Lays something else out where an environment should be."""
    if kind == "link":
        made.symlink_to(canary_folder)
    elif kind == "folder":
        made.mkdir()
        (made / "thesis.tex").touch()
    elif kind == "open":
        made.mkdir()
        (made / "pyvenv.cfg").touch()
        made.chmod(0o777)
    else:
        made.touch()


@pytest.mark.parametrize("kind", ["link", "folder", "open", "file"])
def test_no_cache_makes_us_remove_what_is_no_environment(tmp_path: Path, canary_folder: Path, kind: str) -> None:
    """What was to be removed is refused in a line; what is only to be tidied is passed over."""
    made, before = tmp_path / ENVIRONMENT, tree(canary_folder)
    spoil_environment(made, canary_folder, kind)
    with pytest.raises(ValueError, match=ENVIRONMENT) as refused:
        virtualenvs.remove(made)
    assert "\n" not in str(refused.value)
    remove_all_but(0, tmp_path)
    assert os.path.lexists(made)
    assert tree(canary_folder) == before


def test_caches_keep_what_has_another_name(tmp_path: Path) -> None:
    """The gate removes environments that are called as its own are; a lock that is a link is not opened."""
    (tmp_path / "my-models").mkdir()
    (tmp_path / ENVIRONMENT).mkdir()
    canary = tmp_path / "canary"
    (tmp_path / f"{ENVIRONMENT}.lock").symlink_to(canary)
    remove_all_but(0, tmp_path)
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} >= {"my-models", ENVIRONMENT}
    assert not canary.exists()
    (tmp_path / f"{ENVIRONMENT}.lock").unlink()
    remove_all_but(0, tmp_path)
    assert not (tmp_path / ENVIRONMENT).exists()
    assert (tmp_path / "my-models").exists()


def test_a_cache_file_that_is_a_link_is_not_used(here: Path) -> None:
    """Runs are read as if there were no file: an empty file that it leads to stays empty."""
    sweep = sweeps.write_sweep(here)
    canary = here / "canary"
    canary.touch()
    index_path().parent.mkdir(parents=True)
    index_path().symlink_to(canary)
    index = Index(list(sweep.glob("00*")))
    assert len(index.runs()) == len(sweeps.FINISHED)
    index.close()
    assert canary.stat().st_size == 0
    assert index_path().is_symlink()


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"0": {"job": "--all", "runs_before": 0}}', '{"0": {"job": 7}}', '{"x": {}}', "pipe"]
)
def test_a_list_of_slurm_jobs_holds_numbers_of_jobs(tmp_path: Path, text: str) -> None:
    """What a resumed sweep brings along is damaged otherwise, in one line, and is not waited for."""
    path = tmp_path / JOBS_FILE
    if text == "pipe":
        os.mkfifo(path)
    else:
        path.write_text(text)
    with pytest.raises(ValueError, match=f"{JOBS_FILE}: is damaged"):
        read_jobs(tmp_path)
    path.unlink()
    assert read_jobs(tmp_path) == {}
    path.write_text('{"0": {"job": "12_3", "runs_before": 1}}')
    assert [(one.number, one.job, one.runs_before) for one in read_jobs(tmp_path).values()] == [(0, "12_3", 1)]


@pytest.mark.parametrize("text", ["[]", json.dumps({"phase": 1}), "pipe"])
def test_how_far_a_run_is_said_to_be_is_read_within_bounds(tmp_path: Path, text: str) -> None:
    """While it waits for Slurm, a pipe in the place of the file would hold up the display."""
    if text == "pipe":
        os.mkfifo(tmp_path / LIVE_FILE)
    else:
        (tmp_path / LIVE_FILE).write_text(text)
    with pytest.raises(ValueError, match="is "):
        LiveNodes(tmp_path).read()


def test_the_git_repository_that_we_are_in_runs_nothing(tmp_path: Path) -> None:
    """Its monitor, filters and hooks are its own; the commit is recorded all the same, and whether files changed."""
    repository = tmp_path / "repository"
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a"]
    (repository / "a").write_text("1")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "a"], check=True)
    (repository / ".git" / "info" / "attributes").write_text("* filter=evil\n")
    pwned = tmp_path / "pwned"
    for name, value in (
        ("core.fsmonitor", f"touch {pwned}"),
        ("filter.evil.clean", f"touch {pwned}; cat"),
        ("filter.evil.required", "true"),
    ):
        subprocess.run([*git, "config", name, value], check=True)
    os.utime(repository / "a", (0, 0))
    before = tree(repository)
    said = machine.commit(repository)
    assert said is not None
    assert len(said) == len("0" * 40)
    (repository / "a").write_text("2")
    assert machine.commit(repository) == f"{said}-dirty"
    assert not pwned.exists()
    assert tree(repository) == before | {repository / "a": b"2"}
    subprocess.run([*git, "config", "filter.a=b.clean", f"touch {pwned}"], check=True)
    assert machine.commit(repository) is None
    assert not pwned.exists()
