"""What a rank says to its environment workers, and they to it: records of the pipes between them."""

from __future__ import annotations

import select
import struct

COMMAND = struct.Struct("<iii")
REPLY = struct.Struct("<ii")
RESET = -1
"""As the slot of the action: begin the first episode instead of stepping."""
PLAY = -2
"""As the slot of the action: as many slots follow as the third number says; step through them with the policy."""
MOST_PLAYED = (select.PIPE_BUF - COMMAND.size) // 4 - 1
"""Steps of one command, which must be written to the pipe whole."""
