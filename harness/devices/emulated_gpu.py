"""An emulated GPU: a clock that processes share, and reservations on it.

Who writes: every process that renders, infers or learns on the GPU, while it holds a record lock on the file; the
kernel releases the lock when the process dies. Who reads: the same processes, and those that want the busy time. What
blocks: taking the lock, for the microseconds of a reservation; then waiting for the reserved end, without the lock. So
work is served first come, first served, the overshoots of sleeps do not add up, and a process that is killed while it
waits holds nothing up.

There are two lanes: rendering and inference share one, learning has the other. While both are busy, each is slower by
its factor in `GpuCosts`: new work on a lane is slower for as long as the other lane is already reserved, and learning,
which takes long, is delayed by work that comes to the other lane meanwhile. Real work inside a reservation counts as
part of its time.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rlbench.harness.contract.network_costs import MOMENTS_BYTES
from rlbench.harness.contract.settings import GpuCosts, Message, Work
from rlbench.harness.devices import booking
from rlbench.harness.devices.booking import BUSY_S, CORES, LANE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

_THREADS = threading.Lock()
"""Record locks exclude other processes but not threads of the same one; this lock excludes those, for all GPUs."""
LANE_OF: dict[Work, int] = {"render": 0, "infer": 0, "prepare": 1, "learn": 1}


def cost_s(costs: GpuCosts, work: Work, num_items: int) -> float:
    """Seconds that work on `num_items` items takes on an otherwise idle GPU."""
    if work == "render":
        return costs.render_s * num_items
    if work == "infer":
        return costs.infer_fixed_s + costs.infer_item_s * num_items
    if work == "prepare":
        return costs.prepare_s
    return costs.learn_fixed_s + costs.learn_item_s * num_items


def sleep_until(moment: float) -> None:
    """Returns at `moment` on the clock of `time.perf_counter`, or at once if it has passed."""
    while (left := moment - time.perf_counter()) > 0:
        time.sleep(left)


class _Clock:
    """Gives one thread at a time the words of a GPU's clock. No generator, for speed: every env step takes it twice."""

    __slots__ = ("_fd", "_words")

    def __init__(self, fd: int, words: memoryview[float]) -> None:
        self._fd, self._words = fd, words

    def __enter__(self) -> memoryview[float]:
        _THREADS.acquire()
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX)
        except BaseException:
            _THREADS.release()
            raise
        return self._words

    def __exit__(self, *_: object) -> None:
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_UN)
        finally:
            _THREADS.release()


class _Busy:
    """Work on a GPU, from its reservation to its end."""

    __slots__ = ("_end", "_gpu", "_num_items", "_work")

    def __init__(self, gpu: EmulatedGpu, work: Work, num_items: int) -> None:
        self._gpu, self._work, self._num_items = gpu, work, num_items

    def __enter__(self) -> None:
        self._end = self._gpu.reserve(self._work, self._num_items)

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._gpu.await_end(self._work, self._end)


def gpu_path(folder: Path, local_rank: int) -> Path:
    """The file of a rank's emulated GPU."""
    return folder / f"gpu{local_rank}.bin"


class EmulatedGpu:
    """One emulated GPU, for all processes that open its file. Can be pickled and sent to another process."""

    torch_name = "cpu"
    num_threads = 1

    def __init__(self, path: Path, costs: GpuCosts, num_ranks: int, ranks_here: range | None = None) -> None:
        self._path, self.costs, self._num_ranks = path, costs, num_ranks
        self._ranks_here = range(num_ranks) if ranks_here is None else ranks_here
        self._num_words = CORES + costs.cores
        self._peers: dict[int, EmulatedGpu] = {}
        with path.open("a+b") as file:
            os.posix_fallocate(file.fileno(), 0, 8 * self._num_words)
        self._open()

    def of_rank(self, local_rank: int) -> EmulatedGpu:
        """The GPU of another rank on this machine."""
        return EmulatedGpu(gpu_path(self._path.parent, local_rank), self.costs, self._num_ranks, self._ranks_here)

    def _open(self) -> None:
        self._fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)  # open for as long as the process lives
        self._words = memoryview(mmap.mmap(self._fd, 8 * self._num_words)).cast("d")
        self._clock = _Clock(self._fd, self._words)

    def __getstate__(self) -> dict[str, object]:
        """The state without what belongs to this process alone."""
        return {name: value for name, value in vars(self).items() if name not in {"_fd", "_words", "_clock"}} | {
            "_peers": {}
        }

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._open()

    def reserve(self, work: Work, num_items: int) -> float:
        """Queues the work behind all earlier work of its lane; returns the moment at which it will be done.

        Later reservations may delay learning; `await_end` waits for that too.
        """
        lane = LANE_OF[work]
        took = cost_s(self.costs, work, num_items)
        factors = self.costs.render_while_learning_factor, self.costs.learn_while_rendering_factor
        with self._clock as words:
            return booking.book(
                words,
                lane,
                time.perf_counter(),
                took,
                factors[lane],
                factors[1 - lane],
                self.costs.cores,
                0 if work == "render" else self.costs.learn_cores if lane else min(1, self.costs.learn_cores),
            )

    def simulated_at(self, begin: float, seconds: float, num_envs: int) -> float:
        """When a simulation that begins at `begin` will be done; it books a core if there are fewer than `num_envs`."""
        if not self.costs.shared_cores(num_envs):
            return begin + seconds
        with self._clock as words:
            return booking.book_core(words, self.costs.cores, begin, seconds)

    def busy(self, work: Work, num_items: int) -> AbstractContextManager[None]:
        """Reserves the GPU for the work; ends when its time is over and the real work inside is done."""
        return _Busy(self, work, num_items)

    def await_end(self, work: Work, end: float) -> float:
        """Blocks until reserved work is done, later than `end` if learning was delayed; returns that moment."""
        sleep_until(end)
        while LANE_OF[work] == 1 and end < self._words[LANE + 1]:  # one process learns on a GPU: this is its own end
            end = self._words[LANE + 1]
            sleep_until(end)
        return end

    def communicate(self, message: Message, peer: int = 0) -> None:
        """Blocks for the time that the profile states for a message between ranks; the GPU is free meanwhile.

        The link of a rank on another machine cannot be booked from here, so weights for it use this rank's own link.
        """
        network, num_ranks = self.costs.network, self._num_ranks
        if message == "exchange":
            # The peer's file stays open: closing a file frees all locks that this process has on it.
            gpu = self._peers.get(peer) or self._peers.setdefault(peer, self._link_to(peer))
            with gpu._clock as words:  # noqa: SLF001  one of us
                passed_at = booking.book_link(words, time.perf_counter(), network.link_s)
            sleep_until(passed_at + 2 * network.latency_s)
        elif message == "all_reduce":
            time.sleep(network.all_reduce_s(num_ranks))
        elif message == "moments":
            time.sleep(network.all_reduce_s(num_ranks, MOMENTS_BYTES))
        else:
            time.sleep(network.synchronize_ranks_s(num_ranks))

    def _link_to(self, peer: int) -> EmulatedGpu:
        return self.of_rank(peer - self._ranks_here.start) if peer in self._ranks_here else self

    def busy_s(self) -> float:
        """Seconds for which the GPU is busy, counting everything that is reserved so far."""
        return self._words[BUSY_S]


class EmulatedCore:
    """A core of an emulated GPU's machine, for a policy that acts in an environment worker (IMPALA's actors)."""

    torch_name = "cpu"
    num_threads = 1

    def __init__(self, gpu: EmulatedGpu, num_envs: int) -> None:
        self._gpu, self._num_envs = gpu, num_envs

    @contextmanager
    def busy(self, work: Work, num_items: int) -> Iterator[None]:  # noqa: ARG002  actors infer, and nothing else
        """Books a core for an inference; ends when its time is over and the real work inside is done."""
        end = self._gpu.simulated_at(time.perf_counter(), self._gpu.costs.actor_infer_s * num_items, self._num_envs)
        yield
        sleep_until(end)

    def communicate(self, message: Message, peer: int = 0) -> None:
        """Actors send nothing to each other."""
