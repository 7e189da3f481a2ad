from __future__ import annotations

import os
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from rlbench.harness.cli.main import app  # noqa: F401  what `call` runs
from rlbench.systems.external.document import LARGEST_BYTES, PLACEHOLDERS, fill, read
from tests.harness.command import assert_refused, call

GOOD = """
    command = "{python} train.py --seed {seed}"
    environment = "instrumented"
"""


def write(folder: Path, text: str) -> Path:
    """A trainer's file."""
    path = folder / "mine.toml"
    path.write_text(dedent(text))
    return path


def test_a_short_file_is_enough(tmp_path: Path) -> None:
    """Two fields say it all: the rest has defaults, and paths are absolute."""
    trainer = read(write(tmp_path, GOOD))
    assert trainer.command == ("{python}", "train.py", "--seed", "{seed}")
    assert (trainer.ranks, trainer.folder, trainer.python) == ("ours", str(tmp_path), sys.executable)


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    """Every field, with a folder and an interpreter relative to the file, which is found although it is a link."""
    (tmp_path / "work").mkdir()
    (tmp_path / "venv").symlink_to(Path(sys.executable).parent)
    trainer = read(
        write(
            tmp_path,
            """
            command = ["{python}", "-m", "train", "--out={folder}", '{"literal": 1}', "{{seed}}"]
            about = "PPO in one file"
            environment = "ours"
            ranks = "its own"
            python = "venv/python"
            folder = "work"
            variables = { OMP_NUM_THREADS = "1", NAME = "{scenario}" }
            limits = { processes = 64, output_mib = 1 }
            """,
        )
    )
    assert trainer.python == str(tmp_path / "venv/python")
    assert trainer.folder == str(tmp_path / "work")
    assert trainer.limits.processes == 64
    assert fill(trainer.command[-1], {"seed": "3"}) == "{seed}"
    assert trainer.search_path.startswith(str(tmp_path / "venv") + os.pathsep)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("command = ", ("is no TOML: Invalid value (at end of document)",)),
        ("environment = 'ours'", ("command: Field required",)),
        ("command = 'sh'", ("environment: Field required",)),
        ("command = ''\nenvironment = 'ours'", ("command: ()", "at least 1")),
        ("command = 'a\"b'\nenvironment = 'ours'", ("command:", "No closing quotation")),
        ("command = 'sh'\nenvironment = 'theirs'", ("environment: 'theirs': ", "'ours' or 'instrumented'")),
        (
            "command = 'sh {gpu}'\nenvironment = 'ours'",
            ("command:", "did you mean 'gpus'? known: gpus", "{{gpu}}"),
        ),
        ("command = 'no-such-program'\nenvironment = 'ours'", ("command: no-such-program: is not found",)),
        ("command = './train.sh'\nenvironment = 'ours'", ("command: ./train.sh: is not found",)),
        ("command = 'sh'\nenvironment = 'ours'\npython = '.'", ("python: .: is no program",)),
        ("command = 'sh'\nenvironment = 'ours'\nfolder = 'none'", ("folder: none: is no folder",)),
        ("command = 'sh'\nenvironment = 'ours'\nspeed = 1", ("speed: 1: unknown field; known: command, about",)),
        ("command = 'sh'\nenvironment = 'ours'\nlimits.rank = 1", ("limits.rank: 1: unknown field; known: processes",)),
        ("command = 'sh'\nenvironment = 'ours'\nlimits.processes = 0", ("limits.processes: 0: ", "equal to 1")),
        ("command = 'sh'\nenvironment = 'ours'\nlimits.output_mib = nan", ("limits.output_mib: nan: ",)),
        ("command = 'sh'\nenvironment = 'ours'\nvariables.'A=B' = ''", ("variables:", "can be no variable")),
        ("#" * (LARGEST_BYTES + 1), (f"is larger than {LARGEST_BYTES:,} bytes",)),
    ],
)
def test_bad_files_are_refused_in_a_line(tmp_path: Path, text: str, expected: tuple[str, ...]) -> None:
    """`rlbench run` names the file, the field, the value and the rule, in one line, with exit code 2."""
    path = tmp_path / "mine.toml"
    path.write_text(text)
    assert_refused(call("run", "--systems", f"mine={path}", "--device", "cpu"), f"mine={path}: ", *expected)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """A folder, a pipe that nobody writes to, a device, bytes that are no text, and nothing at all."""
    (tmp_path / "folder.toml").mkdir()
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "zeros.toml").symlink_to("/dev/zero")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    for name, expected in (
        ("folder", "is no file"),
        ("pipe", "is no file"),
        ("zeros", "is no file"),
        ("bytes", "is no text in UTF-8"),
        ("none", "cannot be read: No such file or directory"),
    ):
        ended = call("run", "--systems", f"mine={tmp_path}/{name}.toml", "--device", "cpu")
        assert_refused(ended, expected, f"{name}.toml")


def test_names_and_devices_that_cannot_be_are_refused(tmp_path: Path) -> None:
    """A name must be free and a word; a file must be of a kind that can be read; emulated GPUs are refused."""
    path = write(tmp_path, GOOD)
    for system, expected in (
        (f"ver={path}", "ver is the name of a system; give yours another name"),
        (f"all={path}", "all is the name of a system"),
        (f"my trainer={path}", "'my trainer' must be a name"),
        (f"a={path},a={path}", "a=: names two files"),
        ("mine=./train.py", "unknown kind of system file 'py'; known: toml"),
        ("mine=", "unknown kind of system file ''"),
    ):
        assert_refused(call("run", "--systems", system, "--device", "cpu"), expected)
    ended = call("run", "--systems", f"mine={path}", "--device", "emulated")
    assert_refused(
        ended, "mine: --device emulated: a trainer that is not rlbench's own runs on what is there; use --device cpu"
    )
    assert_refused(call("predict", "--systems", f"mine={path}"), "mine: --device predicted")


def test_a_file_of_its_own_is_a_cell_of_its_own(tmp_path: Path) -> None:
    """A dry run plans it beside systems of ours; what the file says is part of what a cell is."""
    path = write(tmp_path, GOOD)
    ended = call("run", "--systems", f"mine={path},sync", "--device", "cpu", "--dry-run", "--out", str(tmp_path / "o"))
    assert ended.code == 0
    assert "[1/2] mine pointnav" in ended.out


def test_all_placeholders_are_documented() -> None:
    """`docs/external.md` names every placeholder and every field."""
    text = (Path(__file__).parents[3] / "docs" / "external.md").read_text(encoding="utf-8")
    assert [name for name in PLACEHOLDERS if f"`{{{name}}}`" not in text] == []
