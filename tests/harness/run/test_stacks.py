from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import pytest

from harness.processes import process
from harness.run import stacks
from tests.harness.runs import wait_until


class Clock:
    """Stands in for `time`: it moves when somebody sleeps, and something happens meanwhile."""

    def __init__(self, happens: Callable[[], object]) -> None:
        self.now_s, self._happens = 0.0, happens

    def monotonic(self) -> float:
        """Seconds."""
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Moves it."""
        self.now_s += seconds
        self._happens()


@pytest.mark.parametrize(("num_lines", "has_end"), [(5, True), (0, False), (1000, False)])
def test_a_stack_is_waited_for_to_its_last_line(
    num_lines: int, has_end: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It grows while one looks, a line each time; where there is no end of it, or no beginning, not for ever."""
    path, written = tmp_path / "stacks-rank0.txt", list[str]()
    path.touch()

    def write() -> None:
        if len(written) < num_lines:
            written.append("line\n")
            path.write_text("".join(written))

    clock = Clock(write)
    monkeypatch.setattr(process, "time", clock)
    process.await_stacks({path: lambda: False})
    assert len(written) == num_lines or not has_end
    assert (clock.now_s < process.ANSWER_S) == has_end
    assert clock.now_s < process.ANSWER_S + 0.05


def test_who_has_ended_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank's workers end with it, and leave no stack."""
    path, clock = tmp_path / "stacks-rank0-env0.txt", Clock(lambda: None)
    path.touch()
    monkeypatch.setattr(process, "time", clock)
    with subprocess.Popen(["true"]) as ended:
        one = psutil.Process(ended.pid)
        wait_until(lambda: one.status() == psutil.STATUS_ZOMBIE, "it has ended")
        process.await_stacks({path: partial(stacks._has_ended, one)})
    assert clock.now_s < 0.1
