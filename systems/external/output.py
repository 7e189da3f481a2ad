"""Passes a trainer's output on to the rank's own, up to a limit, and finds the first traceback in it.

The trainer's processes write to a pipe. One thread reads each pipe: it passes the first half of the limit on at once,
and keeps the last half in memory until the end, so a trainer never blocks for long, whatever it prints. The thread
ends when the last process that holds the pipe ends, or with this process.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import IO

TRACEBACK = b"Traceback (most recent call last):"
MOST_LINES = 200
"""Lines of a traceback that are kept."""
LONGEST_LINE = 2000
CHUNK_BYTES = 65_536
END_LIMIT_S = 5.0


class FirstTraceback:
    """Finds the first Python traceback in lines, also one whose lines a launcher has marked with a prefix."""

    def __init__(self) -> None:
        self._prefix: bytes | None = None
        self._lines: list[bytes] = []
        self._is_whole = False

    def look(self, line: bytes) -> None:
        """Takes the next line of the output."""
        if self._is_whole:
            return
        line = line[:LONGEST_LINE]
        if self._prefix is None:
            before, found, _ = line.partition(TRACEBACK)
            if found:
                self._prefix = before
                self._lines.append(TRACEBACK)
            return
        if not line.startswith(self._prefix):
            if len(self._lines) > 1:
                return  # a line of another process
            self._prefix = b""  # the prefix marks a log's first line, not every line
        text = line.removeprefix(self._prefix)
        self._lines.append(text)
        # A line that is not indented is the exception, and the last one.
        self._is_whole = (bool(text.strip()) and not text.startswith((b" ", b"\t"))) or len(self._lines) >= MOST_LINES

    @property
    def text(self) -> str | None:
        """The traceback, as far as it was printed; None where there is none."""
        return b"\n".join(self._lines).decode(errors="replace") + "\n" if self._lines else None

    @property
    def last_line(self) -> str | None:
        """The line with the exception; None if there is no traceback or it is not whole."""
        return self._lines[-1].decode(errors="replace").strip() if self._is_whole else None


class Pump:
    """Passes on what comes through one pipe, up to about `most_bytes` of it."""

    def __init__(self, source: IO[bytes], target: int, most_bytes: int) -> None:
        self.traceback = FirstTraceback()
        self._source, self._target = source, target
        self._room = self._half = max(1, most_bytes // 2)
        self._last: deque[bytes] = deque()
        self._num_last = self._num_left_out = 0
        self._line = b""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while data := os.read(self._source.fileno(), CHUNK_BYTES):
            *lines, rest = (self._line + data).split(b"\n")
            self._line = rest[-CHUNK_BYTES:]
            for line in lines:
                self.traceback.look(line)
            first, later = data[: self._room], data[self._room :]
            if first:
                _write(self._target, first)
                self._room -= len(first)
            if later:
                self._keep(later)

    def _keep(self, data: bytes) -> None:
        self._last.append(data)
        self._num_last += len(data)
        while self._num_last - len(self._last[0]) >= self._half:
            gone = len(self._last.popleft())
            self._num_last -= gone
            self._num_left_out += gone

    def end(self) -> None:
        """Passes on the rest. Call it once the trainer's processes have ended; it waits at most `END_LIMIT_S`."""
        self._thread.join(END_LIMIT_S)
        self.traceback.look(self._line)
        if self._num_left_out:
            _write(self._target, f"\n[rlbench: {self._num_left_out:,} bytes are left out here]\n".encode())
        for data in list(self._last):
            _write(self._target, data)


def _write(target: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]
