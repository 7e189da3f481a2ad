"""Calls a command of ours in a process of its own, as a shell would, and waits for its end.

The caller's process, a notebook's kernel perhaps, forks nothing and starts no thread. The command is alone in a process
group: a terminal's or a notebook's interrupt goes to all of a group, and the command is to hear of it once, from here.

Who writes: the command, to stdout, stderr, and a pipe that says where its sweep is and what is wrong. Who reads: the
calling thread, as it comes. What blocks: `_Command.wait`, until the process has ended; what is in the pipes by then is
read, and a process further down that still holds them is not waited for. How it ends early: SIGINT is noted here and
sent on, and never raised while the command runs; the command ends in order, and KeyboardInterrupt follows. Where the
caller's process ends before, the kernel tells the command (`harness/commands/caller.py`).
"""

from __future__ import annotations

import codecs
import os
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from rlbench.api.words import words_of
from rlbench.harness.commands.caller import END, MESSAGE
from rlbench.harness.processes.process import how_it_ended

USAGE = 2
"""Exit code of a command that refuses what it was told."""
MADE_ITS_SWEEP = (0, 1)
"""Exit codes of a command whose sweep is over; 1: some of its cells did not finish."""
CHUNK_BYTES = 65_536
FORCES_COLOURS = "FORCE_COLOR"
"""Environment variable with which a notebook's kernel says that it shows escape sequences; a live display is more."""


class RunFailed(RuntimeError):  # noqa: N818  the name says what happened
    """A command that `rlbench.run` or `rlbench.predict` called has ended without its sweep."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code
        """Exit code of the command; negative: the signal that killed it."""


def call(command: str, given: Mapping[str, object]) -> Path:
    """Calls `run` or `predict` and returns the folder of its sweep.

    Args:
        command: one of the two.
        given: values by option, as `rlbench.api.words` takes them.

    Raises:
        ValueError: it refuses an option.
        RunFailed: it has ended without a sweep.
        KeyboardInterrupt: it was interrupted from here.
    """
    with _Interrupts.noted() as interrupts:
        called = _Command(words_of(command, given))
        interrupts.send_to(called.process)
        called.wait()
    code, said = called.process.returncode, called.message
    if interrupts.were_sent:
        raise KeyboardInterrupt(said or "interrupted")
    if code == USAGE:
        raise ValueError(said or f"rlbench {command}: exited with {code}")
    if code not in MADE_ITS_SWEEP or called.sweep is None:
        last = called.last_line if code > 0 else ""  # of an interpreter that could not start it, perhaps
        raise RunFailed(f"rlbench {command}: {said or last or how_it_ended(code)}", code)
    return called.sweep


class _Command:
    """A command that runs; what it prints is shown."""

    def __init__(self, words: list[str]) -> None:
        self._to, is_terminal = _shown_on()
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self.last_line, self._told = "", b""
        self._told_fd, pipe = os.pipe()
        variables = {name: value for name, value in os.environ.items() if is_terminal or name != FORCES_COLOURS}
        program = [sys.executable, "-P", "-m", "rlbench_start", "rlbench.api.called", str(os.getpid()), str(pipe)]
        try:
            self.process = subprocess.Popen(  # noqa: S603  our own interpreter and module
                [*program, *words],
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=self._to if is_terminal else subprocess.PIPE,
                stderr=self._to if is_terminal else subprocess.STDOUT,
                pass_fds=(pipe,),
                process_group=0,
            )
        except BaseException:
            os.close(self._told_fd)
            raise
        finally:
            os.close(pipe)

    @property
    def message(self) -> str:
        """What it said last of what is wrong."""
        said = [each for each in self._told.split(END)[:-1] if each.startswith(MESSAGE)]
        return said[-1].removeprefix(MESSAGE).decode(errors="replace") if said else ""

    @property
    def sweep(self) -> Path | None:
        """The folder of its sweep; None if it made none."""
        told = [each for each in self._told.split(END)[:-1] if not each.startswith(MESSAGE)]
        return Path(os.fsdecode(told[-1])) if told else None

    def show(self, text: str) -> None:
        """Shows some lines where all that it prints is shown."""
        if text and self._to is not None:
            self._to.write(text)
            self._to.flush()

    def wait(self) -> None:
        """Reads what it writes until it has ended."""
        readers: dict[int, Callable[[bytes], None]] = {self._told_fd: self._hear}
        if self.process.stdout is not None:
            readers[self.process.stdout.fileno()] = self._pass_on
        ended = -1
        try:
            with self.process, selectors.DefaultSelector() as selector:
                ended = os.pidfd_open(self.process.pid)
                for file in (ended, *readers):
                    selector.register(file, selectors.EVENT_READ)
                waiting = True
                while waiting:
                    for key, _ in selector.select():
                        if key.fd == ended:
                            waiting = False
                        elif chunk := os.read(key.fd, CHUNK_BYTES):
                            readers[key.fd](chunk)
                        else:
                            selector.unregister(key.fd)
                for file, read in readers.items():
                    _drain(file, read)
        finally:
            if ended >= 0:
                os.close(ended)
            os.close(self._told_fd)

    def _pass_on(self, chunk: bytes) -> None:
        text = self._decoder.decode(chunk)
        self.last_line = (text.splitlines() or [self.last_line])[-1]
        self.show(text)

    def _hear(self, chunk: bytes) -> None:
        self._told += chunk


class _Interrupts:
    """SIGINT while a command runs: it is the command's."""

    def __init__(self) -> None:
        self.were_sent = False
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    @contextmanager
    def noted(cls) -> Iterator[_Interrupts]:
        """Notes them in the main thread, where Python handles signals; one that is ignored stays ignored."""
        noted, before = cls(), signal.getsignal(signal.SIGINT)
        if threading.current_thread() is not threading.main_thread() or before in {signal.SIG_IGN, None}:
            yield noted
            return
        signal.signal(signal.SIGINT, noted._note)
        try:
            yield noted
        finally:
            signal.signal(signal.SIGINT, before)

    def send_to(self, process: subprocess.Popen[bytes]) -> None:
        """Sends them on from now on, and one that came before."""
        self._process = process
        if self.were_sent:
            process.send_signal(signal.SIGINT)

    def _note(self, *_: Any) -> None:
        self.were_sent = True
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)


def _drain(file: int, read: Callable[[bytes], None]) -> None:
    """Reads what is left in a pipe, whoever else still holds it."""
    os.set_blocking(file, False)
    with suppress(BlockingIOError):
        while chunk := os.read(file, CHUNK_BYTES):
            read(chunk)


def _shown_on() -> tuple[TextIO | None, bool]:
    """Where the command's output is shown, if anywhere, and whether that is a terminal, which it can write to itself.

    It is stderr, since stdout is for what the caller's program prints; but notebooks show stderr as they show errors.
    """
    if "ipykernel" in sys.modules:
        return sys.stdout, False
    try:
        return sys.stderr, os.isatty(sys.stderr.fileno())
    except (AttributeError, OSError, ValueError):  # it was replaced, closed, or is None
        return sys.stderr, False
