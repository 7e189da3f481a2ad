"""Running before others for a while: where it is permitted, where it is not, and where it can only partly be undone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from rlbench.harness.processes.priority import before_others

SCHEDULER = "import os; print(os.sched_getscheduler(0))"
ORDINARY = os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK


def refuse(*_: object) -> None:
    """`os.sched_setscheduler` where a real-time priority is not permitted."""
    raise PermissionError


def test_thread_runs_before_others_for_a_while() -> None:
    """What it starts meanwhile does not, nor does it itself afterwards."""
    with before_others() as permitted:
        assert (os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK == os.SCHED_FIFO) == permitted
        child = subprocess.run([sys.executable, "-c", SCHEDULER], check=True, capture_output=True)
    assert int(child.stdout) == ORDINARY == os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK


def test_it_says_where_that_is_not_permitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing changes then."""
    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    with before_others() as permitted:
        assert not permitted


def test_limit_alone_does_not_permit_to_take_the_flag_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only `ulimit -r` permits it, the flag is left, with the ordinary policy; a second time works too."""
    now = [ORDINARY]

    def as_the_kernel(_: int, policy: int, __: os.sched_param) -> None:
        if now[0] & os.SCHED_RESET_ON_FORK and not policy & os.SCHED_RESET_ON_FORK:
            raise PermissionError
        now[0] = policy

    monkeypatch.setattr(os, "sched_setscheduler", as_the_kernel)
    monkeypatch.setattr(os, "sched_getscheduler", lambda _: now[0])
    for _ in range(2):
        with before_others() as permitted:
            assert permitted
            assert now == [os.SCHED_FIFO | os.SCHED_RESET_ON_FORK]
        assert now == [ORDINARY | os.SCHED_RESET_ON_FORK]
