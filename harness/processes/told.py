"""SIGTERM to a rank: which rank earlyoom, systemd or a person told to stop, and who sent it, if the kernel says.

Python tells a signal handler only the signal's number, but the kernel tells a thread that waits for a signal also who
sent it. So the rank blocks SIGTERM in all threads that it starts from then on, and one of them waits for it. Processes
that a rank starts must not inherit the blocked signal (`as_usual`).

Who writes: that thread notes the first sender; the main thread writes a file if the run ends because of it. Who reads:
the keeper, when all ranks have ended well. What blocks: only that thread, in `sigwaitinfo`; it is a daemon and nothing
waits for it. Until a rank takes requests (`take`), SIGTERM ends it like any process.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

SIGTERM = frozenset({signal.SIGTERM})


@dataclass(frozen=True, kw_only=True, slots=True)
class Sender:
    """The process that sent a signal."""

    pid: int = 0
    """0 if the kernel does not say, or if the sender is not visible from this container."""
    uid: int = 0
    name: str = ""
    """The sender's /proc/PID/comm; empty if it had ended when the signal came."""

    def __str__(self) -> str:
        if not self.pid:
            return "a process that the kernel does not name"
        return f"{self.name or 'a process that is gone'} (pid {self.pid}, user {self.uid})"


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """A rank that ended the run because it was told to stop."""

    rank: int
    iteration: int
    """The iteration in which it stopped, from 0."""
    sender: Sender

    def __str__(self) -> str:
        return f"rank {self.rank} was told to stop by SIGTERM, from {self.sender}, in iteration {self.iteration}"

    def leave(self, folder: Path) -> None:
        """Writes it for the keeper, by a rename, since this process may be killed at any moment."""
        path = _path(folder, self.rank)
        unfinished = path.with_suffix(".new")
        unfinished.write_text(json.dumps(asdict(self)), encoding="utf-8")
        unfinished.rename(path)


def _path(folder: Path, rank: int) -> Path:
    return folder / f"told-rank{rank}.json"


def read_told(folder: Path, ranks: Iterable[int]) -> list[Told]:
    """Reads what the ranks that were told to stop have left, in the order of `ranks`."""
    found = [json.loads(path.read_text(encoding="utf-8")) for rank in ranks if (path := _path(folder, rank)).exists()]
    return [Told(**{**fields, "sender": Sender(**fields["sender"])}) for fields in found]


class StopRequests:
    """Whether this process was told to stop, and by whom. Requests count only after `listen` and then `take`."""

    def __init__(self) -> None:
        self.sender: Sender | None = None
        """The first process that told this one to stop; None so far."""
        self._is_listening = self._takes = False

    def listen(self) -> None:
        """Begins to wait for SIGTERM; call it in the main thread, before it starts others."""
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGTERM)
        self._is_listening = True
        threading.Thread(target=self._wait, name="sigterm", daemon=True).start()

    def take(self) -> None:
        """From now on SIGTERM only requests an end, and no longer kills the process."""
        if self._is_listening:
            # A thread that a library started before does not block the signal, so the kernel may give it to that one.
            signal.signal(signal.SIGTERM, lambda *_: self._note(Sender()))
            self._takes = True

    def _note(self, sender: Sender) -> None:
        if self.sender is None:
            self.sender = sender

    def _wait(self) -> None:
        while True:
            info = signal.sigwaitinfo(SIGTERM)
            if self._takes:
                self._note(Sender(pid=info.si_pid, uid=info.si_uid, name=_name(info.si_pid)))
            else:
                with as_usual():
                    os.kill(os.getpid(), signal.SIGTERM)


def _name(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    return ""


@contextmanager
def as_usual() -> Iterator[None]:
    """Inside, this thread does not block SIGTERM, nor do the processes that it starts there."""
    before = signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGTERM)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
