"""The main function of a process of environment workers; `worker.py` says what a worker does, and what ends it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from contextlib import suppress

from rlbench.harness.contract.envs import envs_per_recv
from rlbench.harness.processes import process
from rlbench.systems.engine.workers.batch_worker import BatchWorker
from rlbench.systems.engine.workers.pool_worker import PoolWorker
from rlbench.systems.engine.workers.worker import Worker, WorkerSettings, error_path


def work(settings: WorkerSettings) -> None:
    """The main function of a process of workers."""
    process.die_with_parent(os.getppid())
    process.sleep_precisely()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the harness's to handle
    process.dump_stacks_on_signal(settings.folder / f"stacks-{settings.label}.txt")
    if settings.envs_per_batch > 1:  # `AsyncVectorEnv` is to fork, as it does in a script, and to start no fork server
        multiprocessing.set_start_method(None, force=True)
    if settings.priority is not None:
        settings.priority.take(settings.seats[0].global_index // len(settings.seats))
    code = serve_all(settings)
    if code:
        sys.exit(code)


def serve_all(settings: WorkerSettings) -> int:
    """Runs every worker of the process, the first one in this thread; returns the exit code when all have ended.

    A worker that fails in one of the other threads ends the process at once.
    """
    replies: int = settings.replies.detach()
    first, *others = (commands.detach() for commands in settings.commands)
    threads = [threading.Thread(target=_serve_or_exit, args=(settings, fd, replies), daemon=True) for fd in others]
    for thread in threads:
        thread.start()
    code = serve(settings, first, replies)
    for thread in threads if code == 0 else ():
        thread.join()
    return code


def _serve_or_exit(settings: WorkerSettings, commands: int, replies: int) -> None:
    if code := serve(settings, commands, replies):
        os._exit(code)


def serve(settings: WorkerSettings, commands: int, replies: int) -> int:
    """Has a worker answer commands until their pipe ends; returns 1 when it has failed and left the error, else 0."""
    worker: Worker | None = None
    try:
        worker = _open(settings, commands, replies)
        worker.serve()
    except BaseException as error:  # noqa: BLE001  whatever a simulator raises goes to the rank with its traceback
        environment = None if worker is None else worker.environment
        with suppress(OSError):  # the disk may be full
            process.leave_error(error_path(settings.folder, settings.label), error, environment=environment)
        return 1
    return 0


def _open(settings: WorkerSettings, commands: int, replies: int) -> Worker:
    if envs_per_recv(settings.scenario):
        return PoolWorker(settings, commands, replies)
    return (Worker if settings.envs_per_batch == 1 else BatchWorker)(settings, commands, replies)
