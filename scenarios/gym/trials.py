"""Tries environments once, so that their faults are known before any rank starts; in a process apart where it can.

    command, forks --> a process: tries each environment --> what it is like, or its fault --> `Trials.known`

An environment that ends its process, or hangs, then does not end the command. The process is forked once for all
environments of a scenario, while the command plans. It writes an answer for each to a pipe, from which the command
reads until the process has ended or `TRIAL_S` have passed without an answer; then the command kills it, with what it
has started. If the command is killed, an alarm ends the process.

What the process could not tell is tried in the command itself, as it is in every other process that loads the scenario.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Generic, Protocol, TypeVar

TRIAL_S = 60.0
"""Seconds in which an environment must be made and reset for the first time."""
LOOK_S = 0.05
"""How often the command looks whether the process has ended without an answer."""


class Named(Hashable, Protocol):
    """What an environment is made from."""

    @property
    def id(self) -> str:
        """What it is called."""


Recipe = TypeVar("Recipe", bound=Named)
Found = TypeVar("Found")


class Trials(Generic[Recipe, Found]):
    """What came of the environments of a family that were tried."""

    def __init__(self, family: str, tried: Callable[[Recipe], Found]) -> None:
        """The function makes an environment, resets and closes it, and says what it is like, or raises ValueError."""
        self._family, self._tried = family, tried
        self.known: dict[Recipe, Found | ValueError] = {}
        """An error is told once."""

    def of(self, recipe: Recipe) -> Found:
        """What an environment is like; tries it in this process if that is not known. Raises ValueError."""
        found = self.known.get(recipe)
        if isinstance(found, ValueError):
            raise self.known.pop(recipe)  # type: ignore[misc]
        if found is None:
            watch = threading.Timer(TRIAL_S, self._give_up, (recipe.id,))
            watch.daemon = True
            watch.start()
            try:
                found = self.known[recipe] = self._tried(recipe)
            finally:
                watch.cancel()
                watch.join()  # ranks fork a process next, in which no thread may be missing
        return found

    def _give_up(self, name: str) -> None:
        """Ends this process: whatever an environment hangs in may be deaf to exceptions."""
        print(  # noqa: T201  nobody else can say it any more
            f"rlbench: {self._family}/{name}: {_hangs()}",
            file=sys.stderr,
            flush=True,
        )
        os._exit(2)

    def apart(self, recipes: Iterable[Recipe]) -> None:
        """Tries those that are not known yet in a process apart.

        In a rank's process, or where torch is loaded, it does nothing: there an environment may need what cannot be
        forked, and the command has tried it.
        """
        unknown = [recipe for recipe in dict.fromkeys(recipes) if recipe not in self.known]
        if unknown and "RANK" not in os.environ and "torch" not in sys.modules:
            self._try(unknown)

    def _try(self, recipes: Sequence[Recipe]) -> None:
        ours, theirs = multiprocessing.Pipe(duplex=False)
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of threads, of which the process needs none
            pid = os.fork()
        if pid == 0:
            self._answer(recipes, theirs)
        theirs.close()
        with suppress(OSError):  # it does the same; whoever comes first
            os.setpgid(pid, pid)
        try:
            for recipe in recipes:
                how = self._received(recipe, ours, pid)
                if how is not None:
                    self.known[recipe] = ValueError(how)
                    break
        finally:
            ours.close()
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)

    def _received(self, recipe: Recipe, ours: Connection, pid: int) -> str | None:
        """Waits for the answer about an environment; returns what is to be said if there is none."""
        deadline = time.monotonic() + TRIAL_S
        ended: int | None = None
        while time.monotonic() < deadline:
            if ours.poll(LOOK_S):
                with suppress(EOFError):
                    self._note(recipe, ours)
                    return None
                time.sleep(LOOK_S)  # it has closed the pipe: it is ending
            if ended is not None:  # before the last look for an answer
                return _how(ended)
            found, status = os.waitpid(pid, os.WNOHANG)
            ended = status if found else None
        return _hangs()

    def _note(self, recipe: Recipe, ours: Connection) -> None:
        """Takes the answer about an environment. Raises EOFError where there is none."""
        try:
            is_known, found = ours.recv()
        except EOFError:
            raise
        except Exception:  # noqa: BLE001  a class of the user's that only the process knows
            return
        if is_known:
            self.known[recipe] = found

    def _answer(self, recipes: Sequence[Recipe], theirs: Connection) -> None:
        """What the process does; it does not return."""
        code = 1
        try:
            os.setpgid(0, 0)
            for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT):  # the command's are not for it
                signal.signal(number, signal.SIG_DFL)
            for recipe in recipes:
                signal.alarm(2 * int(1 + TRIAL_S))
                _tell(self._answer_of(recipe), theirs)
            code = 0
        finally:
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _answer_of(self, recipe: Recipe) -> tuple[bool, Any]:
        """Whether something is known of an environment, and what it is like or its fault."""
        try:
            return True, self._tried(recipe)
        except ValueError as error:
            return True, ValueError(str(error))
        except BaseException:  # noqa: BLE001  is raised again in the command
            return False, None


def _tell(answer: tuple[bool, Any], theirs: Connection) -> None:
    try:
        theirs.send(answer)
    except OSError:
        raise
    except Exception:  # noqa: BLE001  spaces of the user's own class
        theirs.send((False, None))


def _hangs() -> str:
    return f"has not been made and reset in {TRIAL_S:g} s; it hangs, or needs a display"


def _how(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return f"the process that made, reset and closed it {how}; mend its constructor, reset or close"
