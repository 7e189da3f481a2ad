"""A process that reads spoilt files, one after the other, until there are no more; it may die of one.

Its standard input has the files, each after a line that says of which kind and how large it is; its standard output
answers with a line each: what became of it, and how long the processor worked on it. Both lines are JSON. The first
file of each kind is a good one; from then on the memory of the process is limited.
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
    folder = Path(sys.argv[1])
    warnings.simplefilter("error")  # a figure that overflows is a fault as well
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    targets: dict[str, Target] = {}
    while head := sys.stdin.buffer.readline():
        asked = json.loads(head)
        name, data = asked["kind"], sys.stdin.buffer.read(asked["size"])
        is_first = name not in targets
        if is_first:
            limit_memory(resource.RLIM_INFINITY)
            (folder / name).mkdir()
            targets[name] = make_target(name, folder / name)
        answers.write(f"{json.dumps(answer(targets[name], data))}\n")
        answers.flush()
        if is_first:  # it is a good one: all modules are loaded now
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
            limit_memory(pages * resource.getpagesize() + MEMORY_BYTES)


def limit_memory(num_bytes: int) -> None:
    """Of this process from now on."""
    resource.setrlimit(resource.RLIMIT_AS, (num_bytes, resource.RLIM_INFINITY))


if __name__ == "__main__":
    main()
