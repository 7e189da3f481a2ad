"""Views of arrays that compiled code does not count references of.

Numba counts, with an atomic operation, each time that an array is handed on from one function to another, and the model
hands on a score of them several times an event: without this, counting took three quarters of a prediction's time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from numba import carray, types  # type: ignore[attr-defined]  # numba does not say what it exports
from numba.core import cgutils
from numba.extending import intrinsic

from systems.model.compiling import compiled, inlined
from systems.model.state import State

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt

    T = TypeVar("T", bound=np.generic)


@intrinsic
def _pointer(_context: Any, address: Any) -> Any:
    """An address as a pointer to anything."""

    def generate(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


_as_pointer = cast("Callable[[int], Any]", _pointer)  # numba gives the context


@inlined
def _view(array: npt.NDArray[T]) -> npt.NDArray[T]:
    return carray(_as_pointer(array.ctypes.data), array.shape, array.dtype)


@compiled
def unowned(st: State) -> State:
    """The same memory; whoever calls must keep `st` for as long as the views are used."""
    return State(
        _view(st.sites),
        _view(st.envs),
        _view(st.words),
        _view(st.events),
        _view(st.seconds),
        _view(st.ends),
        _view(st.group_of),
        _view(st.workers),
        _view(st.queue),
        _view(st.batch),
        _view(st.replied),
        _view(st.spans),
        _view(st.known_finishes),
        _view(st.reports),
        _view(st.partial_versions),
        _view(st.whole),
        _view(st.whole_versions),
    )
