"""The classes that a rank is made from, in one place: what it starts, what connects it to other ranks, what learns.

`run_rank` gets them and hands them down: the rank loop uses the pool and the deadline, and the group carries the links
to the averager. The defaults are those of a run. Tests replace them, and so run the engine's own code on virtual time,
without processes, sockets or threads. What serves environments on other machines is always real.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from rlbench.harness.processes.told import StopRequests
from rlbench.systems.engine.rank.deadline import Deadline
from rlbench.systems.engine.rank.learner import Learner
from rlbench.systems.engine.wire.links import REAL_LINKS, Links
from rlbench.systems.engine.workers.background import Background
from rlbench.systems.engine.workers.pool import WorkerPool


@dataclass(frozen=True, kw_only=True, slots=True)
class Means:
    """One class of each kind; a replacement is called as the default is."""

    pool: type[WorkerPool] = WorkerPool
    """The processes that step environments."""
    links: Links = REAL_LINKS
    """What connects it to other ranks."""
    background: type[Background] = Background
    """The thread that samples while the main one learns."""
    condition: Callable[[], threading.Condition] = threading.Condition
    """The condition through which those two threads wait for each other."""
    requests: type[StopRequests] = StopRequests
    """What hears whether the rank is told to stop."""
    deadline: type[Deadline] = Deadline
    """What breaks collecting off."""
    learner: type[Learner] = Learner
    """What learns from experience; tests watch it."""


REAL = Means()
"""The means of a run."""
