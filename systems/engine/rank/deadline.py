"""The moment at which a rank stops collecting, however long a step takes.

A daemon thread blocks until that moment, or until the rank ends the deadline. It calls the function that it was given
at most once. A rank without a limit in seconds has no such thread.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Deadline:
    """Calls a function `seconds` from now, unless `end` comes first; never if `seconds` is None."""

    def __init__(self, seconds: float | None, on_passed: Callable[[], None]) -> None:
        self._timer: threading.Timer | None = None
        if seconds is not None:
            self._timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), on_passed)
            self._timer.daemon = True
            self._timer.start()

    def end(self) -> None:
        """Cancels the call, or waits for it to end if it is under way."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
