"""An emulated GPU: a clock that processes share, and reservations on it.

Who writes: every process that renders, infers or learns on the GPU, inside a record lock on the file that the kernel
releases when its holder dies. Who reads: the same, and whoever wants the busy time. What blocks: taking the lock, for
the microseconds of a reservation, and then the wait for the reserved end, which holds nothing. So the work is served
first come first served, the overshoot of a sleep does not add up, and a process that is killed while it waits frees
what it held.

Two lanes: rendering and inference share one, learning has the other. While both are busy each is slower by its factor
in `GpuCosts`: what is reserved on one lane slows down for as long as the other is reserved already, and learning, which
takes long, is put off by what comes to the other lane meanwhile. Real work done inside a reservation counts against its
cost.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from harness.contract import Work
from harness.settings import GpuCosts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FREE_AT = 0  # of lane 0 and lane 1
BUSY_S = 2  # union of both lanes
COVERED_UNTIL = 3
NUM_WORDS = 4
_THREADS = threading.Lock()
"""Record locks exclude processes, not the threads of one, whichever object for the same GPU they have."""
LANE_OF: dict[Work, int] = {"render": 0, "infer": 0, "prepare": 1, "learn": 1}


def cost_s(costs: GpuCosts, work: Work, num_items: int) -> float:
    """Seconds that a work of `num_items` items takes on an otherwise idle GPU."""
    if work == "render":
        return costs.render_s * num_items
    if work == "infer":
        return costs.infer_fixed_s + costs.infer_item_s * num_items
    if work == "prepare":
        return costs.prepare_s
    return costs.learn_item_s * num_items


def end_beside(start: float, took: float, other_free_at: float, factor: float) -> float:
    """When work ends that takes `factor` times as long for as long as the other lane is busy.

    Args:
        start: when it begins.
        took: seconds on an otherwise idle GPU.
        other_free_at: until when the other lane is busy.
        factor: at least 1.
    """
    beside = max(0.0, other_free_at - start)
    if took * factor <= beside:
        return start + took * factor
    return start + took + beside * (1 - 1 / factor)


def sleep_until(moment: float) -> None:
    """Returns at `moment` on the clock of `time.perf_counter`, or at once if it has passed."""
    while (left := moment - time.perf_counter()) > 0:
        time.sleep(left)


def gpu_path(folder: Path, local_rank: int) -> Path:
    """The file of a rank's emulated GPU."""
    return folder / f"gpu{local_rank}.bin"


class EmulatedGpu:
    """One emulated GPU, for as many processes as have its file. Can be sent to another process."""

    torch_name = "cpu"
    num_threads = 1

    def __init__(self, path: Path, costs: GpuCosts, num_ranks: int) -> None:
        self._path, self._costs, self._num_ranks = path, costs, num_ranks
        with path.open("a+b") as file:
            os.posix_fallocate(file.fileno(), 0, 8 * NUM_WORDS)
        self._open()

    def of_rank(self, local_rank: int) -> EmulatedGpu:
        """The GPU of another rank of this machine."""
        return EmulatedGpu(gpu_path(self._path.parent, local_rank), self._costs, self._num_ranks)

    def _open(self) -> None:
        self._fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)  # open for as long as the process lives
        self._words = memoryview(mmap.mmap(self._fd, 8 * NUM_WORDS)).cast("d")

    def __getstate__(self) -> dict[str, object]:
        """Everything but what belongs to this process."""
        return {name: value for name, value in vars(self).items() if name not in {"_fd", "_words"}}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._open()

    def reserve(self, work: Work, num_items: int) -> float:
        """Queues the work behind all that came before it on its lane; returns the moment at which it will be done.

        Learning may be put off later: `busy` sees to that.
        """
        lane = LANE_OF[work]
        took = cost_s(self._costs, work, num_items)
        words, costs = self._words, self._costs
        factors = costs.render_while_learning_factor, costs.learn_while_rendering_factor
        with _THREADS:
            fcntl.lockf(self._fd, fcntl.LOCK_EX)
            try:
                start = max(time.perf_counter(), words[FREE_AT + lane])
                other_free_at = words[FREE_AT + 1 - lane]
                end = end_beside(start, took, other_free_at, factors[lane])
                words[FREE_AT + lane] = end
                if lane == 0 and other_free_at > start:
                    words[FREE_AT + 1] += (min(end, other_free_at) - start) * (1 - 1 / factors[1])
                busy_until = max(words[FREE_AT], words[FREE_AT + 1])
                words[BUSY_S] += max(0.0, busy_until - max(start, words[COVERED_UNTIL]))
                words[COVERED_UNTIL] = max(words[COVERED_UNTIL], busy_until)
            finally:
                fcntl.lockf(self._fd, fcntl.LOCK_UN)
        return end

    @contextmanager
    def busy(self, work: Work, num_items: int) -> Iterator[None]:
        """Takes the GPU for the work's time, in which the real work inside is done; ends at the later of the two."""
        end = self.reserve(work, num_items)
        yield
        self.await_end(work, end)

    def await_end(self, work: Work, end: float) -> float:
        """Blocks until reserved work is done, which is later than `end` if learning was put off; returns the moment."""
        sleep_until(end)
        while LANE_OF[work] == 1 and end < self._words[FREE_AT + 1]:  # one process learns on a GPU: this is its own end
            end = self._words[FREE_AT + 1]
            sleep_until(end)
        return end

    def synchronize_ranks(self) -> None:
        """Takes the time that the profile states for one synchronisation of all ranks; the GPU is idle meanwhile."""
        if self._num_ranks > 1:
            time.sleep(self._costs.synchronize_s)

    def busy_s(self) -> float:
        """Seconds for which the GPU has been busy, as reserved so far."""
        return self._words[BUSY_S]
