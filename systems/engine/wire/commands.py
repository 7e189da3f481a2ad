"""The records that a rank and its environment workers send each other through pipes."""

from __future__ import annotations

import select
import struct
from typing import TYPE_CHECKING

import numpy as np

from rlbench.systems.choices.collect import MOST_PLAYED

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

COMMAND = struct.Struct("<iii")
REPLY = struct.Struct("<ii")
RESET = -1
"""In place of the action's slot: begin the first episode instead of stepping."""
PLAY = -2
"""In place of the action's slot: the third number says how many slots follow; step through them with the policy."""
SEND = -3
"""In place of the action's slot: the third number says how many environments of the pool follow, and act."""
REPLIES_AT_ONCE = select.PIPE_BUF // REPLY.size
"""Most replies of one write."""
assert COMMAND.size + 4 * (1 + MOST_PLAYED) <= select.PIPE_BUF  # as many bytes are written to a pipe whole


def commands_to_pools(
    envs: npt.NDArray[np.int64], slots: npt.NDArray[np.int64], size: int
) -> Iterator[tuple[int, bytes]]:
    """What tells the workers of pools of B = `size` environments that these [K] act, or that all of them begin.

    A `SEND` names the environments, as their pool numbers them, since a mask in the table would have two writers. One
    of more than fit into PIPE_BUF bytes is several.

    Returns:
        The first environment of a pool, and a command to its worker, so many times as are needed.
    """
    pools = envs // size
    for pool in np.unique(pools).tolist():
        first, of_pool = pool * size, pools == pool
        if slots[of_pool][0] == RESET:
            yield first, COMMAND.pack(first, RESET, 0)
            continue
        ids = (envs[of_pool] - first).astype(np.int32)
        for at in range(0, len(ids), MOST_PLAYED):
            some = ids[at : at + MOST_PLAYED]
            yield first, COMMAND.pack(first, SEND, len(some)) + some.tobytes()
