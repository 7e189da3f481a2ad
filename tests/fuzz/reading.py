"""Has spoilt files read by another process, which may die or hang without harm, and keeps the file that did it."""

from __future__ import annotations

import hashlib
import json
import os
import select
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.fuzz.child import RAISED, READ
from tests.fuzz.kinds import KINDS
from tests.fuzz.targets import FAULT

ROOT = Path(__file__).resolve().parents[2]
HANG_S = 60.0
"""Of the wall clock, on however slow a machine: a process that has not answered by then is killed."""
MOST_S = 5.0
"""Of the processor, for one file."""


class Reader:
    """A process that reads files, one at a time, and a new one where it ended; use it as a context."""

    def __init__(self, folder: Path) -> None:
        """`folder` keeps what failed."""
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._known: set[str] = set()
        self._number = 0
        self.outcomes: dict[str, Counter[str]] = defaultdict(Counter)
        """What became of the files, by their kind."""
        self.faults: dict[str, str] = {}
        """What is wrong, by the file that was kept."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the process."""
        self._end()

    def read(self, kind: str, data: bytes) -> None:
        """Has a file read; all but a result and an error in one line is a fault, of which the file is kept."""
        if self._process is None:
            self._begin()
        if kind not in self._known:
            good = self._ask(kind, b"" if kind == FAULT else KINDS[kind].good())
            assert good["outcome"] == READ, good["said"]
            self._known.add(kind)
        answer = self._ask(kind, data)
        if answer["outcome"] == RAISED or answer["seconds"] > MOST_S:
            self._end()
            kept = self._folder / f"{kind}-{hashlib.sha256(data).hexdigest()[:12]}"
            kept.write_bytes(data)
            self.faults[str(kept)] = f"{answer['seconds']:.1f} s of the processor; {answer['said']}"
        self.outcomes[kind][answer["outcome"]] += 1

    def _begin(self) -> None:
        self._number += 1
        here = self._folder / f"process-{self._number}"
        here.mkdir()
        self._process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-m", "tests.fuzz.child", here],
            cwd=ROOT,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def _ask(self, kind: str, data: bytes) -> dict[str, Any]:
        assert self._process is not None
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps({"kind": kind, "size": len(data)}).encode() + b"\n" + data)
            stdin.flush()
            ready, _, _ = select.select([stdout], [], [], HANG_S)
            line = stdout.readline() if ready else b""
        except BrokenPipeError:
            line, ready = b"", [stdout]
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        if not ready:
            self._process.kill()
        code = self._process.wait()
        said = f"the process ended with {code}" if ready else f"the process hung for {HANG_S:g} s"
        return {"outcome": RAISED, "said": said, "seconds": 0.0}

    def _end(self) -> None:
        self._known.clear()
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
