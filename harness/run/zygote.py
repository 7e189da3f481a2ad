"""The zygote itself, which is run as a program; `harness/run/zygote_client.py` says who speaks and what blocks."""

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

from rlbench.harness.processes import process
from rlbench.harness.processes.forked import close_others, fork, is_forkable, set_command
from rlbench.harness.run.zygote_client import LARGEST, NUM_FDS

PLAIN, OWES_ANSWER = "plain", "owes-answer"
"""Words of its command line: it imports nothing; it began anew before it had answered a request."""
EXTENSIONS = (
    *("_asyncio", "_blake2", "_contextvars", "_csv", "_datetime", "_decimal", "_hashlib", "_heapq", "_multiprocessing"),
    *("_opcode", "_posixshmem", "_queue", "_ssl", "_uuid", "_zoneinfo", "binascii", "cmath", "grp", "mmap", "resource"),
    *("psutil", "pydantic_core", "numpy", "numpy.random"),
)
"""Extension modules that `BESIDE` and torch import. The dynamic linker loads one library at a time: an import of one
that is missing here waits until torch's libraries are loaded."""
BESIDE = (
    *("rlbench.harness.run.keeper", "gymnasium", "rlbench.systems.spec", "rlbench.systems.engine.averaging.all_reduce"),
    *(
        "rlbench.systems.engine.rollouts.monitors",
        "rlbench.systems.engine.rollouts.opening",
        "rlbench.systems.engine.rollouts.sampler",
    ),
    "rlbench.systems.engine.workers.pool",
    *("pickletools", "pynvml", "torchgen.model", "unittest.mock", "urllib.request"),  # torch imports these
)
"""Python modules to import while another thread loads torch's libraries without Python's lock (GIL)."""
LIBRARIES = {"libtorch_global_deps.so": os.RTLD_GLOBAL, "libtorch_python.so": os.RTLD_LOCAL}
"""Torch's libraries, with the flags and in the order in which `import torch` loads them."""
FIRST = ("torch",)
"""Imported before it is known what is to be run; all systems need it, except those that run other programs."""


def serve(asked: socket.socket) -> None:
    """Answers requests until the other end of the socket is closed."""
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
            fork(partial(_fork_keeper, request, fds, tell)).wait()  # once it ends, the keeper is the runner's child
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
    """Runs in the new process: the keeper's main function, as if the process had been started for it."""
    import tempfile

    from rlbench.harness.run import keeper

    os.setsid()
    stdin, stderr, here = fds
    os.fchdir(here)
    os.dup2(stdin, 0)
    os.dup2(stderr, 1)
    os.dup2(stderr, 2)
    close_others()
    os.environ.update(request["variables"])
    tempfile.tempdir = None
    set_command([sys.executable, "-P", "-m", "rlbench.harness.run.keeper", request["keep"]])
    keeper.main(Path(request["keep"]), request["runner"])
    return 0


def load(modules: Iterable[str]) -> None:
    """Imports modules for all processes that are forked from now on."""
    gc.disable()  # an import makes no garbage, and gives the collector much to look through
    for name in modules:
        with suppress(Exception):  # the rank that needs it says what is wrong
            importlib.import_module(name)
    gc.freeze()
    gc.enable()


def begin_anew_unless_forkable(asked: socket.socket, *words: str) -> None:
    """If an import has started threads, becomes a zygote that has imported nothing; `words`: more for its `main`."""
    if not is_forkable():
        asked.set_inheritable(True)
        command = [sys.executable, "-P", "-m", "rlbench.harness.run.zygote", *sys.argv[1:], PLAIN, *words]
        os.execv(sys.executable, command)  # noqa: S606  ourselves


def _load_libraries() -> None:
    """Loads torch's shared libraries, which takes a third of the time of its import.

    It calls the C library's `dlopen`, during which other threads go on; during `ctypes.CDLL` they would not. Unlike
    `import`, it has functions looked up at their first call, since most are never called. Where torch is built in
    another way, it finds none of the libraries, and the import loads what there is.
    """
    dlopen = ctypes.CDLL(None).dlopen
    dlopen.argtypes, dlopen.restype = [ctypes.c_char_p, ctypes.c_int], ctypes.c_void_p
    spec = find_spec("torch")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for name, mode in LIBRARIES.items():
            dlopen(os.fsencode(Path(folder, "lib", name)), os.RTLD_LAZY | mode)


def _seed_anew_when_forked() -> None:
    """Reseeds numpy's global generator in each forked process, as Python does by itself with its own.

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
            registry = importlib.import_module("rlbench.harness.plan.registry")
            for group in (registry.SYSTEMS, registry.SCENARIOS):
                registry.names(group)  # to find them, it reads which packages are installed
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
