"""A computation over rows on a GPU, as CUDA graphs: one launch takes the rows there, computes, and brings results back.

Python launches the kernels of a policy's step one by one: 0.3 to 10 ms for 1 to 64 rows of the policies `auto` to
`resnet`, beside an H100 that computes them in 0.05 to 1.5 ms. A graph of them is launched once.

Rows are gathered into page-locked memory, which the graph copies from and to. A graph has one number of rows, so there
is one for each size of `graph_size`, captured when first needed; rows that are left over are computed too, and thrown
away. The thread that owns it calls it, and blocks until the GPU is done. Graphs read weights where they lie, so that
weights may change in place between calls, and nowhere else. Another thread may use the GPU meanwhile, also during a
capture.
"""

from __future__ import annotations

import gc
import math
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import numpy.typing as npt

    Rows = tuple[npt.NDArray[Any], npt.NDArray[np.int64]]
    """A column, and which of its rows."""
    Compute = Callable[[Mapping[str, torch.Tensor]], tuple[torch.Tensor, ...]]
    """Results of rows by name: tensors whose row i depends on the inputs' rows i alone."""

_CAPTURING = threading.Lock()
ALIGNMENT = 16
"""Bytes: columns begin at multiples in the memory of a graph."""


def graph_size(num: int) -> int:
    """The rows of the graph for `num` rows, at most half as many again: 1, 2, 3, 4, 6, 8, 12, 16, 24, ..."""
    step = 1 << max(0, num.bit_length() - 2)
    return -(-num // step) * step


class Direct:
    """Calls `compute` on rows of columns, on the CPU."""

    def __init__(self, compute: Compute) -> None:
        self._compute = compute

    def __call__(self, inputs: Mapping[str, Rows]) -> list[npt.NDArray[Any]]:
        """The results' rows."""
        # numpy reads the rows: with few of them, torch's indexing takes five times as long.
        rows = {name: torch.from_numpy(column[at]) for name, (column, at) in inputs.items()}
        return [result.numpy() for result in self._compute(rows)]


class Graphed:
    """Calls `compute` on rows of columns; the columns' dtypes and shapes are always those of the first call."""

    def __init__(self, compute: Compute, device: str, generator: torch.Generator | None = None) -> None:
        """`generator` is what `compute` draws from, if it draws; no other thread may use it."""
        self._compute, self._device, self._generator = compute, torch.device(device), generator
        self._graphs: dict[int, _Graph] = {}
        self._pool: Any = None  # of all graphs: they never run at the same time, and leave nothing in it

    def __call__(self, inputs: Mapping[str, Rows]) -> list[npt.NDArray[Any]]:
        """The results' rows, valid until the next call."""
        num = len(next(iter(inputs.values()))[1])
        size = graph_size(num)
        if size not in self._graphs:
            with torch.cuda.device(self._device):  # each thread has a device of its own, the first one unless told
                self._pool = self._pool or torch.cuda.graph_pool_handle()
                self._graphs[size] = _Graph(self._compute, inputs, size, self._device, self._generator, self._pool)
        return self._graphs[size](inputs, num)


class _Graph:
    """One graph, and the memory that it reads and writes."""

    def __init__(
        self,
        compute: Compute,
        inputs: Mapping[str, Rows],
        size: int,
        device: torch.device,
        generator: torch.Generator | None,
        pool: Any,
    ) -> None:
        here = torch.zeros(
            sum(_num_bytes(column, size) for column, _ in inputs.values()), dtype=torch.uint8
        ).pin_memory()
        there = torch.zeros_like(here, device=device)
        self._inputs: dict[str, npt.NDArray[Any]] = {}
        rows: dict[str, torch.Tensor] = {}
        used = 0
        for name, (column, _) in inputs.items():
            shape = (size, *column.shape[1:])
            at = slice(used, used + column.dtype.itemsize * math.prod(shape))
            self._inputs[name] = here.numpy()[at].view(column.dtype).reshape(shape)
            rows[name] = there[at].view(getattr(torch, str(column.dtype))).view(shape)
            used += _num_bytes(column, size)
        self._done = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self._device = device
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):  # libraries make their handles and plans, which a capture does not allow
            results = compute(rows)
        stream.synchronize()
        self._results = [torch.empty(result.shape, dtype=result.dtype, pin_memory=True) for result in results]
        self._graph = torch.cuda.CUDAGraph()
        if generator is not None:
            self._graph.register_generator_state(generator)
        with _undisturbed(), torch.cuda.graph(self._graph, pool, stream, capture_error_mode="thread_local"):
            there.copy_(here, non_blocking=True)
            for result, into in zip(compute(rows), self._results, strict=True):
                into.copy_(result, non_blocking=True)
        self._kept = here, there  # the graph has their addresses

    def __call__(self, inputs: Mapping[str, Rows], num: int) -> list[npt.NDArray[Any]]:
        for name, (column, rows) in inputs.items():
            np.take(column, rows, axis=0, out=self._inputs[name][:num], mode="clip")  # `raise` would copy twice
        self._graph.replay()
        self._done.record(torch.cuda.current_stream(self._device))
        self._done.synchronize()
        return [result.numpy()[:num] for result in self._results]


def lock_for_gpu(memory: npt.NDArray[np.uint8]) -> None:
    """Has CUDA lock the memory's pages until the process ends: a GPU then copies from it several times as fast.

    A CUDA that will not is no error.
    """
    if int(torch.cuda.cudart().cudaHostRegister(memory.ctypes.data, memory.nbytes, 0)):  # type: ignore[no-untyped-call]
        with suppress(RuntimeError):
            torch.zeros(1, device="cuda")  # CUDA tells the next caller of the error, too


@contextmanager
def _undisturbed() -> Iterator[None]:
    """No garbage is collected: what CUDA frees for it in the thread that captures would spoil the capture."""
    with _CAPTURING:
        collects = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if collects:
                gc.enable()


def _num_bytes(column: npt.NDArray[Any], size: int) -> int:
    """Of so many rows of a column, with what it takes until the next one may begin."""
    return -(-size * column.dtype.itemsize * math.prod(column.shape[1:]) // ALIGNMENT) * ALIGNMENT
