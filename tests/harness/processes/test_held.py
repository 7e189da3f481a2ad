from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rlbench.harness.processes.held import CELL_FILE, Held, KeptRun
from tests.harness.hostile.test_folders import deepen

WRITER = """
import sys
with open(sys.argv[1], "w") as file:
    file.write("before ")
    file.flush()
    print("open", flush=True)
    sys.stdin.readline()
    file.write("after")
"""


def test_a_folder_that_is_renamed_is_the_same_folder(tmp_path: Path) -> None:
    """What is written by its path is there under the new name, also by another process."""
    (tmp_path / "old").mkdir()
    with Held(tmp_path / "old") as held:
        (tmp_path / "old").rename(tmp_path / "new")
        (tmp_path / "old").mkdir()
        subprocess.run([sys.executable, "-c", "import sys; open(sys.argv[1], 'x')", held.path / "file"], check=True)
        assert (held.where, held.is_gone, held.was_gone) == (tmp_path / "new", False, False)
        assert [path.name for path in (tmp_path / "new").iterdir()] == ["file"]
        assert [held.is_at(tmp_path / name) for name in ("old", "new")] == [False, True]


def test_a_folder_that_is_removed_is_made_anew_under_the_same_path(tmp_path: Path) -> None:
    """It is where it was, with the folders above it; whoever holds it too follows."""
    folder = tmp_path / "above" / "folder"
    folder.mkdir(parents=True)
    with Held(folder) as held, Held(folder) as other:
        path = held.path
        folder.rmdir()
        folder.parent.rmdir()
        assert (held.is_gone, held.where) == (True, folder)
        held.make_anew(tmp_path / "elsewhere")
        other.follow([tmp_path / "nowhere", folder])
        (path / "file").touch()
        assert [(other.path / "file").exists(), (folder / "file").exists()] == [True, True]
        assert [held.was_gone, other.was_gone, (tmp_path / "elsewhere").exists()] == [True, True, False]


def test_a_folder_whose_place_is_taken_is_made_elsewhere(tmp_path: Path) -> None:
    """Where it cannot be made it is made in the other place, and nothing that is in its own is touched."""
    folder = tmp_path / "folder"
    folder.mkdir()
    with Held(folder) as held:
        folder.rmdir()
        folder.write_text("somebody's")
        held.make_anew(tmp_path / "elsewhere")
        (held.path / "file").touch()
    assert (tmp_path / "elsewhere" / "file").exists()
    assert folder.read_text() == "somebody's"


def test_a_link_is_not_followed_into_another_folder(tmp_path: Path) -> None:
    """A link in the place of a removed folder is none of the places where it goes on."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "precious").mkdir()
    with Held(tmp_path / "folder") as held:
        (tmp_path / "folder").rmdir()
        (tmp_path / "folder").symlink_to(tmp_path / "precious")
        held.follow([held.where])
        assert held.is_gone


@pytest.mark.parametrize("stays", [False, True])
def test_what_processes_have_open_is_kept_when_their_folder_is_removed(tmp_path: Path, stays: bool) -> None:
    """A file whose name is gone is written on by its process, and is whole in the folder when that has ended.

    So it is where what was in the folder is removed, and not the folder itself.
    """
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / CELL_FILE).touch()
    kept = KeptRun(folder)
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(kept.path / "series")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "open\n"
        for path in folder.iterdir():
            path.unlink()
        if not stays:
            folder.rmdir()
        kept.look(lambda: [writer.pid])
        (kept.path / "later").touch()
        writer.communicate("\n")
    kept.settle()
    assert (folder / "series").read_text() == "before after"
    assert (folder / "later").exists()


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    """Nobody's descriptors are looked at as long as it is there."""
    (tmp_path / CELL_FILE).touch()
    kept = KeptRun(tmp_path)
    kept.look(lambda: pytest.fail("nothing is wrong"))
    kept.settle()
    assert [path.name for path in tmp_path.iterdir()] == [CELL_FILE]


def test_a_held_folder_is_removed_by_its_descriptor_however_deep(tmp_path: Path) -> None:
    """Under its name alone: what has the name by then is left, and so is the folder under another name."""
    folder = tmp_path / "folder"
    folder.mkdir()
    deepen(folder)
    with Held(folder) as held:
        folder.rename(tmp_path / "renamed")
        folder.mkdir()
        (folder / "kept").touch()
        held.remove([folder])
        assert (folder / "kept").exists()
        assert (tmp_path / "renamed" / "file").exists()
        held.remove([tmp_path / "renamed"])
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
