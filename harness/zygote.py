"""The process that keepers of runs on this machine are forked from: it has imported what their ranks need, once.

Who starts it: the command, before it does anything else, so that torch is imported while cells are planned; else the
first run. Who speaks: the runner asks for one keeper at a time and waits for its process number, looking every
`LOOK_S` whether it is to end. What blocks: the zygote, in `recv`; an import ends when it ends. What frees it: the end
of the socket, or of the command, with which the kernel kills it; where it was killed itself, the next run starts
another one. A keeper is forked by a child that ends at once, so that the runner, which adopts orphans, becomes its
parent: from then on the two have nothing to do with the zygote. Its ranks are forked by the keeper.

Only a process with one thread is forked. Where what was imported has started others, the zygote begins anew and
imports nothing: each rank does so itself then.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import select
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from harness import process, registry
from harness.forked import Forked, close_others, fork, is_forkable, set_command
from harness.threads import sleeping_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

BESIDE = ("harness.keeper", "numpy", "gymnasium")
"""Imported while another thread has torch's libraries loaded, which holds no lock of Python's."""
LIBRARIES = {"libtorch_global_deps.so": ctypes.RTLD_GLOBAL, "libtorch_python.so": ctypes.RTLD_LOCAL}
"""How `import torch` loads them, and in which order."""
FIRST = ("torch",)
"""Imported while nobody knows yet what is to be run; all systems but those of other programs need it."""
LOOK_S = 0.1
LARGEST = 65536
ROOM = "-" * 160
"""A word of its command line, over which keepers and ranks write their own."""
PLAIN = "plain"
"""A word of its command line: it imports nothing."""


class ZygoteDied(RuntimeError):  # noqa: N818  says what happened
    """It ended before it answered."""


class Zygote:
    """The command's end of it."""

    def __init__(self) -> None:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket = ours
        with its:
            self._process = subprocess.Popen(  # noqa: S603  our own interpreter and module
                [sys.executable, "-P", "-m", "harness.zygote", str(its.fileno()), str(os.getpid()), ROOM],
                pass_fds=[its.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # what a library says when it is imported must not disturb the display
                start_new_session=True,  # a Ctrl-C in the terminal is the command's
                env={**os.environ, **sleeping_threads(), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
            )

    @property
    def lives(self) -> bool:
        """Whether it can be asked."""
        return self._process.poll() is None

    def prepare(self, modules: Iterable[str]) -> None:
        """Has it import what ranks will need; does not wait for it."""
        with suppress(OSError):  # it has ended: the next request says so
            self._socket.send(json.dumps({"import": list(modules)}).encode())

    def keep(
        self, folder: Path, variables: Mapping[str, str], err: IO[bytes], is_to_end: Callable[[], bool]
    ) -> Forked | None:
        """Has a keeper forked for the run in a folder; it becomes a child of this process, which adopts orphans.

        Args:
            folder: of the run.
            variables: of the environment, beside those of the command.
            err: where the keeper prints.
            is_to_end: asked while the zygote imports.

        Returns None when it is to end. Raises ZygoteDied.
        """
        request = json.dumps({"keep": str(folder), "variables": dict(variables)}).encode()
        answered = select.poll()
        answered.register(self._socket, select.POLLIN)
        read_end, write_end = os.pipe()
        stdin = os.fdopen(write_end, "wb")
        try:
            socket.send_fds(self._socket, [request], [read_end, err.fileno()])
            while not answered.poll(1000 * LOOK_S):
                if is_to_end():
                    stdin.close()
                    return None
            if not (answer := self._socket.recv(LARGEST)):
                raise ConnectionResetError
        except OSError:
            stdin.close()  # it may have forked the keeper, which ends then
            how = process.how_it_ended(self._process.wait())
            raise ZygoteDied(f"the process that keepers are forked from {how}") from None
        finally:
            os.close(read_end)
        return Forked(json.loads(answer)["pid"], stdin)

    def close(self) -> None:
        """Ends it."""
        self._process.kill()
        self._process.wait()
        self._socket.close()


_begun: list[Zygote] = []


def begin() -> None:
    """Starts it, unless there is one, to be used by the first run of this process."""
    if not _begun:
        _begun.append(Zygote())
        atexit.register(end)


def end() -> None:
    """Ends it, if there is one."""
    while _begun:
        _begun.pop().close()


def living() -> Zygote:
    """The one of this process; another one where it has died."""
    if _begun and not _begun[0].lives:
        end()
    begin()
    return _begun[0]


def serve(asked: socket.socket) -> None:
    """Answers until there is nobody to answer."""
    while True:
        data, fds, *_ = socket.recv_fds(asked, LARGEST, 2)
        if not data:
            return
        request = json.loads(data)
        if "import" in request:
            if PLAIN not in sys.argv:
                load(request["import"])
                begin_anew_unless_forkable(asked)
            continue
        told, tell = os.pipe()
        fork(partial(_fork_keeper, request, fds, tell)).wait()  # with its end the keeper becomes the runner's child
        asked.send(os.read(told, LARGEST))
        for fd in (*fds, told, tell):
            os.close(fd)


def _fork_keeper(request: dict[str, Any], fds: Sequence[int], tell: int) -> int:
    keeper = fork(partial(_keep, request, fds))
    os.write(tell, json.dumps({"pid": keeper.pid}).encode())
    return 0


def _keep(request: dict[str, Any], fds: Sequence[int]) -> int:
    """What the new process does: the keeper's main function, as if it had been started for it."""
    import tempfile

    from harness import keeper

    os.setsid()
    stdin, stderr = fds
    os.dup2(stdin, 0)
    os.dup2(stderr, 1)
    os.dup2(stderr, 2)
    close_others()
    os.environ.update(request["variables"])
    tempfile.tempdir = None
    set_command([sys.executable, "-P", "-m", "harness.keeper", request["keep"]])
    keeper.main(Path(request["keep"]))
    return 0


def load(modules: Iterable[str]) -> None:
    """Imports modules, for whatever is forked from now on."""
    gc.disable()  # there is no garbage in an import, and much to look through
    for name in modules:
        with suppress(Exception):  # the rank that needs it says what is wrong
            importlib.import_module(name)
    gc.freeze()
    gc.enable()


def begin_anew_unless_forkable(asked: socket.socket) -> None:
    """Where an import has started threads, becomes a zygote that has imported nothing."""
    if not is_forkable():
        asked.set_inheritable(True)
        words = [sys.executable, "-P", "-m", "harness.zygote", *sys.argv[1:], PLAIN]
        os.execv(sys.executable, words)  # noqa: S606  ourselves


def _load_libraries() -> None:
    """Loads torch's shared libraries, a third of the time that its import takes."""
    spec = find_spec("torch")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for name, mode in LIBRARIES.items():
            with suppress(OSError):  # torch is built in another way: its import loads them
                ctypes.CDLL(str(Path(folder, "lib", name)), mode)


def _seed_anew_when_forked() -> None:
    """Has each process below draw other numbers from numpy's own generator, as Python's does by itself.

    Nothing of ours draws from it; environments may.
    """
    import numpy as np

    os.register_at_fork(after_in_child=np.random.seed)  # noqa: NPY002  it is the one that is shared


def main() -> None:
    """Serves the command that started this process."""
    fd, parent = map(int, sys.argv[1:3])
    process.die_with_parent(parent)
    with socket.socket(fileno=fd) as asked:
        asked.set_inheritable(False)
        if PLAIN not in sys.argv:
            libraries = threading.Thread(target=_load_libraries)
            libraries.start()
            load(BESIDE)
            for group in (registry.SYSTEMS, registry.SCENARIOS):
                registry.names(group)  # finding them reads what is installed
            libraries.join()
            load(FIRST)
            _seed_anew_when_forked()
        begin_anew_unless_forkable(asked)
        serve(asked)


if __name__ == "__main__":
    main()
