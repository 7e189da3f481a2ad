from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rlbench.systems.external.output import MOST_LINES, FirstTraceback, Pump

PLAIN = """step 1
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    learn()
ValueError: boom

During handling of the above exception, another exception occurred:
Traceback (most recent call last):
  File "train.py", line 5, in <module>
KeyError: 1
"""
MARKED = """[rank1]: Traceback (most recent call last):
[rank1]:   File "train.py", line 3, in <module>
step 2 of another process
[rank1]: RuntimeError: lost
"""
LOGGED = """12:00 ERROR Traceback (most recent call last):
  File "train.py", line 3, in <module>
OSError: full
"""


@pytest.mark.parametrize(
    ("text", "last", "num_lines"),
    [
        (PLAIN, "ValueError: boom", 4),
        (MARKED, "RuntimeError: lost", 3),
        (LOGGED, "OSError: full", 3),
        ("nothing\n", None, 0),
    ],
)
def test_the_first_traceback_is_found(text: str, last: str | None, num_lines: int) -> None:
    """The first one alone, with or without a mark before its lines, and not what other processes print between."""
    found = FirstTraceback()
    for line in text.encode().splitlines():
        found.look(line)
    assert found.last_line == last
    assert len((found.text or "").splitlines()) == num_lines


def test_a_traceback_without_an_end_is_bounded() -> None:
    """Lines without end that all look like one are cut, and so are long ones."""
    found = FirstTraceback()
    found.look(b"Traceback (most recent call last):")
    for _ in range(10 * MOST_LINES):
        found.look(b"  " + b"x" * 100_000)
    assert found.text is not None
    assert len(found.text) < 2001 * MOST_LINES


def pumped(code: str, most_bytes: int, path: Path) -> bytes:
    """What a pump passes on of a program's output."""
    command = [sys.executable, "-c", code]
    with path.open("wb") as target, subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        pump = Pump(child.stdout, target.fileno(), most_bytes)
        assert child.wait(60) == 0
        pump.end()
    return path.read_bytes()


def test_output_is_passed_on(tmp_path: Path) -> None:
    """What fits is passed on byte by byte, also without a last line end."""
    assert pumped("print('a' * 50_000); print('b', end='')", 200_000, tmp_path / "out") == b"a" * 50_000 + b"\nb"


def test_output_without_end_is_bounded(tmp_path: Path) -> None:
    """Of a hundred times as much the beginning and the end are kept, the middle is counted; nothing is held up."""
    code = f"""
import os
os.write(1, b'begin')
for _ in range(100):
    os.write(1, b'x' * {2**20})
os.write(1, b'end')
"""
    kept = pumped(code, 2**20, tmp_path / "out")
    assert kept.startswith(b"beginxxx")
    assert kept.endswith(b"xxxend")
    assert len(kept) < 1.3 * 2**20
    left_out = int(kept.partition(b"[rlbench: ")[2].partition(b" ")[0].replace(b",", b""))
    marked = len(f"\n[rlbench: {left_out:,} bytes are left out here]\n")
    assert left_out + len(kept) - marked == 100 * 2**20 + 8
