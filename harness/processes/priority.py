"""Running before all other processes for a while, where that is permitted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def before_others() -> Iterator[bool]:
    """This thread runs whenever it wants to, and what it starts does not; gives whether that is permitted.

    It is to root, with CAP_SYS_NICE, and where `ulimit -r` is at least 1.
    """
    policy, param = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except PermissionError:
        yield False
        return
    try:
        yield True
    finally:
        try:
            os.sched_setscheduler(0, policy, param)
        except PermissionError:  # with `ulimit -r` alone the flag cannot be taken back; it changes nothing from here on
            os.sched_setscheduler(0, policy | os.SCHED_RESET_ON_FORK, param)
