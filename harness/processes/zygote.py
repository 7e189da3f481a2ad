"""The process that keepers of runs on this machine are forked from: it has imported what their ranks need, once.

Who starts it: the command, before it does anything else, so that torch is imported while cells are planned; else the
first run. Who speaks: the runner asks one thing at a time, to import or to fork, and waits for the answer, looking
every `LOOK_S` whether it is to end. What blocks: the zygote, in `recv`; an import ends when it ends. What frees it: the
end of the socket, or of the command, with which the kernel kills it; where it was killed itself, the next run starts
another one. A keeper is forked by a child that ends at once, so that the runner, which adopts orphans, becomes its
parent: from then on the two have nothing to do with the zygote. Its ranks are forked by the keeper.

While it loads torch's libraries it has use for two cores, later for one. On a machine with two the command plans
afterwards (`await_libraries`): beside it, planning delays it by more than it gains.

Only a process with one thread is forked. Where what was imported has started others, the zygote begins anew and
imports nothing: each rank does so itself then.
"""

# It is imported before anything else is begun: what takes time to import is imported later.
from __future__ import annotations

import atexit
import json
import os
import select
import socket
import subprocess
import sys
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

from harness.processes.threads import sleeping_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from harness.processes.forked import Forked

LOOK_S = 0.1
NUM_CORES, LOADING_S = 2, 0.5
"""Cores that loading torch's libraries takes, and the most that it is waited for: from a slow disk it takes no core."""
LARGEST, NUM_FDS = 65536, 3
"""Of a request: its bytes, and the descriptors that come with it."""
ROOM = "-" * 160
"""A word of its command line, over which keepers and ranks write their own."""


class ZygoteDied(RuntimeError):  # noqa: N818  says what happened
    """It ended before it answered."""


class Zygote:
    """The command's end of it."""

    def __init__(self) -> None:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket = ours
        self._loaded, loads = os.pipe()
        """Its end comes with the zygote's, at the latest."""
        self._environment = dict(os.environ)
        with its, os.fdopen(loads, "wb"):
            self._process = subprocess.Popen(  # noqa: S603  our own interpreter and module
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "harness.run.zygote",
                    str(its.fileno()),
                    str(loads),
                    str(os.getpid()),
                    ROOM,
                ],
                pass_fds=[its.fileno(), loads],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # what a library says when it is imported must not disturb the display
                start_new_session=True,  # a Ctrl-C in the terminal is the command's
                env={**os.environ, **sleeping_threads(), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
            )

    @property
    def is_usable(self) -> bool:
        """Whether it lives, and has the environment that this process has now."""
        return self._process.poll() is None and self._environment == os.environ

    def await_libraries(self) -> None:
        """Waits until it has loaded torch's libraries, `LOADING_S` at most."""
        loaded = select.poll()
        loaded.register(self._loaded, 0)
        loaded.poll(1000 * LOADING_S)

    def prepare(self, modules: Iterable[str], is_to_end: Callable[[], bool]) -> bool:
        """Has it import what ranks will need, and waits until a keeper is forked as soon as it is asked for.

        Returns False when it is to end, which is asked meanwhile. Raises ZygoteDied.
        """
        return self._ask({"import": list(modules)}, [], is_to_end) is not None

    def keep(
        self, folder: Path, variables: Mapping[str, str], err: IO[bytes], is_to_end: Callable[[], bool]
    ) -> Forked | None:
        """Has a keeper forked for the run in a folder; it becomes a child of this process, which adopts orphans.

        Args:
            folder: of the run.
            variables: of the environment, beside those of the command.
            err: where the keeper prints.
            is_to_end: asked meanwhile.

        Returns None when it is to end. Raises ZygoteDied.
        """
        from harness.processes.forked import Forked

        read_end, write_end = os.pipe()
        stdin, here = os.fdopen(write_end, "wb"), os.open(".", os.O_PATH | os.O_CLOEXEC)
        pid = None
        try:
            request = {"keep": str(folder), "runner": os.getpid(), "variables": dict(variables)}
            if (answer := self._ask(request, [read_end, err.fileno(), here], is_to_end)) is None:
                return None
            if (pid := answer.get("pid")) is None:
                raise ZygoteDied(f"no keeper could be forked: {answer['problem']}")
        finally:
            os.close(read_end)
            os.close(here)
            if pid is None:
                stdin.close()  # it may have forked the keeper, which ends then
        return Forked(pid, stdin)

    def _ask(
        self, request: Mapping[str, object], fds: list[int], is_to_end: Callable[[], bool]
    ) -> dict[str, Any] | None:
        """What it answers; None when it is to end. Raises ZygoteDied."""
        answered = select.poll()
        answered.register(self._socket, select.POLLIN)
        data = b""
        with suppress(OSError):  # it is gone
            socket.send_fds(self._socket, [json.dumps(request).encode()], fds)
            while not answered.poll(1000 * LOOK_S):
                if is_to_end():
                    return None
            data = self._socket.recv(LARGEST)
        if not data:
            from harness.processes import process

            how = process.how_it_ended(self._process.wait())
            raise ZygoteDied(f"the process that keepers are forked from {how}")
        answer: dict[str, Any] = json.loads(data)
        return answer

    def close(self) -> None:
        """Ends it."""
        self._process.kill()
        self._process.wait()
        self._socket.close()
        os.close(self._loaded)


_begun: list[Zygote] = []


def begin() -> None:
    """Starts it, unless there is one, to be used by the first run of this process."""
    if not _begun:
        _begun.append(Zygote())
        atexit.register(end)


def await_libraries() -> None:
    """Where there is one, on a machine whose cores it needs, waits until it has loaded torch's libraries."""
    if _begun and len(os.sched_getaffinity(0)) == NUM_CORES:
        _begun[0].await_libraries()


def end() -> None:
    """Ends it, if there is one."""
    while _begun:
        _begun.pop().close()


def living() -> Zygote:
    """The one of this process; another one where it has died, or was started for another environment."""
    if _begun and not _begun[0].is_usable:
        end()
    begin()
    return _begun[0]
