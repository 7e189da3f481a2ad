"""How the model's inner loops are compiled: by numba, once for each state of the sources.

Numba keeps what it has compiled in a folder. To see whether that is still valid it looks only at the function's own
file, though functions that it calls may have changed. So the folder is named after a hash of all the sources.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, ParamSpec, TypeVar, cast

import numba

from rlbench.harness.devices import booking
from rlbench.systems.choices import collect, preempt

P = ParamSpec("P")
R = TypeVar("R")


def cache_folder() -> Path:
    """The folder for code compiled from exactly these sources, below `$XDG_CACHE_HOME` or `~/.cache`."""
    modules = (booking, collect, preempt)
    sources = [*sorted(Path(__file__).parent.glob("*.py")), *(Path(str(module.__file__)) for module in modules)]
    digest = hashlib.sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root, "rlbench", "compiled", digest)


numba.config.CACHE_DIR = str(cache_folder())  # type: ignore[attr-defined]  # made when numba is imported


_njit: Any = numba.njit  # its types do not know `_nrt`


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compiles a function when it is first called, and keeps the result on disk."""
    return cast("Callable[P, R]", _njit(cache=True, _nrt=True)(function))


def compiled_bare(function: Callable[P, R]) -> Callable[P, R]:
    """The same without reference counts: the function can neither make arrays nor call a function that returns any.

    Numba counts references each time an array is passed on, and the model passes on about twenty of them several times
    per event: counting took more than half of a prediction's time.
    """
    return cast("Callable[P, R]", _njit(cache=True, _nrt=False)(function))


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """The same without reference counts, compiled into each caller."""
    return cast("Callable[P, R]", _njit(cache=True, _nrt=False, forceinline=True)(function))


def compiled_with(function: Callable[P, R], **known: Any) -> Callable[P, R]:
    """Compiles a function of another module; the names in `known` stand for functions that are compiled already."""
    assert isinstance(function, FunctionType)
    names = {**function.__globals__, **known}
    return compiled(
        cast("Callable[P, R]", FunctionType(function.__code__, names, function.__name__, function.__defaults__))
    )


# The engine's decision functions: the model calls the very code that the engine runs.
choose_batch = compiled(collect.choose_batch)
whole_groups = compiled(collect.whole_groups)
is_preempted = compiled(preempt.is_preempted)
pause_s = compiled(preempt.pause_s)
book = compiled_with(
    booking.book,
    end_beside=compiled(booking.end_beside),
    hold_cores=compiled(booking.hold_cores),
    release_cores=compiled(booking.release_cores),
)
book_core = compiled(booking.book_core)
book_link = compiled(booking.book_link)
