"""The classes through which a rank reaches other ranks, in one place, so that tests can replace them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from rlbench.systems.engine.wire.mailbox import Mailbox
from rlbench.systems.engine.wire.transport import Transport


@dataclass(frozen=True, kw_only=True, slots=True)
class Links:
    """One class of each kind; a replacement is called as the default is."""

    transport: type[Transport] = Transport
    """What joins the other ranks, where there are any."""
    mailbox: type[Mailbox] = Mailbox
    """Messages between two ranks."""
    executor: type[ThreadPoolExecutor] = ThreadPoolExecutor
    """The thread in which a rank exchanges weights while it learns."""


REAL_LINKS = Links()
"""The links of a run."""
