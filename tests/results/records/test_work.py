"""What environments of still work did, and whether two runs did the same."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from rlbench.results.records.work import WORK_FILE, Compared, Work, compare_work, read_work

ONE: Work = {(0,): {1: 10, 2: 20, 3: 30}, (1,): {1: 11, 2: 21}}


def test_environments_are_compared_at_their_last_common_mark() -> None:
    """Steps that only one run has made do not count."""
    longer: Work = {(0,): {1: 10, 2: 20, 3: 30, 4: 40}, (1,): {1: 11}, (2,): {1: 12}}
    assert compare_work(ONE, longer) == Compared(num_same=2, different=[], least_steps=1)


def test_what_differs_is_named() -> None:
    """By the environment's number."""
    other: Work = {(0,): {1: 10, 2: 20, 3: 31}, (1,): {1: 11, 2: 21}}
    assert compare_work(ONE, other) == Compared(num_same=1, different=[(0,)], least_steps=2)


def test_without_a_common_mark_nothing_is_said() -> None:
    """Nor where one of them did no still work."""
    assert compare_work(ONE, {}) is None
    assert compare_work(ONE, {(0,): {8: 1}}) is None


def test_a_run_is_read_back(tmp_path: Path) -> None:
    """Agents have a number of their own; a run without the file did no still work."""
    assert read_work(tmp_path) == {}
    rows = {"environment": [0, 0, 1], "agent": [0, 0, 1], "env_steps": [1, 2, 1], "hash": [5, 10**15, 7]}
    pd.DataFrame(rows).to_parquet(tmp_path / WORK_FILE)
    assert read_work(tmp_path) == {(0, 0): {1: 5, 2: 10**15}, (1, 1): {1: 7}}


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    """Whoever wrote it."""
    (tmp_path / WORK_FILE).write_text("no table")
    with pytest.raises(ValueError, match=f"{WORK_FILE}: "):
        read_work(tmp_path)
