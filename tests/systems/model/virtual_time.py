"""Virtual time: threads that sleep and wait on a clock that moves only when all of them do.

Who runs: one thread at a time, a *task*, which holds the baton; the clock's fields are its alone meanwhile. What
blocks: `sleep_until`, `wait` and an empty `Queue`, each of which hands the baton on: to a task that waits for what has
happened, else to the one that sleeps until the earliest moment; equal moments, in the order of their sleep. When
nobody is left the clock's `run` returns; when all wait for what will never happen, or one has failed, it raises, and
every other task is ended by an exception in its own thread.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
_really_sleep = time.sleep


class TaskEndedError(BaseException):
    """The run is over: the task is to unwind."""


class Task:
    """A thread of a rank that goes by the clock."""

    def __init__(self, work: Callable[[], None], rank: int) -> None:
        self.work, self.rank = work, rank
        self.baton = threading.Semaphore(0)
        self.is_done = False
        self.thread = threading.Thread()


class VirtualTime:
    """The clock, and whose turn it is."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._numbers = itertools.count()
        self._sleeping: list[tuple[float, int, Task]] = []
        self._waiting: list[tuple[Callable[[], bool], Task]] = []
        self._idle: set[Task] = set()
        self._own = threading.local()
        self._over = threading.Semaphore(0)
        self._failure: BaseException | None = None
        self._ends = False
        self._threads: list[threading.Thread] = []

    @property
    def task(self) -> Task:
        """The one that runs."""
        task: Task = self._own.task
        return task

    def start(self, work: Callable[[], None], rank: int) -> Task:
        """A new task, which begins when it is its turn at this moment."""
        task = Task(work, rank)
        task.thread = threading.Thread(target=self._run, args=(task,), daemon=True)
        self.put_to_sleep(task, self.now_s)
        task.thread.start()
        self._threads.append(task.thread)
        return task

    def put_to_sleep(self, task: Task, moment: float) -> None:
        """A task that does not run will, at that moment."""
        self._idle.discard(task)
        heapq.heappush(self._sleeping, (moment, next(self._numbers), task))

    def sleep(self, seconds: float) -> None:
        """Stands in for `time.sleep`."""
        if not hasattr(self._own, "task"):
            _really_sleep(seconds)
        elif seconds > 0:
            self.put_to_sleep(self.task, self.now_s + seconds)
            self._park()

    def wait(self, has_happened: Callable[[], bool]) -> None:
        """Until something that other tasks do."""
        if not has_happened():
            self._waiting.append((has_happened, self.task))
            self._park()

    def idle(self) -> None:
        """Until somebody puts the task to sleep."""
        self._idle.add(self.task)
        self._park()

    def run(self) -> None:
        """Until all tasks have ended. Raises what one of them has raised."""
        self._hand_on()
        self._over.acquire()
        self._ends = True
        left = [task for _, _, task in self._sleeping] + [task for _, task in self._waiting] + list(self._idle)
        for task in left:
            task.baton.release()
            task.thread.join()  # one at a time
        for thread in self._threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self, task: Task) -> None:
        self._own.task = task
        try:
            self._await_baton(task)
            task.work()
        except TaskEndedError:
            return
        except BaseException as failure:  # noqa: BLE001  `run` raises it
            self._failure = failure
        task.is_done = True
        self._hand_on()

    def _park(self) -> None:
        task = self.task
        self._hand_on()
        self._await_baton(task)

    def _await_baton(self, task: Task) -> None:
        task.baton.acquire()
        if self._ends:
            raise TaskEndedError

    def _hand_on(self) -> None:
        following = None if self._failure is not None else self._next()
        (self._over if following is None else following.baton).release()

    def _next(self) -> Task | None:
        for place, (has_happened, task) in enumerate(self._waiting):
            if has_happened():
                del self._waiting[place]
                return task
        if self._sleeping:
            moment, _, task = heapq.heappop(self._sleeping)
            self.now_s = max(self.now_s, moment)
            return task
        if self._waiting or self._idle:
            self._failure = AssertionError("all tasks wait for what will never happen")
        return None


class Queue(Generic[T]):
    """What one task waits for; several that are given something at one moment go on in that order."""

    def __init__(self, clock: VirtualTime) -> None:
        self._clock, self._items = clock, deque[T | None]()
        self._owner: Task | None = None

    def put(self, item: T | None) -> None:
        """Gives the owner an item; None is the last."""
        self._items.append(item)
        if self._owner is not None:
            self._clock.put_to_sleep(self._owner, self._clock.now_s)
            self._owner = None

    def get(self) -> T | None:
        """The next item, as soon as there is one."""
        if not self._items:
            self._owner = self._clock.task
            self._clock.idle()
        return self._items.popleft()
