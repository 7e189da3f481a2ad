from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from rlbench.results.reading.untrusted import (
    LARGEST_WHOLE,
    MOST_DEPTH,
    RECORD_BYTES,
    is_text,
    opened,
    parse_json,
    read_text,
    visible,
)
from rlbench.results.records.parts import SERIES_FILE, read_parts
from rlbench.results.records.store import RUN_FILE, load_run
from tests.descriptors import open_files
from tests.results.made_records import make_record, write_run_folder

RATES = [100.0] * 10


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder with a record and a series."""
    return write_run_folder(tmp_path / "sweep", make_record(id="run"), RATES)


@pytest.mark.parametrize("kind", ["pipe", "socket", "folder", "device"])
@pytest.mark.parametrize("name", [RUN_FILE, SERIES_FILE])
def test_what_is_no_regular_file_is_named(run: Path, kind: str, name: str) -> None:
    """In the place of a file it is an error in one line; nobody waits for a pipe that nobody writes to."""
    path = run / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(os.path.relpath(path))  # its whole path may be longer than a socket's can be
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(ValueError, match=rf"{name}: .*(must be a regular file|No such device|leads out)") as caught:
        load_run(run)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/dev/tty"])
def test_devices_are_not_read(device: str) -> None:
    """Not even where the user names one."""
    with pytest.raises(ValueError, match=r"a device|No such device"):
        read_text(Path(device), 1, inside=False)


@pytest.mark.parametrize("target", ["/etc/passwd", "../other/run.json", "../../secret"])
def test_a_link_out_of_a_run_folder_is_refused(run: Path, target: str) -> None:
    """Even where it leads to what could be read, such as the record of another run."""
    other = write_run_folder(run.parent, make_record(id="other"), RATES)
    (run.parent.parent / "secret").write_bytes((other / RUN_FILE).read_bytes())
    (run / RUN_FILE).unlink()
    (run / RUN_FILE).symlink_to(target)
    with pytest.raises(ValueError, match=r"run\.json: is damaged \(is a link that leads out of its folder"):
        load_run(run)


def test_links_to_runs_and_within_them_are_followed(run: Path, tmp_path: Path) -> None:
    """A link to a run folder or a sweep is fine, and so is one from a file of a run to another."""
    (run / SERIES_FILE).rename(run / "first.parquet")
    (run / SERIES_FILE).symlink_to("first.parquet")
    (tmp_path / "linked").symlink_to(run.parent)
    assert load_run(tmp_path / "linked" / "run").record.id == "run"
    assert len(read_parts(tmp_path / "linked" / "run")) == len(RATES)


def test_a_loop_of_links_is_named(run: Path) -> None:
    """As any other file that cannot be opened."""
    (run / RUN_FILE).unlink()
    (run / RUN_FILE).symlink_to(RUN_FILE)
    with pytest.raises(ValueError, match=r"run\.json: is damaged"):
        load_run(run)


def test_sizes_are_bounded(run: Path) -> None:
    """A file of a terabyte is refused by its size, and nothing of it is read."""
    os.truncate(run / RUN_FILE, 2**40)
    with pytest.raises(ValueError, match=f"has {2**40:,} bytes, must have at most {RECORD_BYTES:,}"):
        load_run(run)
    os.truncate(run / SERIES_FILE, 2**40)
    with pytest.raises(ValueError, match=r"series\.parquet: cannot be read \(has .* bytes"):
        read_parts(run)


def test_a_file_whose_size_nobody_knows_is_bounded() -> None:
    """Files of the kernel say that they are empty."""
    with pytest.raises(ValueError, match="has more than 10 bytes"):
        read_text(Path("/proc/cpuinfo"), 10, inside=False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": {"b": [1, NaN]}}', r"a\.b\.1: must be a finite number of 64 bits"),
        ("[1e999]", "0: must be a finite number"),
        ("[-Infinity]", "0: must be a finite number"),
        (f"[{LARGEST_WHOLE + 1}]", "0: must be a finite number"),
        (f"[{'9' * 5000}]", "0: must be a finite number"),
        ('{"a": 1, "a": 2}', "has the key 'a' twice"),
        ('{"a": "\\ud800"}', "a: holds half of a surrogate pair"),
        ('{"\\udfff": 1}', "holds half of a surrogate pair"),
        ("[" * 100_000, f"has more than {MOST_DEPTH} levels"),
        ("[" * (MOST_DEPTH + 1) + "]" * (MOST_DEPTH + 1), f"has more than {MOST_DEPTH} levels"),
        ("", "Expecting value"),
        ('{"a": 1} {}', "Extra data"),
    ],
)
def test_json_that_means_nothing_is_refused(text: str, said: str) -> None:
    """With the place in the document, where it has one."""
    with pytest.raises(ValueError, match=said) as caught:
        parse_json(text)
    assert len(str(caught.value)) < 500


def test_many_keys_of_which_one_stands_twice() -> None:
    """It is found in the time that reading takes."""
    text = ", ".join(f'"{number}": 0' for number in range(200_000))
    with pytest.raises(ValueError, match="has the key '7' twice"):
        parse_json(f'{{{text}, "7": 1}}')


def test_json_is_read_as_it_is() -> None:
    """All that a record may hold."""
    text = f'{{"a": [true, null, "\\u00e9\\n", -0.5, {LARGEST_WHOLE}, {{}}], "": ""}}'
    assert parse_json(text) == {"a": [True, None, "é\n", -0.5, LARGEST_WHOLE, {}], "": ""}
    parse_json("[" * MOST_DEPTH + "]" * MOST_DEPTH)


def test_what_a_terminal_would_obey_is_made_visible() -> None:
    """In values and in keys: the title of a window, colours, the direction of text. Tabs and lines stay."""
    document = parse_json('{"\\u001b[2J": "\\u001b]0;x\\u0007 \\u202e\\u009b31m\\r\\t\\n"}')
    assert document == {"\\x1b[2J": "\\x1b]0;x\\x07 \\u202e\\x9b31m\\r\t\n"}
    assert visible("größer, 大きい, 🙂") == "größer, 大きい, 🙂"
    assert visible(os.fsdecode(b"run\xff\x1b")) == "run\\udcff\\x1b"


def test_what_is_no_text_is_said_to_be_none(tmp_path: Path) -> None:
    """In words, not in those of a codec."""
    path = tmp_path / "text"
    path.write_bytes(b"\xff\xd8 a photo")
    with pytest.raises(ValueError, match=r"^is no text in UTF-8$"):
        read_text(path, 100, inside=False)


def test_text_is_told_from_bytes() -> None:
    """A file's name may hold bytes that are no UTF-8."""
    assert is_text("größer\x1b")
    assert not is_text(os.fsdecode(b"run\xff"))


def test_a_file_is_closed_whatever_is_in_it(tmp_path: Path) -> None:
    """What is refused is not left open. Other descriptors of this process are not counted: theirs come and go."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with os.fdopen(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)):
        assert str(pipe) in open_files()
    for _ in range(3):
        with pytest.raises(ValueError, match="a named pipe"), opened(pipe, 1):
            pass
    assert str(pipe) not in open_files()
