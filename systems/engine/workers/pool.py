"""The environment workers of one rank, seen from the rank; those of other machines are behind environment servers.

The rank writes commands to one pipe for each worker, and reads replies from one pipe that all workers share; one thread
at a time does so. It blocks in `poll`, for a second at a time. What frees it: a reply; `wake`, which any thread may
call; a worker's end (its sentinel becomes readable), which raises `WorkerDied` with the worker's traceback; an
environment that has not answered for `stall_s`, which raises `WorkerStalled` with the worker's stack, even while other
environments answer. The same thread commands and hears environments of other machines through `env_client.py`, in the
same `poll`. A rank that learns, or waits for other ranks, does not look at its workers. So a second thread blocks in
its own `poll` on their sentinels, and ends the process when the rank has not noticed a death by itself. Closing the
command pipes ends the workers; a worker that does not end within `CLOSE_S` is killed. A fork server forks the workers
and imports the simulators once; it is forked from the rank before the rank has threads (`fork_server.py`).
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import select
import sys
import threading
import time
from contextlib import suppress
from multiprocessing import reduction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlbench.harness.contract.envs import envs_per_recv
from rlbench.harness.processes import process, remarks, told
from rlbench.systems.engine.wire.commands import COMMAND, PLAY, RESET, commands_to_pools
from rlbench.systems.engine.wire.errors import Waits, WorkerDied, WorkerStalled
from rlbench.systems.engine.workers import fork_server
from rlbench.systems.engine.workers.serving import work
from rlbench.systems.engine.workers.worker import WorkerSettings, error_path

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.process import BaseProcess

    import numpy.typing as npt

    from rlbench.harness.contract.device import Seat
    from rlbench.harness.contract.system import Context
    from rlbench.systems.choices.collect import Priority
    from rlbench.systems.engine.workers.env_client import EnvClient
    from rlbench.systems.engine.workers.tables import SharedTable

CLOSE_S = 5.0
NOTICE_S = 2.0
"""Seconds in which a rank notices the death of a worker, unless it is busy with something else."""
READ_BYTES = 65536
UNKNOWN_EXIT = 255
"""What multiprocessing says of a worker when its fork server has died too."""


class WorkerPool:
    """Starts the workers of a rank, and exchanges commands and replies with them; N environments."""

    def __init__(
        self,
        context: Context,
        table: SharedTable,
        seats: Sequence[Seat],
        *,
        envs_per_worker: int = 1,
        workers_per_process: int = 1,
        envs_per_batch: int = 1,
        priority: Priority | None = None,
        acting: Any = None,
    ) -> None:
        """Starts a worker for each `envs_per_worker` of the seats; environment n is at `seats[n]`.

        Args:
            context: the rank's.
            table: what rank and workers share.
            seats: one for each environment, of this rank or of others on this machine.
            envs_per_worker: divides the number of seats.
            workers_per_process: more than 1 only where steps sleep instead of computing: they share an interpreter.
            envs_per_batch: B, environments that are stepped in one call, or as a pool; divides `envs_per_worker`.
            priority: how workers stand with the scheduler; None leaves that alone.
            acting: `systems.engine.workers.acting_worker.Acting` where the workers hold the policy.
        """
        self.envs_per_worker, self.envs_per_batch = envs_per_worker, envs_per_batch
        self.envs_per_recv = envs_per_recv(context.scenario)
        """M, where batches are pools that answer for M of their environments at a time; else 0."""
        self._batch_at, self._batch_next = table["batch/at"], table["batch/next"]
        self._folder = Path(context.folder)
        self._rank = context.place.rank
        self._stall_s = context.stall_s
        self._poll = select.poll()
        self._replies, replies_in = os.pipe()
        self._poll.register(self._replies, select.POLLIN)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll.register(self._wake, select.POLLIN)
        self._commands: list[int] = []
        self._processes: list[BaseProcess] = []
        self._labels: list[str] = []
        self._waits = Waits(len(seats), envs_per_worker, self.envs_per_recv)
        self._num_here = len(seats)
        self._servers: dict[int, EnvClient] = {}
        self._others_wake: set[int] = set()
        self._looked_for_stalls_at = 0.0
        forkserver = multiprocessing.get_context("forkserver")
        modules = ["rlbench.harness.plan.cells", "rlbench.systems.engine.workers.serving", *context.scenario.preload]
        acts = ["rlbench.systems.engine.workers.acting_worker"] if acting else []
        forkserver.set_forkserver_preload([*modules, *acts])
        self._envs_per_process = envs_per_worker * workers_per_process
        for first in range(0, len(seats), self._envs_per_process):
            of_process = tuple(seats[first : first + self._envs_per_process])
            pipes = [os.pipe() for _ in range(len(of_process) // envs_per_worker)]
            settings = WorkerSettings(
                scenario=context.scenario,
                seats=of_process,
                first=first,
                folder=self._folder,
                table=table,
                commands=tuple(_Descriptor(commands_out) for commands_out, _ in pipes),
                replies=_Descriptor(replies_in),
                priority=priority,
                envs_per_batch=envs_per_batch,
                acting=acting,
            )
            # Those of batches may have processes of their own, as those of `AsyncVectorEnv`.
            worker = forkserver.Process(target=work, args=(settings,), daemon=envs_per_batch == 1)
            self._start(worker, settings.label)
            for commands_out, commands_in in pipes:
                os.close(commands_out)
                self._commands.append(commands_in)
            self._processes.append(worker)
            self._labels.append(settings.label)
            self._poll.register(worker.sentinel, select.POLLIN)
        os.close(replies_in)
        self._closing, self._close = os.pipe()  # nothing is written: the reading end hears of its closing
        self._watcher = threading.Thread(target=self._watch, name="worker-watch", daemon=True)
        self._watcher.start()

    def _start(self, worker: BaseProcess, label: str) -> None:
        """Has the fork server fork a worker. Raises WorkerDied when the fork server has died."""
        try:
            with told.as_usual():
                worker.start()
        except (EOFError, OSError) as error:
            if server := fork_server.how_it_ended():
                died = f"environment worker {label} was not started: its rank's fork server {server}"
                raise WorkerDied(died) from error
            raise

    @property
    def pids(self) -> list[int]:
        """Process numbers of the workers' processes."""
        return [worker.pid or 0 for worker in self._processes]

    @property
    def parts(self) -> list[tuple[int, int]]:
        """(Environments, environments of one worker) for each machine, in the order of the environments."""
        here = (self._num_here, self.envs_per_worker)
        return [here, *((len(server.envs), server.envs_per_worker) for server in self._servers.values())]

    @property
    def num_envs(self) -> int:
        """N, over all machines."""
        return sum(num_envs for num_envs, _ in self.parts)

    def add_server(self, server: EnvClient) -> None:
        """Adds environments of another machine, numbered on from those already known; called before `begin`."""
        assert server.envs.start == self.num_envs, "environments are numbered without gaps"
        self._servers[server.fileno()] = server
        self._poll.register(server.fileno(), select.POLLIN)

    def also_wake_for(self, fd: int) -> None:
        """Makes `receive` return whenever there is something to read from a descriptor."""
        self._others_wake.add(fd)
        self._poll.register(fd, select.POLLIN)

    def send(
        self, envs: npt.NDArray[np.int64], slots: npt.NDArray[np.int64], slots_next: npt.NDArray[np.int64]
    ) -> None:
        """Has each of `envs` apply the action in its slot and write what follows to its next slot. All are [K].

        Where they are in batches, `envs` has whole ones, or any environments of pools; the table says where each is.
        """
        for server in self._servers.values():
            there = np.flatnonzero((envs >= server.envs.start) & (envs < server.envs.stop))
            if len(there) and slots[there[0]] == RESET:
                server.begin(envs[there], slots_next[there])
            elif len(there):
                server.step(envs[there], slots[there], slots_next[there])
        if self._servers:
            here = envs < self._num_here
            envs, slots, slots_next = envs[here], slots[here], slots_next[here]
        now = time.perf_counter()
        if self.envs_per_batch > 1:
            self._batch_at[envs], self._batch_next[envs] = slots, slots_next
            if self.envs_per_recv:
                self._waits.sent(envs, now)
                for first, command in commands_to_pools(envs, slots, self.envs_per_batch):
                    self._write(first, command)
                return
            is_first = envs % self.envs_per_batch == 0
            envs, slots, slots_next = envs[is_first], slots[is_first], slots_next[is_first]
        for env, slot, slot_next in zip(envs.tolist(), slots.tolist(), slots_next.tolist(), strict=True):
            self._command(env, COMMAND.pack(env, slot, slot_next), now)

    def play(self, env: int, slots: npt.NDArray[np.int64]) -> None:
        """Has an environment whose worker holds the policy take T <= `MOST_PLAYED` steps by itself.

        Args:
            env: the environment.
            slots: [T + 1], of the steps and of what follows the last.
        """
        for server in self._servers.values():
            if env in server.envs:
                server.play(env, slots)
                return
        head = COMMAND.pack(env, PLAY, len(slots))
        self._command(env, head + slots.astype(np.int32).tobytes(), time.perf_counter())

    def _command(self, env: int, command: bytes, now: float) -> None:
        """Writes a command, less than PIPE_BUF bytes and hence whole, to the worker of an environment."""
        self._waits.sent(env, now)
        self._write(env, command)

    def _write(self, env: int, command: bytes) -> None:
        try:
            os.write(self._commands[env // self.envs_per_worker], command)
        except BrokenPipeError:
            self._raise_death(env // self._envs_per_process)

    def begin(self, slots: npt.NDArray[np.int64]) -> None:
        """Has every environment begin its first episode, and waits for all. `slots`: [N], where observations go."""
        envs = np.arange(len(slots))
        self.send(envs, np.full(len(envs), RESET), slots)
        missing = len(envs)
        while missing:
            missing -= len(self.receive(missing)[0])

    def wake(self) -> None:
        """Makes `receive` return; may be called from any thread, before or while it blocks."""
        os.eventfd_write(self._wake, 1)

    def receive(self, least: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Blocks until `least` replies have come, or a wake-up.

        Returns:
            (environments [K], what each says [K]: the slot where it stands now, or how many steps it has played).
        """
        got: list[npt.NDArray[np.int32]] = []
        missing = least
        while True:
            now = time.perf_counter()
            has_replies, woken, speaking = self._block(0 if missing <= 0 else 1000)
            for server in speaking:
                came = server.receive()
                got += came
                missing -= sum(map(len, came))
            if has_replies:
                before = self._waits.reading()
                replies = np.frombuffer(os.read(self._replies, READ_BYTES), dtype=np.int32).reshape(-1, 2)
                self._waits.heard(replies[:, 0], before)
                if self.envs_per_batch > 1 and not self.envs_per_recv:
                    envs = (replies[:, :1] + np.arange(self.envs_per_batch)).ravel()  # replies are for whole batches
                    replies = np.stack((envs, self._batch_next[envs]), 1).astype(np.int32)
                got.append(replies)
                missing -= len(replies)
            self._look_for_stalls(now)
            if missing <= 0 or woken:
                break
        joined = np.concatenate(got).astype(np.int64) if got else np.empty((0, 2), np.int64)
        return joined[:, 0], joined[:, 1]

    def _block(self, timeout_ms: int) -> tuple[bool, bool, list[EnvClient]]:
        """Waits for an event; returns whether a reply can be read, whether to stop waiting, and which servers spoke."""
        ready = dict(self._poll.poll(timeout_ms))
        if not ready:
            return False, False, []
        speaking = [server for fd, server in self._servers.items() if fd in ready]
        # Without POLLIN it is the end of file: all workers have died.
        has_replies = bool(ready.get(self._replies, 0) & select.POLLIN)
        if not has_replies:
            for number, worker in enumerate(self._processes):
                if worker.sentinel in ready:
                    self._raise_death(number)
        woken = self._wake in ready
        if woken:
            os.eventfd_read(self._wake)
        return has_replies, woken or not self._others_wake.isdisjoint(ready), speaking

    def _look_for_stalls(self, now: float) -> None:
        """Raises when a worker that has something to do has said nothing for `stall_s`; looks once a second.

        `now`: a time before replies were read, so that a rank that reads late accuses no worker whose reply waits.
        """
        if now < self._looked_for_stalls_at + 1:
            return
        self._looked_for_stalls_at = now
        for server in self._servers.values():
            server.look_for_stalls(now)
        if (env := self._waits.late(self._stall_s, now)) is not None:
            self._raise_stall(env)

    def _raise_death(self, number: int) -> None:
        raise WorkerDied(self._death(number))

    def _death(self, number: int) -> str:
        """How a worker ended, and its traceback if it raised."""
        worker, label = self._processes[number], self._labels[number]
        worker.join(process.ANSWER_S)  # its fork server tells how it ended, when that has a core
        if (path := error_path(self._folder, label)).exists():
            left = json.loads(path.read_text(encoding="utf-8"))
            number = left.get("environment")
            is_said = number is None or re.search(rf"environment {number}\b", left["error"])
            where = "" if is_said else f" (environment {number})"
            return f"environment worker {label} raised {left['error']}{where}\n{left['traceback']}"
        code = worker.exitcode
        if code in {None, UNKNOWN_EXIT} and (server := fork_server.how_it_ended()):
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
            self._death(next(number for number, worker in enumerate(self._processes) if worker.sentinel in ready))
        )
        with suppress(OSError):  # the disk may be full
            process.leave_error(error_path(self._folder, f"rank{self._rank}"), error)
            print(error, file=sys.stderr, flush=True)  # noqa: T201  this process's stderr is part of the record
        os._exit(1)  # the main thread cannot be interrupted: it may wait for another rank inside a C++ library

    def _raise_stall(self, env: int) -> None:
        number = env // self._envs_per_process
        label, worker = self._labels[number], self._processes[number]
        assert worker.pid is not None
        path, stacks = self._folder / f"stacks-{label}.txt", ""
        if path.exists():  # else the worker is not far enough to answer
            process.await_stacks([process.StackDump(worker.pid, path)])
            if process.is_ending(worker.pid):
                self._raise_death(number)
            stacks = path.read_text(encoding="utf-8", errors="replace")
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
        for server in self._servers.values():
            server.close()
        deadline = time.perf_counter() + grace_s
        for worker in self._processes:
            worker.join(max(0.0, deadline - time.perf_counter()))
        late = [worker.is_alive() for worker in self._processes]
        for worker, is_late in zip(self._processes, late, strict=True):
            if is_late:
                worker.kill()
        for number, worker in enumerate(self._processes):
            worker.join()
            if grace_s and (late[number] or worker.exitcode):
                self._remark_end(number, grace_s if late[number] else None)
            worker.close()
        os.close(self._replies)
        os.close(self._wake)

    def _remark_end(self, number: int, late_s: float | None) -> None:
        """Leaves a remark on how a worker ended that failed, or was killed, while its environments were closed."""
        label = self._labels[number]
        if late_s is None:
            how = self._death(number).partition("\n")[0]
        else:
            how = f"environment worker {label} had not ended after {late_s:g} s and was killed"
        remarks.leave(self._folder, f"{label}-end", f"{how} when its environments were closed")


class _Descriptor:
    """A file descriptor that is duplicated into a child when pickled for it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __reduce__(self) -> tuple[object, ...]:
        return _received, (reduction.DupFd(self._fd),)


def _received(duplicate: object) -> object:
    return duplicate
