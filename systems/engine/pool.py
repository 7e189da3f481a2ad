"""The environment workers of one rank, seen from the rank.

The rank writes commands to a pipe for each worker, and reads replies from one pipe that all share; it blocks in
`poll` until a reply, the death of a worker, or a second has passed. What frees it: a reply; a worker's end (its
sentinel becomes readable), which raises `WorkerDied` with the worker's traceback; an environment that has not
answered for `stall_s`, which raises `WorkerStalled` with the worker's stack. A rank that learns, or waits for other
ranks, does not look at its workers: a thread does, blocked in a `poll` of its own on their sentinels, and ends the
process when the rank has not noticed a death by itself. Closing the command pipes ends the workers; one that does not
end within `CLOSE_S` is killed. Workers are forked from a fork server, which imports the simulators once, and no torch.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import select
import signal
import sys
import threading
import time
from contextlib import suppress
from multiprocessing import reduction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from harness import process
from systems.engine.worker import COMMAND, RESET, WorkerSettings, error_path, work

if TYPE_CHECKING:
    from collections.abc import Iterable
    from multiprocessing.process import BaseProcess

    import numpy.typing as npt

    from harness.contract import Context
    from systems.engine.tables import Table

CLOSE_S = 5.0
NOTICE_S = 2.0
"""A rank that has not noticed the death of a worker by then is busy with something else."""
READ_BYTES = 65536
UNKNOWN_EXIT = 255
"""What multiprocessing says of a worker when its fork server has died too."""
FORK_SERVER_S = 0.5


class WorkerDied(RuntimeError):  # noqa: N818  says what happened, as BrokenPipeError's kin do
    """An environment worker ended; the text holds its traceback, or the signal that killed it."""


class WorkerStalled(RuntimeError):  # noqa: N818
    """An environment has not answered for too long; the text holds its worker's stack."""


class WorkerPool:
    """Starts the workers of a rank, one environment each, and exchanges commands and replies with them."""

    def __init__(self, context: Context, table: Table, seeds: Iterable[int]) -> None:
        scenario = context.scenario
        self._folder = Path(context.folder)
        self._rank = context.place.rank
        self._stall_s = context.stall_s
        self._poll = select.poll()
        self._replies, replies_in = os.pipe()
        self._poll.register(self._replies, select.POLLIN)
        self._commands: list[int] = []
        self._processes: list[BaseProcess] = []
        self._labels: list[str] = []
        self._sent_at = np.zeros(scenario.num_envs)
        self._waiting = np.zeros(scenario.num_envs, dtype=bool)
        forkserver = multiprocessing.get_context("forkserver")
        forkserver.set_forkserver_preload(["harness.plan", "systems.engine.worker", *scenario.preload])
        for index, seed in enumerate(seeds):
            commands_out, commands_in = os.pipe()
            settings = WorkerSettings(
                scenario=scenario,
                seats=(context.seat(index, seed),),
                folder=self._folder,
                meter=context.meter.path,
                table=table,
                commands=_Descriptor(commands_out),
                replies=_Descriptor(replies_in),
            )
            worker = forkserver.Process(target=work, args=(settings,), daemon=True)
            worker.start()
            os.close(commands_out)
            self._commands.append(commands_in)
            self._processes.append(worker)
            self._labels.append(settings.label)
            self._poll.register(worker.sentinel, select.POLLIN)
        os.close(replies_in)
        self._closing, self._close = os.pipe()  # nothing is written: the reading end hears of its closing
        self._watcher = threading.Thread(target=self._watch, name="worker-watch", daemon=True)
        self._watcher.start()

    @property
    def pids(self) -> list[int]:
        """Process numbers of the workers, by environment."""
        return [worker.pid or 0 for worker in self._processes]

    def send(
        self, envs: npt.NDArray[np.int64], slots: npt.NDArray[np.int64], slots_next: npt.NDArray[np.int64]
    ) -> None:
        """Has each of `envs` apply the action in its slot and write what follows to its next slot. All are [K]."""
        now = time.perf_counter()
        for env, slot, slot_next in zip(envs.tolist(), slots.tolist(), slots_next.tolist(), strict=True):
            self._sent_at[env] = now
            self._waiting[env] = True
            try:
                os.write(self._commands[env], COMMAND.pack(env, slot, slot_next))
            except BrokenPipeError:
                self._raise_death(env)

    def begin(self, slots: npt.NDArray[np.int64]) -> None:
        """Has every environment begin its first episode, and waits for all. `slots`: [N], where observations go."""
        envs = np.arange(len(self._processes))
        self.send(envs, np.full(len(envs), RESET), slots)
        self.wait(len(envs))

    def wait(self, count: int) -> npt.NDArray[np.int32]:
        """Blocks until `count` replies have come; returns them [K, 2] as (environment, slot), K >= count."""
        got: list[npt.NDArray[np.int32]] = []
        missing = count
        while missing > 0:
            self._block()
            replies = np.frombuffer(os.read(self._replies, READ_BYTES), dtype=np.int32).reshape(-1, 2)
            self._waiting[replies[:, 0]] = False
            got.append(replies)
            missing -= len(replies)
        return np.concatenate(got) if got else np.empty((0, 2), np.int32)

    def _block(self) -> None:
        """Returns when a reply can be read."""
        while True:
            ready = dict(self._poll.poll(1000))
            if ready.get(self._replies, 0) & select.POLLIN:  # without it: end of file, for all workers have died
                return
            for env, worker in enumerate(self._processes):
                if worker.sentinel in ready:
                    self._raise_death(env)
            late = self._waiting & (self._sent_at < time.perf_counter() - self._stall_s)
            if late.any():
                self._raise_stall(int(late.argmax()))

    def _raise_death(self, env: int) -> None:
        raise WorkerDied(self._death(env))

    def _death(self, env: int) -> str:
        """How a worker ended, and its traceback if it raised."""
        worker, label = self._processes[env], self._labels[env]
        worker.join(1)
        path = error_path(self._folder, label)
        if path.exists():
            left = json.loads(path.read_text())
            return f"environment worker {label} raised {left['error']}\n{left['traceback']}"
        code = worker.exitcode
        if code in {None, UNKNOWN_EXIT} and (server := _dead_fork_server()):
            return f"environment worker {label} ended with its rank's fork server, which {server}"
        return f"environment worker {label} {process.how_it_ended(UNKNOWN_EXIT if code is None else code)}"

    def _watch(self) -> None:
        """Ends this process when a worker has died and the rank does not notice; runs in a thread of its own."""
        poll = select.poll()
        poll.register(self._closing, 0)
        for worker in self._processes:
            poll.register(worker.sentinel, select.POLLIN)
        ready = {fd for fd, _ in poll.poll()}
        closing = select.poll()
        closing.register(self._closing, 0)
        if closing.poll(NOTICE_S * 1000):
            return
        error = WorkerDied(
            self._death(next(env for env, worker in enumerate(self._processes) if worker.sentinel in ready))
        )
        with suppress(OSError):  # the disk may be full
            process.leave_error(error_path(self._folder, f"rank{self._rank}"), error)
            print(error, file=sys.stderr, flush=True)  # noqa: T201  this process's stderr is part of the record
        os._exit(1)  # the main thread cannot be interrupted: it may wait for another rank inside a C++ library

    def _raise_stall(self, env: int) -> None:
        label, pid = self._labels[env], self._processes[env].pid
        assert pid is not None
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR1)
        time.sleep(0.5)  # the handler writes within microseconds, unless the process is stopped
        stacks = (self._folder / f"stacks-{label}.txt").read_text()
        where = f"\n{stacks}" if stacks else " (its process did not answer a signal: is it stopped?)"
        raise WorkerStalled(f"environment worker {label} has not answered for {self._stall_s:g} s{where}")

    def close(self, grace_s: float = CLOSE_S) -> None:
        """Ends the workers: asks first, kills what is left after `grace_s`."""
        os.close(self._close)
        self._watcher.join()
        os.close(self._closing)
        for fd in self._commands:
            os.close(fd)
        self._commands.clear()
        deadline = time.perf_counter() + grace_s
        for worker in self._processes:
            worker.join(max(0.0, deadline - time.perf_counter()))
        for worker in self._processes:
            if worker.is_alive():
                worker.kill()
        for worker in self._processes:
            worker.join()
            worker.close()
        os.close(self._replies)


def _dead_fork_server() -> str | None:
    """How this process's fork server ended, if it did: the only child that a rank's multiprocessing loses."""
    deadline = time.perf_counter() + FORK_SERVER_S
    with suppress(ChildProcessError):
        while time.perf_counter() < deadline:  # its pipes close a moment before it can be waited for
            if ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                return process.how_it_ended(ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status)
            time.sleep(0.01)
    return None


class _Descriptor:
    """A file descriptor that is duplicated into a child when pickled for it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __reduce__(self) -> tuple[object, ...]:
        return _received, (reduction.DupFd(self._fd),)


def _received(duplicate: object) -> object:
    return duplicate
