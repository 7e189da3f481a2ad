"""Ranks for tests are forked from one process that has imported torch: most of what a rank costs is that import.

`start(words, variables, store)` has a new process run `python -m WORDS` with these environment variables, as
`subprocess.Popen` would; what the new process is told by fork is only what it would have imported anyway. Processes
that it starts in turn (fork servers, environment workers) are begun anew by it, as ever.

Who talks: whoever starts ranks, one thread of the tests, over a socket, a request at a time, each answered by a number:
the process that was started, or how the one asked for has ended. What ends the zygote is the end of that socket, which
is that of the tests however they end, and the kernel ends the ranks with it.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from rlbench.harness.processes import process
from tests import left_behind

ROOT = Path(__file__).parents[3]
ANSWER = struct.Struct("q")
PRELOADED = ("torch.distributed", "rlbench.systems.engine.rank.assembly", "rlbench.systems.engine.rank.rank_loop")
MOST_BYTES, MOST_FILES = 1 << 20, 200


class Forked:
    """A process that the zygote has forked; a little of `subprocess.Popen`."""

    def __init__(self, pid: int, output: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._output = output
        self._end = os.pidfd_open(pid)

    def communicate(self, timeout: float | None = None) -> tuple[bytes, None]:
        """What it and all that have its output have printed, once all of them have ended."""
        deadline = None if timeout is None else time.monotonic() + timeout
        printed = b""
        while self._output >= 0:
            _await(self._output, deadline)
            if piece := os.read(self._output, MOST_BYTES):
                printed += piece
            else:
                os.close(self._output)
                self._output = -1
        self.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return printed, None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, or minus the signal that killed it; raises TimeoutExpired while it lives."""
        if self.returncode is None:
            _await(self._end, None if timeout is None else time.monotonic() + timeout)
            os.close(self._end)
            self.returncode = _ask({"ended": self.pid}, [])
        return self.returncode

    def kill(self) -> None:
        """Kills it, unless it is known to have ended."""
        if self.returncode is None:
            signal.pidfd_send_signal(self._end, signal.SIGKILL)

    def close(self) -> None:
        """Kills it, and lets go of what it prints."""
        self.kill()
        self.wait()
        if self._output >= 0:
            os.close(self._output)
            self._output = -1


def _await(descriptor: int, deadline: float | None) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    left_ms = None if deadline is None else 1e3 * max(0.0, deadline - time.monotonic())
    if not poll.poll(left_ms):
        raise subprocess.TimeoutExpired("a rank", 0.0)


def start(words: Sequence[str], variables: Mapping[str, str], descriptors: Mapping[str, int]) -> Forked:
    """Starts `python -m WORDS`, in the repository's folder; both of its streams are one pipe.

    Args:
        words: a module, and its arguments.
        variables: its environment.
        descriptors: open files that it gets, each with the variable that says its number there.
    """
    sys.audit("subprocess.Popen", sys.executable, list(words), ROOT, None)  # for `tests/times.py`
    output, output_in = os.pipe()
    try:
        request = {"words": list(words), "variables": dict(variables), "named": list(descriptors)}
        return Forked(_ask(request, [output_in, *descriptors.values()]), output)
    finally:
        os.close(output_in)


def _ask(request: object, descriptors: list[int]) -> int:
    zygote = _zygote()
    socket.send_fds(zygote, [json.dumps(request).encode()], descriptors)
    answer = zygote.recv(ANSWER.size)
    assert answer, "the process that forks ranks has ended"
    return int(ANSWER.unpack(answer)[0])


@functools.cache
def _zygote() -> socket.socket:
    """Our end of the socket of a zygote that lives as long as this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", __name__, str(theirs.fileno())]
    zygote = subprocess.Popen(command, cwd=ROOT, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL)
    theirs.close()

    def end() -> None:
        ours.close()
        zygote.wait()

    left_behind.AT_END.append(end)
    return ours


def serve(requests: socket.socket) -> None:
    """Forks, and says how what was forked has ended, until nobody asks any more."""
    for module in PRELOADED:
        importlib.import_module(module)
    import torch

    torch.set_num_threads(1)  # as the tests do: last bits depend on it
    while True:
        said, descriptors, _, _ = socket.recv_fds(requests, MOST_BYTES, MOST_FILES)
        if not said:
            return
        request = json.loads(said)
        if "ended" in request:
            answer = os.waitstatus_to_exitcode(os.waitpid(request["ended"], 0)[1])
        else:
            zygote = os.getpid()
            answer = os.fork()
            if not answer:
                requests.close()
                _become(zygote, descriptors, **request)
        for descriptor in descriptors:
            os.close(descriptor)
        with suppress(BrokenPipeError):
            requests.send(ANSWER.pack(answer))


def _become(
    zygote: int, descriptors: list[int], words: list[str], variables: dict[str, str], named: list[str]
) -> NoReturn:
    """Runs a module as `python -m` does, in the process that was just forked."""
    process.die_with_parent(zygote)
    output, *given = descriptors
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.environ.clear()
    os.environ.update(variables)
    for name, descriptor in zip(named, given, strict=True):
        os.environ[name] = str(descriptor)
    sys.argv = list(words)
    code = 1
    try:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:  # noqa: BLE001  as the interpreter does
        sys.excepthook(*sys.exc_info())
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
