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

from tests.harness.command import launch
from tests.harness.runs import FAULTY_SWEEP, ZYGOTE, RunningSweep, wait_until

THREADS = """
import threading, time
threading.Thread(target=lambda: time.sleep(1e6), daemon=True).start()
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Swept:
    """A sweep whose zygote was killed while its first run went on."""

    records: list[dict[str, Any]]
    exit_code: int
    left: list[psutil.Process]
    others: list[psutil.Process]
    """Zygotes that there were in the second run."""
    stderr: str


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swept]:
    """Two cells; the zygote is killed in the first."""
    folder = tmp_path_factory.mktemp("zygote")
    scenarios = "faulty/patient:tag=a,faulty/patient:tag=b"
    with RunningSweep(folder, *FAULTY_SWEEP, "--gpus", "2", "--scenario", scenarios) as sweep:
        sweep.wait_collecting(1, 2)
        (zygote,) = sweep.of_module(ZYGOTE)
        zygote.kill()
        wait_until(lambda: zygote.status() == psutil.STATUS_ZOMBIE or not zygote.is_running(), "it is dead")
        sweep.release("a")
        sweep.wait_collecting(2, 2)
        others = sweep.of_module(ZYGOTE)
        sweep.release("b")
        exit_code = sweep.end(2)
        records = [sweep.runs(number)[0] for number in (1, 2)]
        yield Swept(records=records, exit_code=exit_code, left=sweep.processes(), others=others, stderr=sweep.stderr)


def test_runs_do_not_need_it_once_they_go_on(swept: Swept) -> None:
    """`kill -9` of the zygote: the run that goes on is finished, and the next one is forked from another."""
    assert [record["status"] for record in swept.records] == ["finished", "finished"]
    assert len(swept.others) == 1
    assert (swept.exit_code, swept.left) == (0, [])
    assert "Traceback" not in swept.stderr


def test_it_is_one_for_all_runs_and_ends_with_the_command(tmp_path: Path) -> None:
    """Cell after cell has the same one; `kill -9` of the command ends it, while it imports too."""
    with RunningSweep(tmp_path, *FAULTY_SWEEP, "--scenario", "faulty/patient:tag=a,faulty/patient:tag=b") as sweep:
        wait_until(lambda: sweep.of_module(ZYGOTE), "it is there")
        (first,) = sweep.of_module(ZYGOTE)
        sweep.wait_collecting(1)
        sweep.release("a")
        sweep.wait_collecting(2)
        assert sweep.of_module(ZYGOTE) == [first]
        sweep.process.kill()
        wait_until(lambda: not sweep.processes(), "all have ended")
    with RunningSweep(tmp_path, *FAULTY_SWEEP, "--scenario", "faulty/patient") as starting:
        wait_until(lambda: starting.of_module(ZYGOTE), "it imports")
        starting.process.kill()
        wait_until(lambda: not starting.processes(), "all have ended")


def test_an_interrupt_while_it_imports_ends_the_command(tmp_path: Path) -> None:
    """Ctrl-C and SIGTERM are not waited out: exit code 130, and nothing is left."""
    with RunningSweep(tmp_path, *FAULTY_SWEEP, "--scenario", "faulty/patient") as sweep:
        wait_until(lambda: sweep.partial(1), "the first run begins")
        (zygote,) = sweep.of_module(ZYGOTE)
        zygote.send_signal(signal.SIGSTOP)
        sweep.process.send_signal(signal.SIGTERM)
        assert sweep.end() == 130
        assert (sweep.processes(), sweep.files_left()) == ([], [])


def test_a_killed_one_fails_the_run_that_waits_for_it(tmp_path: Path) -> None:
    """The run that has no keeper yet is failed and says what died; the next cell is run."""
    options = (*FAULTY_SWEEP, "--scenario", "faulty/patient:tag=a,faulty/patient:tag=b")
    with RunningSweep(tmp_path, *options) as sweep:
        wait_until(lambda: sweep.partial(1), "the first run begins")
        for zygote in sweep.of_module(ZYGOTE):
            zygote.send_signal(signal.SIGSTOP)
        wait_until(lambda: _waits(sweep), "the command waits for it")
        for zygote in sweep.of_module(ZYGOTE):
            with suppress(psutil.NoSuchProcess):
                zygote.kill()
        record = sweep.wait_published(1)
        sweep.release("b")
        assert sweep.end(2) == 1
        assert record["status"] == "failed"
        assert "the process that keepers are forked from was killed by SIGKILL" in record["reason"]
        assert sweep.runs(2)[0]["status"] == "finished"
        assert (sweep.processes(), sweep.files_left()) == ([], [])


def _waits(sweep: RunningSweep) -> bool:
    """Whether a request lies in the zygote's socket: its keeper's stdin and stderr are open in the command."""
    return any("keeper.err" in each.path for each in psutil.Process(sweep.process.pid).open_files())


def test_what_starts_threads_is_imported_by_each_rank(tmp_path: Path) -> None:
    """A module that starts a thread when it is imported makes the zygote begin anew without it; runs are the same."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import sys\nif 'harness.zygote' in sys.orig_argv and 'plain' not in sys.orig_argv:\n    "
        + THREADS.strip().replace("\n", "\n    ")
        + "\n"
    )
    options = ("--systems", "sync", "--device", "cpu", "--gpus", "2", "--iterations", "1", "--out", "runs")
    done = launch("run", *options, folder=tmp_path, environment={"PYTHONPATH": str(tmp_path / "site")})
    assert done.code == 0, done.out + done.err
    assert "finished" in done.out


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
        "from harness.zygote.__main__ import _seed_anew_when_forked; from harness.forked import fork; import numpy as np; np.random.rand(); "
        "_seed_anew_when_forked(); "
        "[fork(lambda: print(np.random.rand()) or 0).wait() for _ in range(3)]"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60).stdout
    assert len(set(said.split())) == 3
