"""Forks a rank's fork server from the rank itself, so that it has imported what the rank has: no interpreter starts.

It is multiprocessing's own fork server, in a child of the rank. Where its code is not as we know it, or where the rank
has threads already, multiprocessing starts it as it always does. It ends when the rank does, since the pipe that the
two share then closes.
"""

from __future__ import annotations

import faulthandler
import inspect
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import connection, forkserver
from pathlib import Path

from rlbench.harness.processes import process
from rlbench.harness.processes.forked import close_others, fork, is_forkable, set_command

ENDED_S = 5.0
"""Seconds in which a fork server whose pipes have closed can be waited for."""
KNOWN = ["listener_fd", "alive_r", "preload", "main_path", "sys_path"]
"""Arguments of `multiprocessing.forkserver.main` in Python 3.11; if it has others, it is left alone."""


def begin(preload: Sequence[str]) -> None:
    """Forks the server of this process, which imports `preload`; call it before any thread is started."""
    server = getattr(forkserver, "_forkserver", None)
    attributes = ("_forkserver_address", "_forkserver_alive_fd", "_forkserver_pid")
    is_known = all(hasattr(server, name) for name in attributes)
    if not is_known or list(inspect.signature(forkserver.main).parameters) != KNOWN or not is_forkable():
        return
    address: str = connection.arbitrary_address("AF_UNIX")  # type: ignore[attr-defined]  # as multiprocessing does
    alive, ours = os.pipe()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        Path(address).chmod(0o600)
        listener.listen()
        forked = fork(lambda: _serve(listener.fileno(), alive, preload))
    os.close(alive)
    for name, value in zip(attributes, (address, ours, forked.pid), strict=True):
        setattr(server, name, value)


def _serve(listener: int, alive: int, preload: Sequence[str]) -> int:
    faulthandler.unregister(signal.SIGUSR1)  # the rank's
    close_others(listener, alive)
    set_command([sys.executable, "-P", "-m", "multiprocessing.forkserver"])
    forkserver.main(listener, alive, list(preload))
    return 0


def how_it_ended() -> str | None:
    """How this process's fork server ended, if it did; multiprocessing in a rank loses no other child."""
    deadline = time.perf_counter() + ENDED_S
    with suppress(ChildProcessError):
        while time.perf_counter() < deadline:  # its pipes close a moment before it can be waited for
            if ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                return process.how_it_ended(ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status)
            time.sleep(0.01)
    return None
