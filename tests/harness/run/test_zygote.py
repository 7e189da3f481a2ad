"""The process that runs are forked from: what it is good for, and what happens when it dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.harness.command import QUICK, launch
from tests.harness.runs import FAULTY_SWEEP, ZYGOTE, RunningSweep, has_ended, wait_until

TAGS = ("a", "b", "c")
KILLED_IN = 2
THREADS = """
import threading, time
threading.Thread(target=lambda: time.sleep(1e6), daemon=True).start()
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Swept:
    """A sweep whose zygote was killed while its second run went on."""

    records: list[dict[str, Any]]
    exit_code: int
    left: list[psutil.Process]
    zygotes: list[list[psutil.Process]]
    """There were these while each cell collected."""
    stderr: str


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swept]:
    """Three cells; the zygote is killed in the second."""
    folder = tmp_path_factory.mktemp("zygote")
    scenarios = ",".join(f"faulty/patient:tag={tag}" for tag in TAGS)
    zygotes = []
    with RunningSweep(folder, *FAULTY_SWEEP, "--scenario", scenarios) as sweep:
        for number, tag in enumerate(TAGS, start=1):
            sweep.wait_collecting(number)
            zygotes.append(sweep.of_module(ZYGOTE))
            if number == KILLED_IN:
                (zygote,) = zygotes[-1]
                _kill(zygote)
            sweep.release(tag)
        exit_code = sweep.end(len(TAGS))
        records = [sweep.runs(number)[0] for number in range(1, 1 + len(TAGS))]
        yield Swept(records=records, exit_code=exit_code, left=sweep.processes(), zygotes=zygotes, stderr=sweep.stderr)


def _kill(zygote: psutil.Process) -> None:
    zygote.kill()
    wait_until(lambda: has_ended(zygote), "it is dead")


def test_runs_do_not_need_it_once_they_go_on(swept: Swept) -> None:
    """`kill -9` of the zygote: the run that goes on is finished, and the next one is forked from another."""
    assert [record["status"] for record in swept.records] == ["finished"] * len(TAGS)
    (another,) = swept.zygotes[KILLED_IN]
    assert another not in swept.zygotes[KILLED_IN - 1]
    assert (swept.exit_code, swept.left) == (0, [])
    assert "Traceback" not in swept.stderr


def test_it_is_one_for_all_runs(swept: Swept) -> None:
    """Cell after cell has the same one."""
    (first,) = swept.zygotes[0]
    assert swept.zygotes[1] == [first]


def test_it_ends_with_the_command(tmp_path: Path) -> None:
    """`kill -9` of the command ends it while it imports; once it has imported, `faults/test_interrupt.py` sees that."""
    with RunningSweep(tmp_path, *FAULTY_SWEEP, "--scenario", "faulty/patient") as starting:
        wait_until(lambda: starting.of_module(ZYGOTE), "it imports")
        starting.process.kill()
        wait_until(lambda: not starting.processes(), "all have ended")


def test_an_interrupt_while_it_imports_ends_the_command(tmp_path: Path) -> None:
    """Ctrl-C and SIGTERM are not waited out: exit code 130, and nothing is left."""
    with RunningSweep(tmp_path, *FAULTY_SWEEP, "--scenario", "faulty/patient") as sweep:
        wait_until(lambda: sweep.of_module(ZYGOTE), "it imports")
        (zygote,) = sweep.of_module(ZYGOTE)
        zygote.suspend()
        wait_until(lambda: ": loading libraries" in sweep.stderr, "the sweep begins")
        sweep.process.send_signal(signal.SIGTERM)
        assert sweep.end() == 130
        assert (sweep.processes(), sweep.files_left()) == ([], [])


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What a process sees of its zygotes, of which one dies, by what was done."""
    folder = tmp_path_factory.mktemp("said")
    (folder / "starts_threads.py").write_text(THREADS)
    code = """
import os, signal
from pathlib import Path
from rlbench.harness.run import zygote_client
first = zygote_client.living()
pid = first._process.pid
os.kill(pid, signal.SIGSTOP)
try:
    first.prepare(["json"], lambda: os.kill(pid, signal.SIGKILL))
except zygote_client.ZygoteDied as died:
    print("died:", died)
second = zygote_client.living()
print("again:", second is first, second.prepare(["json"], lambda: False), zygote_client.living() is second)
print("loaded:", os.read(second._loaded, 1))
plain = second.prepare(["starts_threads"], lambda: False)
words = Path(f"/proc/{second._process.pid}/cmdline").read_text().split(chr(0))
print("threads:", plain, second.is_usable, "plain" in words)
print("threads again:", second.prepare(["starts_threads"], lambda: False), zygote_client.living() is second)
os.environ["ANOTHER"] = "environment"
print("other:", zygote_client.living()._environment["ANOTHER"])
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    lines = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True, timeout=120).splitlines()
    return {what: rest.strip() for what, _, rest in (line.partition(":") for line in lines)}


def test_one_that_dies_while_it_is_waited_for(said: dict[str, str]) -> None:
    """Whoever waits is told what died, and by what; the next one that asks has another.

    Once torch's libraries are loaded, nobody waits for them.
    """
    assert said["died"] == "the process that keepers are forked from was killed by SIGKILL"
    assert (said["again"], said["loaded"], said["other"]) == ("False True True", "b''", "environment")


def test_what_starts_threads_is_imported_by_each_rank(tmp_path: Path) -> None:
    """A module that starts a thread when it is imported makes the zygote begin anew without it; runs are the same."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import sys\nif 'rlbench.harness.run.zygote' in sys.orig_argv and 'plain' not in sys.orig_argv:\n    "
        + THREADS.strip().replace("\n", "\n    ")
        + "\n"
    )
    options = ("--systems", "sync", "--iterations", "1", "--out", "runs")
    done = launch("run", *options, *QUICK, folder=tmp_path, environment={"PYTHONPATH": str(tmp_path / "site")})
    assert done.code == 0, done.out + done.err
    assert ": finished" in done.err


def test_a_module_that_starts_threads_when_it_is_asked_for(said: dict[str, str]) -> None:
    """The zygote begins anew, answers all the same, and is the same process."""
    assert said["threads"].split() == ["True"] * 3
    assert said["threads again"].split() == ["True"] * 2


def test_a_usage_error_leaves_no_process(tmp_path: Path) -> None:
    """It was started before the options were read, and dies with the command."""
    mark = {"ZYGOTE_TEST": os.fspath(tmp_path)}
    done = launch("run", "--systems", "nope", folder=tmp_path, environment=mark)
    assert done.code == 2
    left = []
    for one in psutil.process_iter():
        with suppress(psutil.Error):
            left += [one] if one.environ().get("ZYGOTE_TEST") == mark["ZYGOTE_TEST"] else []
    assert left == []


def test_environments_of_ranks_draw_other_numbers() -> None:
    """Numpy's own generator, which what is forked would share, is seeded anew in each process."""
    code = (
        "from rlbench.harness.run.zygote import _seed_anew_when_forked; "
        "from rlbench.harness.processes.forked import fork; "
        "import numpy as np; np.random.rand(); "
        "_seed_anew_when_forked(); "
        "[fork(lambda: print(np.random.rand()) or 0).wait() for _ in range(3)]"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60).stdout
    assert len(set(said.split())) == 3
