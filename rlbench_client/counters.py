"""The files in which a trainer's processes count, mapped into memory.

Each process writes one file for each environment that it steps, and one for what it reports (`reports.py`); a file has
one writer. A forked process makes its own files at its first step or report. rlbench reads, several times a second.
Nothing blocks. A word is 8 aligned bytes, so a reader sees it whole, and a killed process leaves what it had counted. A
file appears whole, by a rename, and its space is allocated before: a full disk is an error at that moment and not a
SIGBUS later.

Layout, in words: `HEADER`, `INTS` (int64), `FLOATS` (float64), seconds for each kind of span (`SPANS`), and the latest
episodes in a ring (`EPISODE`, float64). The ring has one place more than is read, for the episode that is being
written. Times are `time.perf_counter()`, which all processes of a machine share on Linux.
"""

from __future__ import annotations

import mmap
import os
import uuid

FOLDER_VARIABLE = "RLBENCH_COUNTERS"
"""Environment variable that names the folder of the files; a process without it counts nothing."""
SUFFIX = ".counters"
MAGIC = 0x3131_544E_4C52
HEADER = ("magic", "rank", "pid", "num_envs")
"""`rank` is -1 where the process has no variable `RANK`; `num_envs` is 0 in a file of reports."""
INTS = (
    "env_steps",
    "frames",
    "episodes",
    "learned",
    "reused",
    "discarded",
    "in_flight",
    "iterations",
    "lag_sum",
    "lag_max",
    "reported",
)
FLOATS = ("step_s", "reset_s", "began_at", "answered_at")
"""Seconds in steps and in resets; when the first reset or step began, and when the latest ended."""
SPANS = (
    "other",
    "simulate",
    "infer",
    "learn",
    "communicate",
    "reset",
    "wait:straggler",
    "wait:learner",
    "wait:inference",
    "wait:rollout",
    "schedule",
)
EPISODE = ("end_s", "return", "length", "frames", "success", "spl")
NUM_EPISODES = 256
"""Episodes of a file that a reader can see; older ones stay counted, but their returns are lost."""
REPORTED = ("learned", "reused", "discarded", "in_flight", "lag_sum", "iterations")
"""What a trainer may report, in the order of the bits of `reported`; the first report of each sets its bit."""

AT = {name: at for at, name in enumerate((*HEADER, *INTS, *FLOATS))}
"""The word of each counter."""
SPANS_AT = len(AT)
EPISODES_AT = SPANS_AT + len(SPANS)
NUM_WORDS = EPISODES_AT + (NUM_EPISODES + 1) * len(EPISODE)
SIZE = 8 * NUM_WORDS


def folder() -> str | None:
    """The folder where this process counts; None where it is not under rlbench."""
    return os.environ.get(FOLDER_VARIABLE)


class CounterFile:
    """A file of this process; `ints` and `floats` are views of the same words."""

    def __init__(self, num_envs: int) -> None:
        where = folder()
        assert where is not None
        name = f"{os.getpid()}-{uuid.uuid4().hex}"
        unfinished = os.path.join(where, f".{name}")  # noqa: PTH118  this module is imported by every worker
        descriptor = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            os.posix_fallocate(descriptor, 0, SIZE)
            memory = mmap.mmap(descriptor, SIZE)
        finally:
            os.close(descriptor)
        self.ints = memoryview(memory).cast("q")
        self.floats = memoryview(memory).cast("d")
        rank = os.environ.get("RANK", "")
        self.ints[: len(HEADER)] = memoryview(_header(int(rank) if rank.isdigit() else -1, num_envs)).cast("q")
        os.rename(unfinished, os.path.join(where, name + SUFFIX))  # noqa: PTH104, PTH118

    def put_episode(self, values: tuple[float, ...]) -> None:
        """Records an episode, in the order of `EPISODE`, and counts it after that."""
        number = self.ints[AT["episodes"]]
        at = EPISODES_AT + len(EPISODE) * (number % (NUM_EPISODES + 1))
        for offset, value in enumerate(values):
            self.floats[at + offset] = value
        self.ints[AT["episodes"]] = number + 1


def _header(rank: int, num_envs: int) -> bytes:
    return b"".join(value.to_bytes(8, "little", signed=True) for value in (MAGIC, rank, os.getpid(), num_envs))
