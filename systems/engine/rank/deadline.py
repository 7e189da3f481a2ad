"""The moment at which a rank collects no further, however long a step takes.

What blocks: a thread, until then or until the rank has no more use for it. It is a daemon, and calls what it was given
once, or never. A rank without a limit in seconds has no such thread.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Deadline:
    """Calls a function so many seconds from now, unless it is ended before; never if there is no limit."""

    def __init__(self, seconds: float | None, on_passed: Callable[[], None]) -> None:
        self._timer: threading.Timer | None = None
        if seconds is not None:
            self._timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), on_passed)
            self._timer.daemon = True
            self._timer.start()

    def end(self) -> None:
        """After this nothing is called any more, nor is a call under way."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
