"""Measures a training program from outside: env steps per second of wall-clock time, counted in its environments.

The program is a child in a session of its own. Its output is read only to say why it failed. In the end all its
descendants are killed, even those that left its process group or lost their parent, as those of some simulators do; one
that starts and loses its parent between two looks at the tree would be missed. Then what they had mapped of /dev/shm is
removed. Ctrl-C and SIGTERM end a measurement in the same way.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from rlbench.harness.processes.process import shared_memory_names

LOOK_EVERY_S = 0.5
LAST_CHARACTERS = 2000
"""Characters of a failed program's output that its error shows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """A program to measure."""

    name: str
    command: tuple[str, ...]
    folder: Path
    """Its working folder, which it may fill; the output goes there too."""
    count: Callable[[], int]
    """Env steps that its environments have taken so far, over all processes."""
    variables: Mapping[str, str]
    """Environment variables that it gets in addition to ours."""
    ends_by_itself: bool = False
    """Whether it gets time to end by itself after the window."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """How long a program runs."""

    warmup_s: float = 30.0
    """Seconds from the first env step that are not counted."""
    window_s: float = 60.0
    """Seconds of the window after that; the figure is the env steps in it, divided by its length."""
    start_limit_s: float = 180.0
    """Most seconds until the first env step."""
    end_limit_s: float = 60.0
    """Most seconds until a program that ends by itself has ended, after the window."""


class Family:
    """A running program and all its descendants that were ever seen."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._log = program.folder / "output.txt"
        with self._log.open("wb") as out:
            self._child = subprocess.Popen(
                program.command,
                cwd=program.folder,
                env={**os.environ, **program.variables},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._members = {psutil.Process(self._child.pid)}
        self._shared: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()

    @property
    def is_running(self) -> bool:
        """Whether the program itself, not just a descendant, is there."""
        return self._child.poll() is None

    def look(self) -> None:
        """Notes the descendants of all members, and the shared memory that they have mapped."""
        for member in tuple(self._members):
            with suppress(psutil.Error):
                self._members.update(member.children(recursive=True))
        for member in self._members:
            with suppress(OSError):  # it has ended
                self._shared.update(shared_memory_names(member.pid))

    def check(self) -> None:
        """Raises RuntimeError with the end of the output when the program has ended."""
        if not self.is_running:
            raise RuntimeError(f"{self._program.name} {self._how('ended')}")

    def stay(self, seconds: float) -> None:
        """Waits `seconds`; raises RuntimeError when the program ends meanwhile."""
        self.look()
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(seconds)
        self.check()

    def wait(self, limit_s: float) -> None:
        """Waits until the program has ended; raises RuntimeError if it fails, or does not end in `limit_s`."""
        self.look()
        try:
            code = self._child.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{self._program.name} {self._how(f'did not end within {limit_s:g} s')}") from None
        if code:
            raise RuntimeError(f"{self._program.name} {self._how(f'ended with code {code}')}")

    def _how(self, what: str) -> str:
        text = self._log.read_text(encoding="utf-8", errors="replace")
        return f"{what}; the end of its output:\n{text[-LAST_CHARACTERS:]}"

    def kill(self) -> None:
        """Kills whatever is left of the family, and waits until it is gone."""
        self.look()
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        for member in self._members:  # psutil does not kill a stranger that has the number by now
            with suppress(psutil.Error):
                member.kill()
        self._child.wait()
        psutil.wait_procs(list(self._members), timeout=10)
        for path in self._shared:
            Path(path).unlink(missing_ok=True)


def steps_per_s(program: Program, timing: Timing) -> float:
    """Runs the program; returns env steps per second of the window. Raises RuntimeError when it fails."""
    with Family(program) as family:
        deadline = time.monotonic() + timing.start_limit_s
        while program.count() == 0:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{program.name}: no env step in {timing.start_limit_s:g} s")
            family.stay(LOOK_EVERY_S)
        family.stay(timing.warmup_s)
        count, begin = program.count(), time.perf_counter()
        family.stay(timing.window_s)
        steps, seconds = program.count() - count, time.perf_counter() - begin
        if program.ends_by_itself:
            family.wait(timing.end_limit_s)
    return steps / seconds


def prepare(num_cores: int) -> Sequence[int]:
    """Keeps this process and all that it starts on the first `num_cores` cores; makes SIGTERM act like Ctrl-C.

    Returns the cores. Raises ValueError when there are fewer.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < num_cores:
        raise ValueError(f"--cores {num_cores}: this process may use {len(cores)}; ask for fewer")
    os.sched_setaffinity(0, cores[:num_cores])
    return cores[:num_cores]
