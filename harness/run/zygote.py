"""The zygote itself: `python -m harness.run.zygote`; `harness/processes/zygote.py` says who speaks and what blocks."""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import socket
import sys
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from harness.processes import process
from harness.processes.forked import close_others, fork, is_forkable, set_command
from harness.processes.zygote import LARGEST, NUM_FDS

PLAIN, OWES_ANSWER = "plain", "owes-answer"
"""Words of its command line: it imports nothing; it was asked for something before it began anew."""
EXTENSIONS = (
    *("_asyncio", "_blake2", "_contextvars", "_csv", "_datetime", "_decimal", "_hashlib", "_heapq", "_multiprocessing"),
    *("_opcode", "_posixshmem", "_queue", "_ssl", "_uuid", "_zoneinfo", "binascii", "cmath", "grp", "mmap", "resource"),
    *("psutil", "pydantic_core", "numpy", "numpy.random"),
)
"""Machine code that `BESIDE` and torch import. The dynamic linker loads one thing at a time: what is missing here makes
an import wait until it has torch's libraries."""
BESIDE = (
    *("harness.run.keeper", "gymnasium", "systems.spec"),
    *("pickletools", "pynvml", "torchgen.model", "unittest.mock", "urllib.request"),  # torch imports these
)
"""Python code, imported while another thread has torch's libraries loaded, which holds no lock of Python's."""
LIBRARIES = {"libtorch_global_deps.so": os.RTLD_GLOBAL, "libtorch_python.so": os.RTLD_LOCAL}
"""How `import torch` loads them, and in which order."""
FIRST = ("torch",)
"""Imported while nobody knows yet what is to be run; all systems but those of other programs need it."""


def serve(asked: socket.socket) -> None:
    """Answers until there is nobody to answer."""
    while True:
        data, fds, *_ = socket.recv_fds(asked, LARGEST, NUM_FDS)
        if not data:
            return
        request = json.loads(data)
        if "import" in request:
            if PLAIN not in sys.argv:
                load(request["import"])
                begin_anew_unless_forkable(asked, OWES_ANSWER)
            _tell(asked.fileno())
            continue
        told, tell = os.pipe()
        try:
            fork(partial(_fork_keeper, request, fds, tell)).wait()  # with its end the keeper is the runner's child
        except OSError as error:
            _tell(tell, problem=str(error))
        asked.send(os.read(told, LARGEST))
        for fd in (*fds, told, tell):
            os.close(fd)


def _fork_keeper(request: dict[str, Any], fds: Sequence[int], tell: int) -> int:
    try:
        _tell(tell, pid=fork(partial(_keep, request, fds)).pid)
    except OSError as error:
        _tell(tell, problem=str(error))
    return 0


def _tell(to: int, **answer: object) -> None:
    os.write(to, json.dumps(answer).encode())


def _keep(request: dict[str, Any], fds: Sequence[int]) -> int:
    """What the new process does: the keeper's main function, as if it had been started for it."""
    import tempfile

    from harness.run import keeper

    os.setsid()
    stdin, stderr, here = fds
    os.fchdir(here)
    os.dup2(stdin, 0)
    os.dup2(stderr, 1)
    os.dup2(stderr, 2)
    close_others()
    os.environ.update(request["variables"])
    tempfile.tempdir = None
    set_command([sys.executable, "-P", "-m", "harness.run.keeper", request["keep"]])
    keeper.main(Path(request["keep"]), request["runner"])
    return 0


def load(modules: Iterable[str]) -> None:
    """Imports modules, for whatever is forked from now on."""
    gc.disable()  # there is no garbage in an import, and much to look through
    for name in modules:
        with suppress(Exception):  # the rank that needs it says what is wrong
            importlib.import_module(name)
    gc.freeze()
    gc.enable()


def begin_anew_unless_forkable(asked: socket.socket, *words: str) -> None:
    """Where an import has started threads, becomes a zygote that has imported nothing; `words`: more for its main."""
    if not is_forkable():
        asked.set_inheritable(True)
        command = [sys.executable, "-P", "-m", "harness.run.zygote", *sys.argv[1:], PLAIN, *words]
        os.execv(sys.executable, command)  # noqa: S606  ourselves


def _load_libraries() -> None:
    """Loads torch's shared libraries, a third of the time that its import takes.

    By the C library's own function, during which other threads go on, as they do not during `ctypes.CDLL`. Functions
    are looked up when they are first called, as `import` would not have it: most never are. Where torch is built in
    another way it finds none of the libraries, and the import loads what there is.
    """
    dlopen = ctypes.CDLL(None).dlopen
    dlopen.argtypes, dlopen.restype = [ctypes.c_char_p, ctypes.c_int], ctypes.c_void_p
    spec = find_spec("torch")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for name, mode in LIBRARIES.items():
            dlopen(os.fsencode(Path(folder, "lib", name)), os.RTLD_LAZY | mode)


def _seed_anew_when_forked() -> None:
    """Has each process below draw other numbers from numpy's own generator, as Python's does by itself.

    Nothing of ours draws from it; environments may.
    """
    import numpy as np

    os.register_at_fork(after_in_child=np.random.seed)


def main() -> None:
    """Serves the command that started this process."""
    fd, loads, parent = map(int, sys.argv[1:4])
    process.die_with_parent(parent)
    with socket.socket(fileno=fd) as asked:
        asked.set_inheritable(False)
        if PLAIN not in sys.argv:
            load(EXTENSIONS)
            libraries = threading.Thread(target=_load_libraries)
            libraries.start()
            load(BESIDE)
            registry = importlib.import_module("harness.plan.registry")
            for group in (registry.SYSTEMS, registry.SCENARIOS):
                registry.names(group)  # finding them reads what is installed
            libraries.join()
            os.close(loads)
            load(FIRST)
            _seed_anew_when_forked()
        begin_anew_unless_forkable(asked)
        if OWES_ANSWER in sys.argv:
            _tell(asked.fileno())
        serve(asked)


if __name__ == "__main__":
    main()
