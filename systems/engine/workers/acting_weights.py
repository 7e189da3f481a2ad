"""How the weights that act follow those that learn: the same ones, a copy beside them, or a copy in every actor.

The learner's thread writes, inside `changing`. The thread that samples reads in `refresh`; actors in processes of their
own read from shared memory. `changing` blocks for the time of a copy. `refresh` does not wait for the end of a change,
in which other ranks may be asked: it leaves the copy as it is. Shared memory has two halves: actors read the one that
is not being written, and read again if newer weights were completed meanwhile. Nothing waits for a reader in another
process, so a dead reader holds up nobody.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

import torch

from rlbench.systems.engine.workers.tables import SharedColumn, SharedTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    import numpy as np
    import numpy.typing as npt

    from rlbench.systems.engine.workers.inference import Actor


class Shared(Protocol):
    """Columns by their names, as `weight_columns` has them."""

    def __getitem__(self, name: str) -> npt.NDArray[Any]: ...


class Followed(Protocol):
    """Weights of the learner that those that act follow."""

    def changing(self) -> AbstractContextManager[None]:
        """The learner changes its weights inside."""

    def publish(self, version: int) -> None:
        """The learner's weights are of this version now; called inside `changing`."""

    def refresh(self) -> None:
        """Takes the newest weights; called by the thread that samples, before it acts."""


class SameWeights:
    """Learner and sampler take turns with the same weights."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor

    def changing(self) -> AbstractContextManager[None]:
        """Nobody acts meanwhile."""
        return nullcontext()

    def publish(self, version: int) -> None:
        """The actor's weights are the learner's."""
        self._actor.version = version

    def refresh(self) -> None:
        """Nothing to do: these weights always are the newest."""


class CopiedWeights:
    """The sampler acts with a copy, which it takes when a newer version is there."""

    def __init__(self, learned: torch.nn.Module, acting: torch.nn.Module, actor: Actor) -> None:
        self._pairs = list(zip(acting.parameters(), learned.parameters(), strict=True))
        self._actor = actor
        self._lock = threading.Lock()
        self._version = 0

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Keeps the sampler from copying half of a change."""
        with self._lock:
            yield

    def publish(self, version: int) -> None:
        """The learner's weights are of this version now."""
        self._version = version

    @torch.no_grad()
    def refresh(self) -> None:
        """Copies the learner's weights, if they have changed and are not changing."""
        if self._actor.version == self._version or not self._lock.acquire(blocking=False):
            return
        try:
            with _copying(self._actor):
                for acting, learned in self._pairs:
                    acting.copy_(learned)
            self._actor.version = self._version
        finally:
            self._lock.release()


@contextmanager
def _copying(actor: Actor) -> Iterator[None]:
    """Copies inside follow what is queued to learn; what will be queued follows them, and so does what acts."""
    if actor.stream is None:
        yield
        return
    learning = torch.cuda.default_stream(actor.stream.device)
    actor.stream.wait_stream(learning)
    with actor.apart():
        yield
    learning.wait_stream(actor.stream)


def weight_columns(num_parameters: int) -> tuple[SharedColumn, ...]:
    """The columns of the shared memory through which actors get weights."""
    return (
        SharedColumn("weights", (2, num_parameters), "<f4"),  # writer; its k-th weights, from k = 1, are in half k % 2
        SharedColumn("weights_version", (2,), "<i8"),  # writer, with the half
        SharedColumn("weights_turn", (1,), "<i8"),  # writer, once that is whole: k; 0: nothing yet
        SharedColumn("stop", (1,), "|b1"),  # rank: actors end what they play
    )


class SharedHalves:
    """Writes weights for actors in processes of their own; only one thread may write."""

    def __init__(self, table: SharedTable) -> None:
        self._halves = torch.from_numpy(table["weights"])
        self._versions, self._turn = table["weights_version"], table["weights_turn"]

    def write(self, flat: torch.Tensor, version: int) -> None:
        """Writes `flat`, [P], to the half that is not being read, then tells readers to read that one."""
        turn = int(self._turn[0]) + 1
        self._halves[turn % 2].copy_(flat)
        self._versions[turn % 2] = version
        self._turn[0] = turn


class BroadcastWeights:
    """Actors in processes of their own take the newest weights from shared memory."""

    def __init__(self, learned: torch.nn.Module, table: SharedTable) -> None:
        self._parameters = list(learned.parameters())
        self._shared = SharedHalves(table)
        self.on_publish: Callable[[], None] = lambda: None
        """Called by the learner's thread when newer weights are in shared memory."""

    def changing(self) -> AbstractContextManager[None]:
        """Actors read a copy."""
        return nullcontext()

    @torch.no_grad()
    def publish(self, version: int) -> None:
        """Writes the learner's weights to shared memory."""
        self._shared.write(torch.cat([parameter.reshape(-1) for parameter in self._parameters]), version)
        self.on_publish()

    def refresh(self) -> None:
        """Nothing to do: the thread that samples does not act."""


def read_newest(table: Shared, read: Callable[[npt.NDArray[np.float32]], None]) -> int:
    """Calls `read` with the newest weights, again if they may have been overwritten; returns their version.

    Turn k + 1 is written to the other half. Once it is there, turn k + 2 may already be overwriting this half.
    """
    halves, versions, turn = table["weights"], table["weights_version"], table["weights_turn"]
    while True:
        before = int(turn[0])
        read(halves[before % 2])
        version = int(versions[before % 2])
        if int(turn[0]) == before:
            return version
