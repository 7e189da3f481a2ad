"""`live.json` in the folder of a sweep: how far the sweep is, while somebody runs it.

Who writes: the runner. It writes the file before the plan (`harness/run/sweep.py`), then once a second
(`harness/live/live_file.py`), and removes it when the sweep is over; on `--resume`, as soon as it has the sweep's lock.
So nobody runs a sweep that has a plan and no such file. Who reads: `rlbench watch` and `rlbench report --live`, in any
shell or on any machine that has the folder; what they read may be anybody's, so it is checked, and bounded.

What happens on a death: a runner that is killed leaves the file. Whoever reads it on the same machine sees that the
process is gone; on another one, that `beat` no longer changes. `--resume` replaces it. A runner that is killed between
this file and its plan leaves no sweep.
"""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rlbench.results.reading.untrusted import MIB, parse_json, read_text
from rlbench.results.records import store

LIVE_FILE = "live.json"
LIVE_BYTES = MIB
MOST_RUNNING = 100
"""Running cells that are written, at most: a sweep of Slurm jobs may have thousands."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
NAMESPACE = Path("/proc/self/ns/pid")
START_TIME = 19
"""Place of a process's start in `/proc/PID/stat`, counted behind its name."""


class _Told(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Writer(_Told):
    """The process that writes the file."""

    host: str
    pid: int
    started: int
    """When it began, in ticks since the machine did: process numbers are used again."""
    boot: str
    """Of the machine's kernel, since it began."""
    namespace: str
    """That of the process number: containers have their own."""

    @classmethod
    def me(cls) -> Self:
        """This process."""
        pid = os.getpid()
        return cls(host=socket.gethostname(), pid=pid, started=_started(pid) or 0, boot=_boot(), namespace=_namespace())

    @property
    def lives(self) -> bool | None:
        """Whether the process is there; None where that cannot be told, because it is on another machine."""
        if not self.boot or (self.boot, self.namespace) != (_boot(), _namespace()):
            return None
        return _started(self.pid) == self.started


class RunningCell(_Told):
    """How far a running cell is."""

    number: int = Field(ge=1)
    """Its place in the plan, from 1."""
    label: str
    phase: str
    iterations: int = Field(ge=0)
    env_steps: int = Field(ge=0)
    """Agent steps, where environments have several agents."""
    joint_steps: int = Field(ge=0)
    """Env steps where environments have several agents; else 0."""
    steps_per_s: float
    joint_steps_per_s: float
    fraction: float = Field(ge=0, le=1)
    """Share of its budget that is spent."""
    elapsed_s: float
    left_s: float | None
    """By its own progress."""


class LiveSweep(_Told):
    """How far a sweep is."""

    version: Literal[1] = 1
    writer: Writer
    beat: int = 0
    """Goes up each time that the file is written."""
    phase: Literal["starts", "runs"] = "runs"
    """`starts`: before the first cell, while the runner looks at the machine, or submits jobs."""
    num_cells: int = Field(ge=0)
    num_ended: int = Field(ge=0)
    """Cells that have ended, in whatever way."""
    num_failed: int = Field(ge=0)
    """Those of them that did not finish."""
    running: tuple[RunningCell, ...] = Field(max_length=MOST_RUNNING)
    num_running: int = Field(ge=0)
    num_waiting: int | None = None
    """Slurm jobs that wait; None for a sweep without."""
    left_s: float | None = None
    left_is_at_most: bool = False

    @classmethod
    def begins(cls, num_cells: int, num_ended: int = 0) -> Self:
        """Of a sweep that this process is about to run."""
        return cls(
            writer=Writer.me(),
            phase="starts",
            num_cells=num_cells,
            num_ended=num_ended,
            num_failed=0,
            running=(),
            num_running=0,
        )


def write_live(folder: Path, live: LiveSweep) -> None:
    """Writes, or replaces, how far the sweep in a folder is. Raises OSError."""
    store.write_whole(folder / LIVE_FILE, live.model_dump_json())


def read_live(folder: Path) -> LiveSweep | None:
    """How far the sweep in a folder is, as its runner wrote last; None where nobody has. Raises ValueError."""
    path = folder / LIVE_FILE
    try:
        text = read_text(path, LIVE_BYTES)
    except ValueError as problem:
        if not os.path.lexists(path):
            return None
        raise ValueError(f"{path}: {problem}") from None
    try:
        return LiveSweep.model_validate_json(json.dumps(parse_json(text)))
    except ValidationError as problem:
        first = problem.errors()[0]
        what = f"{'.'.join(map(str, first['loc'])) or 'the document'}: {first['msg']}"
    except ValueError as problem:
        what = str(problem)
    raise ValueError(f"{path}: is damaged ({what})")


def _boot() -> str:
    with suppress(OSError):
        return BOOT_ID.read_text(encoding="ascii").strip()
    return ""


def _namespace() -> str:
    with suppress(OSError):
        return str(NAMESPACE.readlink())
    return ""


def _started(pid: int) -> int | None:
    """When a process began, in ticks; None if it is gone, or only waits to be taken away."""
    with suppress(OSError, ValueError, IndexError):
        state, *words = (
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        )
        return None if state in "ZX" else int(words[START_TIME - 1])
    return None
