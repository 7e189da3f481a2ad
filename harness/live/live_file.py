"""Writes `live.json` (`harness/live/state.py`) while a sweep runs; the first one is there before the plan.

Who writes: one thread, once a second, so that neither a slow disk nor a long step of the runner delays the other. Who
reads: anybody; each writing replaces the file by one rename. What blocks: only that thread, on the file system. What
ends it: `close`, which removes the file. A file or folder that somebody has removed meanwhile stays removed.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rlbench.harness.live.state import LIVE_FILE, LiveSweep, write_live

if TYPE_CHECKING:
    from collections.abc import Callable

PERIOD_S = 1.0
CLOSE_LIMIT_S = 5.0
"""Seconds that the end of a sweep waits for a file system that does not answer."""


class LiveFile:
    """The file of one sweep; close it when the sweep is over."""

    def __init__(self, folder: Callable[[], Path], state: Callable[[], LiveSweep]) -> None:
        """Begins to write; `folder` says where the sweep is by now, `state` how far. Both are called in the thread."""
        self._folder, self._state = folder, state
        self._beat, self._place = 0, 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="live file", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            with suppress(OSError):  # it is for those who watch alone
                self._write()
            if self._ends.wait(PERIOD_S):
                return

    def _write(self) -> None:
        folder = self._folder()
        place = folder.stat().st_ino
        if place == self._place and not os.path.lexists(folder / LIVE_FILE):
            return  # somebody removes the folder, which a new file would prevent
        self._beat += 1
        write_live(folder, self._state().model_copy(update={"beat": self._beat}))
        self._place = place

    def close(self) -> None:
        """Removes the file."""
        self._ends.set()
        self._thread.join(CLOSE_LIMIT_S)
        with suppress(OSError):
            (self._folder() / LIVE_FILE).unlink()
