"""Counts env steps where they happen, in the same way for every peer, whatever the peer itself reports.

Each process that steps environments writes its own file of 8 bytes, in the folder that `FOLDER_VARIABLE` names. The
process that measures reads the files at any time; a count is one aligned word, so it is never torn. Nothing blocks, and
a process that is killed leaves what it had counted.
"""

from __future__ import annotations

import mmap
import os
import uuid
from pathlib import Path

FOLDER_VARIABLE = "RLBENCH_PEER_COUNTERS"
WORD_BYTES = 8


class StepCounter:
    """The env steps of one process; a forked process makes its own file at its first step."""

    def __init__(self) -> None:
        self._pid: int | None = None
        self._words = memoryview(bytearray(WORD_BYTES)).cast("q")

    def add(self, num_steps: int = 1) -> None:
        """Counts env steps."""
        if self._pid != os.getpid():
            self._words, self._pid = _open_word(Path(os.environ[FOLDER_VARIABLE])), os.getpid()
        self._words[0] += num_steps


def _open_word(folder: Path) -> memoryview:
    with (folder / f"{os.getpid()}-{uuid.uuid4().hex}").open("w+b") as file:
        file.write(bytes(WORD_BYTES))
        file.flush()
        return memoryview(mmap.mmap(file.fileno(), WORD_BYTES)).cast("q")


def total_env_steps(folder: Path) -> int:
    """The env steps of all processes so far; a file that is just being made counts 0."""
    return sum(int.from_bytes(path.read_bytes(), "little") for path in folder.iterdir())
