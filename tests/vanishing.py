"""A folder that is gone when the process that asked for it has ended, however it ended, and who works in it as well.

So are names that begin as its own does, beside it and in /dev/shm.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

KEEPER = """
import os, pathlib, shutil, signal, sys, tempfile, time
folder = tempfile.mkdtemp(prefix=sys.argv[1], dir=sys.argv[2])
place, name = os.path.split(folder)
print(folder, flush=True)
sys.stdin.buffer.read()
left = 600
while left > 0:
    left -= 1
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            told = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            if os.fsencode(folder) in told:
                os.kill(int(process.name), signal.SIGKILL)
        except OSError:
            pass
    for path in (path for where in (place, "/dev/shm") for path in pathlib.Path(where).glob(f"{name}*")):
        shutil.rmtree(path, ignore_errors=True)
        if not path.is_dir():
            path.unlink(missing_ok=True)
    if not os.path.lexists(folder):
        left = min(left, 5)  # for who was just being started, whose variables cannot be read
    time.sleep(0.1)
"""
"""Makes the folder and removes it at the end of its input, which comes with the end of who has started it.

Processes that were told of the folder, in their command or their variables, are ended first: they work in it.
"""


@contextmanager
def vanishing_folder(prefix: str, place: Path = Path("/tmp")) -> Iterator[Path]:  # noqa: S108  paths in it stay short
    """A new folder in `place`; a process of a session of its own removes it, which no Ctrl-C and no kill reaches."""
    keeper = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", KEEPER, prefix, place],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    assert keeper.stdout is not None
    try:
        yield Path(keeper.stdout.readline().removesuffix("\n"))
    finally:
        keeper.communicate()
