"""Runs commands of `rlbench` in forks of a process that has imported all they need: some milliseconds each.

The process reads one request per line from its standard input, and answers each with a line; both are JSON. A command
runs in a session of its own, with the standard streams, folder and variables that it was asked to have. It is killed
when it is not over in time, after it has said where it hangs. Whatever it leaves running becomes a child of this
process, which looks for it, names it, and kills it.
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import importlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil

from rlbench.harness.cli.main import main
from rlbench.harness.cluster import slurm
from rlbench.harness.processes import process
from tests.fuzz.canary.words import SLOW_S

ROOT = Path(__file__).resolve().parents[3]
PRELOADED = (
    *(
        "rlbench.harness.commands.run",
        "rlbench.harness.commands.doctor",
        "rlbench.harness.commands.evaluate",
        "rlbench.harness.commands.gate.command",
        "rlbench.harness.commands.listing",
    ),
    *(
        "rlbench.harness.commands.predict.command",
        "rlbench.harness.commands.profile.command",
        "rlbench.harness.commands.read_runs",
        "rlbench.harness.commands.reproduce.command",
    ),
    *(
        "rlbench.harness.cluster.slurm",
        "rlbench.harness.run.runner",
        "rlbench.reports.terminal.compared",
        "rlbench.reports.terminal.history",
        "rlbench.reports.page.html",
    ),
    *(
        "rlbench.reports.exports.markdown",
        "rlbench.reports.page.timeline",
        "rlbench.results.verdicts.compare",
        "rlbench.results.verdicts.gate",
        "rlbench.results.verdicts.history",
    ),
    *(
        "rlbench.results.summary.summarise",
        "pandas",
        "pyarrow.parquet",
        "torch",
        "rich.progress",
        "rlbench.systems.engine.rank.evaluate",
    ),
)
EXECUTE = "--execute"
"""Stands for `rlbench`'s own words: the next word is Python, to see that a fault is seen."""
LEFT_S = 5.0
"""Processes that a command has started end within so long after it."""
MOST_BYTES = 2**34
POLL_S, LOOK_S = 0.01, 0.5
STILL_S = 30.0
"""A command that has not worked for so long waits for something that never comes, if it has nothing running."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """How a command ended."""

    code: int
    """Its exit code; less the number of the signal that killed it."""
    hung: bool
    left: list[str]
    """Processes that it has left, by their command lines."""
    seconds: float
    out: str
    err: str


class Forks:
    """The process, from outside; use it as a context."""

    def __init__(self, folder: Path) -> None:
        """`folder` has what the commands print."""
        self._out, self._err = folder / "stdout", folder / "stderr"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.communicate()  # its input ends

    def run(self, words: list[str], folder: Path, variables: dict[str, str], limit_s: float) -> Ended:
        """Runs a command to its end, or for `limit_s` at most."""
        if self._process is None:
            module = "tests.fuzz.canary.forks"
            self._process = subprocess.Popen(
                [sys.executable, "-m", module], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        streams = {"out": str(self._out), "err": str(self._err)}
        asked = {"words": words, "folder": str(folder), "variables": variables, "limit_s": limit_s, **streams}
        stdin.write(json.dumps(asked).encode() + b"\n")
        stdin.flush()
        line = stdout.readline()
        assert line, f"the process that forks has ended: {self._process.wait()}"
        texts = {name: Path(path).read_bytes().decode("utf-8", "backslashreplace") for name, path in streams.items()}
        told: dict[str, Any] = json.loads(line)
        return Ended(**(told | texts))


def _serve() -> None:
    """Answers until there are no more requests."""
    for module in PRELOADED:
        importlib.import_module(module)
    _compile()
    gc.freeze()  # else each fork has all of it copied when it looks for garbage
    process.adopt_orphans()
    answers = os.fdopen(os.dup(1), "w")
    while line := sys.stdin.buffer.readline():
        answers.write(json.dumps(_run(json.loads(line))) + "\n")
        answers.flush()


def _compile() -> None:
    """Has numba compile what predictions need, which takes longer than any command."""
    from rlbench.harness.predicting.options import PredictOptions
    from rlbench.harness.predicting.planning import plan_predictions, predict_cell

    systems, workload = "sync,ver", "homogeneous,heterogeneous"
    cells, _ = plan_predictions(PredictOptions(systems=systems, gpus="1,2", workload=workload, iterations=2))
    for cell in cells:
        predict_cell(cell)


def _run(asked: dict[str, Any]) -> dict[str, Any]:
    began = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        _become(asked)
    descriptor = os.pidfd_open(pid)
    hung = not _ends(pid, descriptor, asked["limit_s"])
    if hung:
        os.kill(pid, signal.SIGKILL)
    os.close(descriptor)
    _, status = os.waitpid(pid, 0)
    seconds = time.perf_counter() - began
    left = _end_left()
    return {
        "code": os.waitstatus_to_exitcode(status),
        "hung": hung,
        "left": [] if hung else left,
        "seconds": seconds,
    }


def _ends(pid: int, descriptor: int, limit_s: float) -> bool:
    """Waits for the end of a process; False for one that stands still for `STILL_S`, or takes longer than `limit_s`."""
    began = since = time.monotonic()
    worked = 0.0
    while not select.select([descriptor], [], [], LOOK_S)[0]:
        times, now = psutil.Process(pid).cpu_times(), time.monotonic()
        if sum(times) > worked:
            worked, since = sum(times), now
        if now > began + limit_s or (now > since + STILL_S and limit_s < SLOW_S):
            os.kill(pid, signal.SIGUSR1)
            select.select([descriptor], [], [], LOOK_S)
            return False
    return True


def _end_left() -> list[str]:
    """Waits for what a command has left to end; what does not is named, and killed."""
    deadline, named = time.monotonic() + LEFT_S, list[str]()
    with suppress(ChildProcessError):  # there is none any more
        while True:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                time.sleep(POLL_S)
                if time.monotonic() > deadline:
                    for child in psutil.Process().children(recursive=True):
                        with suppress(psutil.Error):
                            named.append(" ".join(child.cmdline()) or child.name())
                            child.kill()
    return named


def _become(asked: dict[str, Any]) -> None:
    """Is a command, from here on."""
    code: object = 1
    try:
        os.setsid()
        for number, (path, how) in enumerate(
            [
                (os.devnull, os.O_RDONLY),
                *((asked[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC) for name in ("out", "err")),
            ]
        ):
            opened = os.open(path, how, 0o644)
            os.dup2(opened, number)
            os.close(opened)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", errors="backslashreplace")  # noqa: SIM115
        os.chdir(asked["folder"])
        os.environ.clear()
        os.environ.update(asked["variables"])
        tempfile.tempdir = None  # it was another folder for the process that forks
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
        slurm.POLL_S = 0.05
        faulthandler.register(signal.SIGUSR1, file=2)  # says where it hangs
        words: list[str] = asked["words"]
        sys.argv = ["rlbench", *words]
        if words[:1] == [EXECUTE]:
            exec(words[1])  # noqa: S102
            code = 0
        else:
            main()
    except SystemExit as end:
        code = end.code or 0
    except BaseException:  # noqa: BLE001  as Python would
        traceback.print_exc()
    try:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    _serve()
