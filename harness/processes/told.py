"""SIGTERM to a rank: whom earlyoom, systemd or a person told to stop, and who that was as far as the kernel says.

Python tells a handler no more than the signal's number; the kernel tells a thread that waits for a signal who has sent
it as well. So the rank blocks SIGTERM, in all threads that it starts from then on, and one of them waits for it. What a
rank starts must not inherit that (`as_usual`).

Who writes: that thread notes the first sender; the main thread leaves a file if the run ends for it. Who reads: the
keeper, when all ranks have ended well. What blocks: the thread alone, in `sigwaitinfo`; it is a daemon, and nothing
waits for it. Until a rank takes requests SIGTERM ends it, as it ends any process.
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
    """0: the kernel does not say, or it cannot be seen from this container."""
    uid: int = 0
    name: str = ""
    """Of its program, as that has it, if it still lived when the signal came."""

    def __str__(self) -> str:
        if not self.pid:
            return "a process that the kernel does not name"
        return f"{self.name or 'a process that is gone'} (pid {self.pid}, user {self.uid})"


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """A rank that ended the run because it was told to."""

    rank: int
    iteration: int
    """The iteration that it was in, from 0."""
    sender: Sender

    def __str__(self) -> str:
        return f"rank {self.rank} was told to stop by SIGTERM, from {self.sender}, in iteration {self.iteration}"

    def leave(self, folder: Path) -> None:
        """Leaves it for the keeper; read while this process may be killed."""
        path = _path(folder, self.rank)
        unfinished = path.with_suffix(".new")
        unfinished.write_text(json.dumps(asdict(self)), encoding="utf-8")
        unfinished.rename(path)


def _path(folder: Path, rank: int) -> Path:
    return folder / f"told-rank{rank}.json"


def read_told(folder: Path, ranks: Iterable[int]) -> list[Told]:
    """What the ranks that were told have left, in their order."""
    found = [json.loads(path.read_text(encoding="utf-8")) for rank in ranks if (path := _path(folder, rank)).exists()]
    return [Told(**{**fields, "sender": Sender(**fields["sender"])}) for fields in found]


class StopRequests:
    """Whether this process was told to stop, and by whom; says no until it is asked to `listen`, and then to `take`."""

    def __init__(self) -> None:
        self.sender: Sender | None = None
        """Who was the first to tell this process to stop."""
        self._is_listening = self._takes = False

    def listen(self) -> None:
        """Begins to wait for SIGTERM; called in the main thread, before others are started."""
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGTERM)
        self._is_listening = True
        threading.Thread(target=self._wait, name="sigterm", daemon=True).start()

    def take(self) -> None:
        """From now on SIGTERM asks for an end, and does not bring it about."""
        if self._is_listening:
            # A library's thread from before does not block the signal: then the kernel may give it to that one.
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
    """Inside, SIGTERM comes to this thread as to any other; so it does to a process that is started there."""
    before = signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGTERM)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
