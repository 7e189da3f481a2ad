"""What a rank is made with: what it starts, by what it reaches other ranks, and what learns, in one place.

`run_rank` gets them and hands them down: the pool and the deadline are the rank loop's, the links go with the group
to whoever averages. Those of a run are the defaults. With others in their places the
engine's own code runs without processes, sockets or threads: tests run it on virtual time. What serves environments on
other machines is always real.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from harness.processes.told import StopRequests
from systems.engine.rank.deadline import Deadline
from systems.engine.rank.learner import Learner
from systems.engine.wire.links import REAL_LINKS, Links
from systems.engine.workers.background import Background
from systems.engine.workers.pool import WorkerPool


@dataclass(frozen=True, kw_only=True, slots=True)
class Means:
    """One of each kind, to be called as the default is."""

    pool: type[WorkerPool] = WorkerPool
    """The processes that step environments."""
    links: Links = REAL_LINKS
    """By what it reaches other ranks."""
    background: type[Background] = Background
    """The thread that samples while the main one learns."""
    condition: Callable[[], threading.Condition] = threading.Condition
    """Between those two."""
    requests: type[StopRequests] = StopRequests
    """Whether the rank is told to stop."""
    deadline: type[Deadline] = Deadline
    """What breaks collecting off."""
    learner: type[Learner] = Learner
    """What is done with experience; tests watch it."""


REAL = Means()
"""Those of a run."""
