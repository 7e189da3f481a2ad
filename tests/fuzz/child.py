"""A process that reads spoilt files, one after the other, until there are no more; it may die of one.

Its standard input has the files, each after its length in 4 bytes; its standard output answers with a line of JSON
each: what became of it, and how long the processor worked on it. The memory of the process is limited.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

from tests.fuzz.targets import Target, make_target

MEMORY_BYTES = 2**30
"""That a file may take, beside what the process has when it has read a good one."""
READ, REFUSED, RAISED = "read", "refused", "raised"


def answer(target: Target, data: bytes) -> dict[str, Any]:
    """What became of a file."""
    began = time.process_time()
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            outcome, said = READ if target(data) else REFUSED, ""
        if "\x1b" in printed.getvalue():
            outcome, said = RAISED, "an escape sequence was printed"
    except BaseException:  # noqa: BLE001  whatever it is, is what the test is about
        outcome, said = RAISED, traceback.format_exc()
    return {"outcome": outcome, "said": said, "seconds": time.process_time() - began}


def main() -> None:
    """Answers until there are no more files."""
    name, folder = sys.argv[1], Path(sys.argv[2])
    warnings.simplefilter("error")  # a figure that overflows is a fault as well
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    target = make_target(name, folder)
    limited = False
    while head := sys.stdin.buffer.read(4):
        data = sys.stdin.buffer.read(int.from_bytes(head, "little"))
        answers.write(f"{json.dumps(answer(target, data))}\n")
        answers.flush()
        if not limited:  # the first is a good one: all modules are loaded now
            size = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY_BYTES, size + MEMORY_BYTES))
            limited = True


if __name__ == "__main__":
    main()
