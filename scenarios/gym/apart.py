"""Tries environments in a process apart, so that one that ends its process, or hangs, does not end the command.

    command, forks --> a process: makes, resets and closes each environment --> its spaces, or its fault --> `known`

The process is forked once for all environments of a scenario, while the command plans. It writes an answer for each to
a pipe, from which the command reads until the process has ended or `TRIAL_S` have passed without an answer; then the
command kills it, with what it has started. If the command is killed, an alarm ends the process.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection

from scenarios.gym import making
from scenarios.gym.making import Recipe

LOOK_S = 0.05
"""How often the command looks whether the process has ended without an answer."""


def try_apart(recipes: Iterable[Recipe]) -> None:
    """Tries environments that are not known yet, so that `making.spaces` knows what came of them.

    In a rank's process, or where torch is loaded, it does nothing: there an environment may need what cannot be forked,
    and the command has tried it.
    """
    unknown = [recipe for recipe in dict.fromkeys(recipes) if recipe not in making.known]
    if unknown and "RANK" not in os.environ and "torch" not in sys.modules:
        _try(unknown)


def _try(recipes: Sequence[Recipe]) -> None:
    ours, theirs = multiprocessing.Pipe(duplex=False)
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads, of which the process needs none
        pid = os.fork()
    if pid == 0:
        _answer(recipes, theirs)
    theirs.close()
    with suppress(OSError):  # it does the same; whoever comes first
        os.setpgid(pid, pid)
    how: str | None = None
    try:
        for recipe in recipes:
            how = _received(recipe, ours, pid)
            if how is not None:
                making.known[recipe] = ValueError(how)
                break
    finally:
        ours.close()
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)


def _received(recipe: Recipe, ours: Connection, pid: int) -> str | None:
    """Waits for the answer about an environment; returns what is to be said if there is none."""
    deadline = time.monotonic() + making.TRIAL_S
    ended: int | None = None
    while time.monotonic() < deadline:
        if ours.poll(LOOK_S):
            with suppress(EOFError):
                _note(recipe, ours)
                return None
            time.sleep(LOOK_S)  # it has closed the pipe: it is ending
        if ended is not None:  # before the last look for an answer
            return _how(ended)
        found, status = os.waitpid(pid, os.WNOHANG)
        ended = status if found else None
    return making.hangs()


def _note(recipe: Recipe, ours: Connection) -> None:
    """Takes the answer about an environment. Raises EOFError where there is none."""
    try:
        is_known, found = ours.recv()
    except EOFError:
        raise
    except Exception:  # noqa: BLE001  a class of the user's that only the process knows: the command tries it itself
        return
    if is_known:
        making.known[recipe] = found


def _how(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return f"the process that made, reset and closed it {how}; mend its constructor, reset or close"


def _answer(recipes: Sequence[Recipe], theirs: Connection) -> None:
    """What the process does; it does not return."""
    code = 1
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        for recipe in recipes:
            signal.alarm(2 * int(1 + making.TRIAL_S))
            _tell(_tried(recipe), theirs)
        code = 0
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _tell(answer: tuple[bool, making.Spaces | ValueError | None], theirs: Connection) -> None:
    try:
        theirs.send(answer)
    except OSError:
        raise
    except Exception:  # noqa: BLE001  spaces of the user's own class
        theirs.send((False, None))


def _tried(recipe: Recipe) -> tuple[bool, making.Spaces | ValueError | None]:
    """Whether something is known of an environment, and its spaces or its fault; what else is raised, is raised again.

    That is in the command, which tries an environment itself of which it knows nothing.
    """
    try:
        return True, making.tried(recipe)
    except ValueError as error:
        return True, ValueError(str(error))
    except BaseException:  # noqa: BLE001
        return False, None
