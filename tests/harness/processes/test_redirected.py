from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import ctypes, os, subprocess, sys
from pathlib import Path
from rlbench.harness.processes.redirected import output_to, say

out, err = Path("out.txt"), Path("err.txt")
libc = ctypes.CDLL(None)

def print_in_every_way():
    print("python")
    print("python's error", file=sys.stderr)
    os.write(1, b"descriptor\\n")
    os.write(2, b"descriptor's error\\n")
    libc.puts(b"held back by C")
    subprocess.run(["echo", "child"], check=True)

print("before")
libc.puts(b"C before")
try:
    with output_to(out, err):
        print_in_every_way()
        say("said")
        if "abort" in sys.argv:
            os.abort()
        if "raise" in sys.argv:
            raise KeyError
except KeyError:
    say("raised")
print("after")
libc.puts(b"C after")
with output_to(Path("none.txt"), Path("none-either.txt")):
    pass
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the program in a folder."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_what_libraries_print_goes_to_files_and_what_we_say_does_not(tmp_path: Path) -> None:
    """From Python, by descriptor, from a child, and what C holds back; before and after nothing is changed."""
    done = run(tmp_path)
    assert sorted(done.stdout.split("\n")) == sorted(["before", "C before", "after", "C after", ""])
    assert done.stderr == "said\n"
    printed = (tmp_path / "out.txt").read_text().splitlines()
    assert sorted(printed) == sorted(["python", "descriptor", "held back by C", "child"])
    assert (tmp_path / "err.txt").read_text() == "python's error\ndescriptor's error\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["err.txt", "out.txt"]  # nothing printed, no file


def test_an_exception_leads_the_streams_back(tmp_path: Path) -> None:
    """What was printed until then is there."""
    done = run(tmp_path, "raise")
    assert done.stderr == "said\nraised\n"
    assert "after" in done.stdout.splitlines()
    assert "child" in (tmp_path / "out.txt").read_text()


def test_a_process_that_is_aborted_leaves_what_was_printed(tmp_path: Path) -> None:
    """As when a simulator fails an assertion of its own."""
    done = run(tmp_path, "abort")
    assert done.returncode < 0
    assert (tmp_path / "err.txt").read_text() == "python's error\ndescriptor's error\n"


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    """A link in a file's place goes, and what it leads to stays; a folder there stays, and output goes nowhere."""
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "out.txt").symlink_to("precious")
    (tmp_path / "err.txt").mkdir()
    done = run(tmp_path)
    assert done.stderr == "said\n"
    assert (tmp_path / "precious").read_text() == "mine"
    assert not (tmp_path / "out.txt").is_symlink()
    assert list((tmp_path / "err.txt").iterdir()) == []
