"""The zygote: keepers of runs on this machine are forked from it, after it has imported once what their ranks need.

Who starts it: the command, before anything else, so that torch is imported while cells are planned; otherwise the first
run. Who asks: the runner sends one request at a time, to import or to fork, and waits for the answer; every `LOOK_S` it
checks whether it must end. What blocks: the zygote, in `recv` and while it imports. What ends it: the socket closes, or
the command ends and the kernel kills the zygote with it. If it is killed itself, the next run starts another one. The
zygote forks a child that forks the keeper and ends at once, so that the runner, which adopts orphans, becomes the
keeper's parent: from then on neither needs the zygote. The keeper forks the ranks.

While the zygote loads torch's libraries it can use two cores, later one. On a machine with two cores the command waits
for that before it plans (`await_libraries`): planning at the same time would delay the zygote by more than it gains.

Only a process with one thread may fork. If an import has started threads, the zygote starts again and imports nothing;
each rank then imports for itself.
"""

# This module is imported before anything else begins, so it imports slow modules only where it needs them.
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

from rlbench.harness.processes.library_variables import library_variables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from rlbench.harness.processes.forked import Forked

LOOK_S = 0.1
NUM_CORES, LOADING_S = 2, 0.5
"""Cores that loading torch's libraries takes, and the longest wait for it; loading from a slow disk takes no core."""
LARGEST, NUM_FDS = 65536, 3
"""Most bytes of a request, and most descriptors that come with it."""
ROOM = "-" * 160
"""A word that makes room in its command line, which keepers and ranks overwrite with their own."""


class ZygoteDied(RuntimeError):  # noqa: N818  says what happened
    """The zygote ended before it answered."""


class Zygote:
    """The command's end of the connection to the zygote."""

    def __init__(self) -> None:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket = ours
        self._loaded, loads = os.pipe()
        """A pipe that the zygote closes when it has loaded torch's libraries, or when it ends."""
        self._environment = dict(os.environ)
        with its, os.fdopen(loads, "wb"):
            self._process = subprocess.Popen(  # noqa: S603  our own interpreter and module
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "rlbench.harness.run.zygote",
                    str(its.fileno()),
                    str(loads),
                    str(os.getpid()),
                    ROOM,
                ],
                pass_fds=[its.fileno(), loads],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # output of imported libraries must not disturb the display
                start_new_session=True,  # a Ctrl-C in the terminal is for the command alone
                env={**os.environ, **library_variables(), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
            )

    @property
    def is_usable(self) -> bool:
        """Whether it lives and was started with the environment that this process has now."""
        return self._process.poll() is None and self._environment == os.environ

    def await_libraries(self) -> None:
        """Waits until the zygote has loaded torch's libraries, `LOADING_S` at most."""
        loaded = select.poll()
        loaded.register(self._loaded, 0)
        loaded.poll(1000 * LOADING_S)

    def prepare(self, modules: Iterable[str], is_to_end: Callable[[], bool]) -> bool:
        """Makes the zygote import what ranks will need, and waits until it can fork a keeper at once.

        Returns False if `is_to_end`, which is called meanwhile, says so. Raises ZygoteDied.
        """
        return self._ask({"import": list(modules)}, [], is_to_end) is not None

    def keep(
        self, folder: Path, variables: Mapping[str, str], err: IO[bytes], is_to_end: Callable[[], bool]
    ) -> Forked | None:
        """Makes the zygote fork a keeper, which becomes a child of this process, since that adopts orphans.

        Args:
            folder: the run's folder.
            variables: environment variables in addition to those of the command.
            err: where the keeper prints.
            is_to_end: called while this waits.

        Returns None if `is_to_end` says so. Raises ZygoteDied.
        """
        from rlbench.harness.processes.forked import Forked

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
                stdin.close()  # if the keeper was forked after all, this ends it
        return Forked(pid, stdin)

    def _ask(
        self, request: Mapping[str, object], fds: list[int], is_to_end: Callable[[], bool]
    ) -> dict[str, Any] | None:
        """The zygote's answer, or None if `is_to_end` says so. Raises ZygoteDied."""
        answered = select.poll()
        answered.register(self._socket, select.POLLIN)
        data = b""
        with suppress(OSError):  # the zygote is gone
            socket.send_fds(self._socket, [json.dumps(request).encode()], fds)
            while not answered.poll(1000 * LOOK_S):
                if is_to_end():
                    return None
            data = self._socket.recv(LARGEST)
        if not data:
            from rlbench.harness.processes import process

            how = process.how_it_ended(self._process.wait())
            raise ZygoteDied(f"the process that keepers are forked from {how}")
        answer: dict[str, Any] = json.loads(data)
        return answer

    def close(self) -> None:
        """Kills the zygote."""
        self._process.kill()
        self._process.wait()
        self._socket.close()
        os.close(self._loaded)


_begun: list[Zygote] = []


def begin() -> None:
    """Starts a zygote for the first run of this process, unless there is one."""
    if not _begun:
        _begun.append(Zygote())
        atexit.register(end)


def await_libraries() -> None:
    """If there is a zygote and only two cores, waits until it has loaded torch's libraries."""
    if _begun and len(os.sched_getaffinity(0)) == NUM_CORES:
        _begun[0].await_libraries()


def end() -> None:
    """Ends the zygote, if there is one."""
    while _begun:
        _begun.pop().close()


def living() -> Zygote:
    """The zygote of this process; a new one if it has died or was started with another environment."""
    if _begun and not _begun[0].is_usable:
        end()
    begin()
    return _begun[0]
