"""What did not end a run, and is a warning of its record."""

from __future__ import annotations

from pathlib import Path

from rlbench.harness.processes import remarks


def test_remarks_of_all_processes_are_read(tmp_path: Path) -> None:
    """In the order of the labels, each as it was left."""
    remarks.leave(tmp_path, "rank0-env1", "environment 1 raised OSError when it was closed")
    remarks.leave(tmp_path, "rank0-env0", "one")
    remarks.leave(tmp_path, "rank0-env0", "two")
    assert remarks.read(tmp_path) == ["one", "two", "environment 1 raised OSError when it was closed"]


def test_what_is_no_remark_is_left_out(tmp_path: Path) -> None:
    """Any process may write there: a line that is no text, a file too large, a link, escape sequences harm nothing."""
    remarks.leave(tmp_path, "a", "\x1b[2Jcleared")
    (tmp_path / "remarks-b.jsonl").write_bytes(b"\xff{")
    (tmp_path / "remarks-c.jsonl").write_text('{"a": 1}\n"said"\n')
    (tmp_path / "remarks-c2.jsonl").write_text("[" * 100_000)
    (tmp_path / "remarks-d.jsonl").symlink_to("/dev/zero")
    with (tmp_path / "remarks-e.jsonl").open("wb") as file:
        file.truncate(2**40)
    assert remarks.read(tmp_path) == [r"\x1b[2Jcleared", "said"]


def test_many_remarks_are_counted(tmp_path: Path) -> None:
    """So many are shown, of more the number."""
    for number in range(remarks.MOST + 3):
        remarks.leave(tmp_path, "rank0-env0", str(number))
    assert len(remarks.read(tmp_path)) == remarks.MOST + 1
    assert remarks.read(tmp_path)[-1] == "3 remarks more of this kind"


def test_a_remark_on_a_full_disk_is_lost(tmp_path: Path) -> None:
    """It ends nothing."""
    remarks.leave(tmp_path / "missing", "rank0", "unheard")
    assert remarks.read(tmp_path) == []
