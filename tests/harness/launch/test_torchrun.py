from __future__ import annotations

from pathlib import Path

import pytest

from rlbench.harness.launch.torchrun import OUTPUT, first_failure


def test_what_torchrun_says_of_the_first_failure(tmp_path: Path) -> None:
    """Its report names the rank and how it ended; without one nothing is known."""
    assert first_failure(tmp_path) == {}
    report = """
Failures:
[1]:
  rank      : 3 (local_rank: 1)
  exitcode  : -15 (pid: 8)
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-22_22:41:41
  host      : b
  rank      : 2 (local_rank: 0)
  exitcode  : -9 (pid: 7)
"""
    (tmp_path / OUTPUT).write_text(report)
    assert first_failure(tmp_path) == {2: -9}


@pytest.mark.parametrize(
    ("said", "first"),
    [
        ("", {0: -9}),
        ("W Unable to shutdown process 5 via Signals.SIGTERM, forcefully exiting via Signals.SIGKILL\n", {1: 1}),
    ],
)
def test_a_rank_that_was_killed_comes_before_one_that_raised(tmp_path: Path, said: str, first: dict[int, int]) -> None:
    """Torchrun may hear of it later than of a rank that has lost its connection; what it killed itself came later."""
    report = """
Failures:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : -9 (pid: 5)  (SIGKILL)
[2]:
  rank      : 2 (local_rank: 2)
  exitcode  : -15 (pid: 7)  (SIGTERM)
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 6)
"""
    (tmp_path / OUTPUT).write_text(said + report)
    assert first_failure(tmp_path) == first
