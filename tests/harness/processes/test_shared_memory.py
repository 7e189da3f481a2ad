from __future__ import annotations

import secrets
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from rlbench.harness.plan import room
from rlbench.harness.processes import shared_memory
from rlbench.harness.processes.scratch import FILE
from rlbench.harness.processes.shared_memory import Before
from tests.harness.disks import own_shared_memory
from tests.harness.runs import RunningSweep

if TYPE_CHECKING:
    from rlbench.harness.plan.cells import Cell


def test_what_an_environment_wrote_in_shared_memory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file there that nobody has mapped stays, for nothing proves whose it is; the record names it, with its size."""
    name = f"rlbench-test-{secrets.token_hex(8)}"
    monkeypatch.setenv("FAULTY_SHM", str(shared_memory.FOLDER / name))
    options = ("--device", "cpu", "--systems", "sync", "--iterations", "4", "--scenario", "faulty/write-shm")
    with own_shared_memory() as own:
        with RunningSweep(tmp_path, *options, wrapper=own.enter) as running:
            assert running.end() == 0, running.stderr
            (record,) = running.runs(1)
            assert running.files_left() == []
        assert own.folder / name in own.left()
        (own.folder / name).unlink()
    (warning,) = [each for each in record["warnings"] if each.startswith("left behind in /dev/shm: ")]
    assert f"{name} (1,000 bytes)" in warning
    assert warning.endswith("; they came during the run: remove them if they are the environments'")
    assert not list(record["path"].glob("shm-*")) + list(record["path"].glob(FILE))


def test_a_warning_names_a_few_files(tmp_path: Path) -> None:
    """The largest five, whatever they are called, and how many more; not what was there, is mapped, or is a link."""
    (tmp_path / "old").touch()
    before = Before.now(object(), tmp_path)
    for number in range(7):
        (tmp_path / f"new-{number}\x1b").write_bytes(bytes(number))
    (tmp_path / "link").symlink_to("old")
    (said,) = before.left_behind(tmp_path)
    assert said.startswith(rf"left behind in {tmp_path}: new-6\x1b (6 bytes), new-5\x1b (5 bytes), ")
    assert " (2 bytes) and 2 more; they came" in said
    assert Before.now(object(), tmp_path).left_behind(tmp_path) == []


def test_what_is_the_runs_is_removed(tmp_path: Path) -> None:
    """What fits a pattern of the scenario or was mapped by its processes; not what was there, nor what others made."""
    (tmp_path / "sim-old").touch()
    before = Before.now(SimpleNamespace(shm_names=("sim-*",)), tmp_path)
    for name in ("sim-new", "mapped", "another"):
        (tmp_path / name).touch()
    before.remove_new([((tmp_path / "mapped").stat().st_ino, str(tmp_path / "mapped"))], tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["another", "sim-old"]


def test_a_folder_that_came_during_the_run_is_named_and_stays(tmp_path: Path) -> None:
    """It may be the environments', with all that is in it; no pattern has it removed."""
    before = Before.now(SimpleNamespace(shm_names=("folder*",)), tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x").write_bytes(bytes(3))
    (said,) = before.left_behind(tmp_path)
    assert said.startswith(f"left behind in {tmp_path}: folder (a folder); ")
    before.remove_new([], tmp_path)
    assert (tmp_path / "folder" / "x").exists()


def test_a_folder_with_what_a_process_has_mapped_is_not_left_behind(shm_prefix: str) -> None:
    """It is in use."""
    before = Before.now(object())
    folder = shared_memory.FOLDER / f"{shm_prefix}-folder"
    folder.mkdir()
    mapping = (
        "import mmap, sys; file = open(sys.argv[1], 'w+b'); file.truncate(4096); m = mmap.mmap(file.fileno(), 0); "
        "print('mapped', flush=True); sys.stdin.readline()"
    )
    command = [sys.executable, "-c", mapping, str(folder / "x")]
    try:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process_:
            assert process_.stdout is not None
            assert process_.stdout.readline() == "mapped\n"
            assert folder.name not in "".join(before.left_behind())
            process_.communicate("\n")
    finally:
        (folder / "x").unlink(missing_ok=True)
        folder.rmdir()


class Raising:
    """A scenario whose attributes raise."""

    @property
    def shm_names(self) -> tuple[str, ...]:
        """Fails."""
        raise RuntimeError("no\nnames")

    @property
    def shm_bytes(self) -> int:
        """Ends the process, it seems."""
        raise SystemExit("bye")


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ("Bad*", r"""must be a tuple of texts, \("name\*",\), is 'Bad\*'$"""),
        (5, "must be a tuple of texts, .* is 5$"),
        ((5,), r"must be a tuple of texts, .* is \(5,\)$"),
        (("*",), r"'\*' must begin with 3 characters or more that are no wildcards"),
        (("ViZDoom*", "ab?c"), r"'ab\?c' must begin with 3"),
        (("[a-z]*",), "must begin with 3"),
        (("",), "must begin with 3"),
    ],
)
def test_patterns_that_may_fit_other_programs_names_are_refused(tmp_path: Path, names: object, words: str) -> None:
    """A forgotten comma makes letters and `*` of a pattern: one line names the rule, and nothing is removed by it."""
    with pytest.raises(ValueError, match=words) as refused:
        Before.now(SimpleNamespace(shm_names=names), tmp_path)
    assert "\n" not in str(refused.value)
    assert Before.now(SimpleNamespace(shm_names=["ViZDoom*", "exact"]), tmp_path).patterns == ("ViZDoom*", "exact")


def test_names_that_raise_are_told_in_a_line(tmp_path: Path) -> None:
    """Whatever it is that they raise."""
    with pytest.raises(ValueError, match=r"^shm_names of the scenario raised RuntimeError: no") as refused:
        Before.now(Raising(), tmp_path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("scenario", "words"),
    [
        (SimpleNamespace(shm_bytes="12"), "^shm_bytes of odd must be a whole number of bytes, is '12'$"),
        (SimpleNamespace(shm_bytes=-1), "must be a whole number of bytes, is -1$"),
        (SimpleNamespace(shm_bytes=1.5), "must be a whole number of bytes, is 1.5$"),
        (SimpleNamespace(shm_names="Bad*"), "^shm_names of the scenario must be"),
        (type("Odd", (Raising,), {"shm_names": ()})(), "^shm_bytes of odd raised SystemExit: bye$"),
    ],
)
def test_what_a_scenario_says_of_shared_memory_is_checked_where_cells_are_planned(scenario: object, words: str) -> None:
    """One line, before anything starts."""
    cell = SimpleNamespace(
        scenario="odd", workload="w", scenario_settings={}, device="cpu", gpus=1, load=lambda: (None, scenario)
    )
    with pytest.raises(ValueError, match=words):
        room.check_room([cast("Cell", cell)])
