"""The records that a rank and its environment workers send each other through pipes."""

from __future__ import annotations

import select
import struct

from systems.choices.collect import MOST_PLAYED

COMMAND = struct.Struct("<iii")
REPLY = struct.Struct("<ii")
RESET = -1
"""In place of the action's slot: begin the first episode instead of stepping."""
PLAY = -2
"""In place of the action's slot: the third number says how many slots follow; step through them with the policy."""
assert COMMAND.size + 4 * (1 + MOST_PLAYED) <= select.PIPE_BUF  # as many bytes are written to a pipe whole
