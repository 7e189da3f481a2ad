from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

import pytest

from rlbench.systems.engine.workers import background
from rlbench.systems.engine.workers.background import Background
from tests.systems.engine.ranks import LIMIT_S, ROOT


def fail() -> None:
    """What the thread does wrong."""
    raise LookupError("no map in the thread")


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the main thread is that of the tests, which may notice a failure late; else its process would end."""
    monkeypatch.setattr(background, "NOTICE_S", LIMIT_S)


def test_join_waits_for_the_end(tmp_path: Path) -> None:
    """Join returns when the work is done, and not before; nothing is left behind."""
    go_on, done = threading.Event(), []

    def work() -> None:
        assert go_on.wait(LIMIT_S)
        done.append(threading.current_thread().name)

    running = Background("worker", work, lambda: done.append("failed"), tmp_path / "error.json")
    running.check()
    assert done == []
    go_on.set()
    running.join()
    assert done == ["worker"]
    assert list(tmp_path.iterdir()) == []


def test_an_exception_is_raised_in_join_with_its_traceback(tmp_path: Path) -> None:
    """The main thread gets the thread's own exception, down to the line that raised; `on_failure` is called."""
    freed = threading.Event()
    running = Background("worker", fail, freed.set, tmp_path / "error.json")
    with pytest.raises(LookupError, match="no map in the thread") as raised:
        running.join()
    assert freed.wait(LIMIT_S)
    assert "in fail" in "".join(traceback.format_exception(raised.value))
    assert not (tmp_path / "error.json").exists()


def test_an_exception_is_raised_in_check(tmp_path: Path) -> None:
    """Who does not wait, but looks, hears of it too; what `on_failure` frees may look at once."""
    freed = threading.Event()
    running = Background("worker", fail, freed.set, tmp_path / "error.json")
    assert freed.wait(LIMIT_S)
    with pytest.raises(LookupError, match="no map in the thread"):
        running.check()


def hang(folder: str) -> None:
    """In a process of its own: the thread fails while the main one is in a C call that nothing frees."""
    background.NOTICE_S = 0.2
    freed = Path(folder, "freed")
    Background("worker", fail, freed.touch, Path(folder, "error.json"))
    time.sleep(1e6)


def test_a_main_thread_that_cannot_notice_ends_with_the_error_left(tmp_path: Path) -> None:
    """The process ends with code 1; the error with its traceback is in the folder and on stderr."""
    command = [sys.executable, "-c", f"from {__name__} import hang; hang({str(tmp_path)!r})"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert ended.returncode == 1, ended.stderr
    assert "no map in the thread" in ended.stderr
    assert (tmp_path / "freed").exists()
    left = json.loads((tmp_path / "error.json").read_text())
    assert "LookupError" in left["error"]
    assert "in fail" in left["traceback"]


def end_early(folder: str) -> None:
    """In a process of its own: the main thread ends while the other one works on."""
    never = threading.Event()
    Background("worker", lambda: print(never.wait()), lambda: None, Path(folder, "error.json"))  # noqa: T201


def test_it_keeps_no_process_alive(tmp_path: Path) -> None:
    """A process whose main thread has ended ends, whatever the thread does."""
    command = [sys.executable, "-c", f"from {__name__} import end_early; end_early({str(tmp_path)!r})"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
