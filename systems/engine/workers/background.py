"""A thread beside the rank's main one, whose failure is not lost.

`join` blocks until the thread has ended. If the thread raises, it calls `on_failure`, which must free whatever waits
for it, and `join` or `check` raises the exception again. A main thread that is busy in a library then, or waits for
another rank, cannot be interrupted: if it has not noticed after `NOTICE_S` seconds, the process leaves the error behind
and ends. The thread is a daemon: it never keeps a process alive.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from rlbench.harness.processes import process, raised

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NOTICE_S = 5.0


class Background:
    """Runs a function in a thread of its own, from now on."""

    def __init__(self, name: str, work: Callable[[], None], on_failure: Callable[[], None], error_path: Path) -> None:
        self._work, self._on_failure, self._error_path = work, on_failure, error_path
        self._failure: BaseException | None = None
        self._noticed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as failure:  # noqa: BLE001  whatever it is, the main thread raises it
            self._failure = failure
            self._on_failure()
            if self._noticed.wait(NOTICE_S):
                return
            with suppress(OSError):  # the disk may be full
                process.leave_error(self._error_path, failure)
                print(raised.in_a_line(failure), file=sys.stderr, flush=True)  # noqa: T201  this process's stderr is part of the record
            os._exit(1)

    def check(self) -> None:
        """Raises the thread's exception if it raised one."""
        if self._failure is not None:
            self._noticed.set()
            raise self._failure

    def join(self) -> None:
        """Waits for the thread's end; raises its exception if it raised one."""
        while self._thread.is_alive() and self._failure is None:
            self._thread.join(1)
        self.check()
