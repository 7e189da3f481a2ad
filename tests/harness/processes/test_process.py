"""What a process can say of itself."""

from __future__ import annotations

import multiprocessing
import os
import time
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier

from rlbench.harness.processes import process
from tests.harness.runs import PATIENCE_S

WORK_S = 0.2


def burn(core: int, all_burn: Barrier) -> None:
    """Keeps a core busy until somebody ends it, or it has had half a minute of it."""
    os.sched_setaffinity(0, {core})
    all_burn.wait()
    until = time.process_time() + 30
    while time.process_time() < until:
        pass


def contend(num_others: int, core: int, waited: Queue[float | None]) -> None:
    """Works for `WORK_S` of its own CPU time on a core that others want too; says how long it waited."""
    os.sched_setaffinity(0, {core})
    context = multiprocessing.get_context("fork")
    all_burn = context.Barrier(num_others + 1)
    others = [context.Process(target=burn, args=(core, all_burn)) for _ in range(num_others)]
    for other in others:
        other.start()
    all_burn.wait()
    before = process.core_wait_s()
    until = time.process_time() + WORK_S
    while time.process_time() < until:
        pass
    after = process.core_wait_s()
    for other in others:
        other.kill()
        other.join()
    waited.put(None if before is None or after is None else after - before)


def test_waiting_for_a_core_is_told() -> None:
    """Who shares a core with three others waits for it about three times as long as it has it."""
    context = multiprocessing.get_context("fork")
    waited: Queue[float | None] = context.Queue()
    worker = context.Process(target=contend, args=(3, min(os.sched_getaffinity(0)), waited))
    worker.start()
    seconds = waited.get(timeout=PATIENCE_S)
    assert seconds is not None
    assert seconds > WORK_S
    worker.join()
    assert worker.exitcode == 0


def test_sleeping_is_no_waiting_for_a_core() -> None:
    """A process that sleeps is not ready to run; it waits only as long as it takes to wake up.

    Other threads of this process may wait meanwhile, on a busy machine: once they do not is enough, for if sleeping
    counted, it always would.
    """

    def waited_s() -> float:
        before = process.core_wait_s()
        time.sleep(0.5)
        after = process.core_wait_s()
        assert before is not None
        assert after is not None
        return after - before

    assert any(waited_s() < 0.4 for _ in range(100))
