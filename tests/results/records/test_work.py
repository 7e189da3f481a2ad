"""What environments of still work did, and whether two runs did the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rlbench.results.records.work import WORK_FILE, Compared, Work, compare_work, read_work


def work_of(marks: dict[tuple[int, ...], dict[int, int]]) -> Work:
    """What a run did: by place and number of steps, the hash."""
    rows = [(*place, steps, word) for place, of_place in marks.items() for steps, word in of_place.items()]
    return np.array(rows, np.int64).T


ONE = work_of({(0,): {1: 10, 2: 20, 3: 30}, (1,): {1: 11, 2: 21}})
NONE = np.empty((3, 0), np.int64)


def test_environments_are_compared_at_their_last_common_mark() -> None:
    """Steps that only one run has made do not count, nor does the order of the marks."""
    longer = work_of({(2,): {1: 12}, (1,): {1: 11}, (0,): {4: 40, 3: 30, 2: 2, 1: 10}})
    assert compare_work(ONE, longer) == Compared(num_same=2, different=[], least_steps=1)
    assert compare_work(longer, ONE) == Compared(num_same=2, different=[], least_steps=1)


def test_what_differs_is_named() -> None:
    """By the environment's number."""
    other = work_of({(0,): {1: 10, 2: 20, 3: 31}, (1,): {1: 11, 2: 21}})
    assert compare_work(ONE, other) == Compared(num_same=1, different=[(0,)], least_steps=2)


def test_agents_of_one_environment_are_compared_apart() -> None:
    """A run without agents has nothing in common with them."""
    agents = work_of({(0, 0): {1: 5, 2: 6}, (0, 1): {1: 7, 2: 8}, (1, 0): {2: 9}})
    other = work_of({(0, 0): {1: 5, 2: 6}, (0, 1): {1: 7, 2: 9}, (1, 0): {4: 9}})
    assert compare_work(agents, other) == Compared(num_same=1, different=[(0, 1)], least_steps=2)
    assert compare_work(agents, ONE) is None


def test_a_mark_that_a_file_has_twice_does_not_set_a_run_against_itself() -> None:
    """The last row counts, on both sides."""
    twice = np.array([[0, 0], [1, 1], [5, 6]])
    assert compare_work(twice, twice) == Compared(num_same=1, different=[], least_steps=1)
    assert compare_work(twice, work_of({(0,): {1: 6}})) == Compared(num_same=1, different=[], least_steps=1)


def test_without_a_common_mark_nothing_is_said() -> None:
    """Nor where one of them did no still work."""
    assert compare_work(ONE, NONE) is None
    assert compare_work(NONE, NONE) is None
    assert compare_work(ONE, work_of({(0,): {8: 1}})) is None


def test_a_run_is_read_back(tmp_path: Path) -> None:
    """Agents have a number of their own; a run without the file, or without rows in it, did no still work."""
    assert read_work(tmp_path).shape == (3, 0)
    rows = {"environment": [0, 0, 1], "agent": [0, 0, 1], "env_steps": [1, 2, 1], "hash": [5, 10**15, 7]}
    pd.DataFrame(rows).to_parquet(tmp_path / WORK_FILE)
    assert read_work(tmp_path).T.tolist() == [[0, 0, 1, 5], [0, 0, 2, 10**15], [1, 1, 1, 7]]
    del rows["agent"]
    pd.DataFrame(rows).to_parquet(tmp_path / WORK_FILE, row_group_size=2)
    assert read_work(tmp_path).T.tolist() == [[0, 1, 5], [0, 2, 10**15], [1, 1, 7]]
    pd.DataFrame(rows).head(0).to_parquet(tmp_path / WORK_FILE)
    assert read_work(tmp_path).shape == (3, 0)


@pytest.mark.parametrize("word", [None, 0.5, float("inf"), 2.0 * 10**15, 2**60])
def test_what_is_no_hash_is_refused(tmp_path: Path, word: float | None) -> None:
    """Whatever a column holds that no run of ours writes."""
    rows = {"environment": [0, 1], "env_steps": [1, 1], "hash": [5, word]}
    pd.DataFrame(rows).to_parquet(tmp_path / WORK_FILE)
    with pytest.raises(ValueError, match=f"{WORK_FILE}: "):
        read_work(tmp_path)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    """Whoever wrote it."""
    (tmp_path / WORK_FILE).write_text("no table")
    with pytest.raises(ValueError, match=f"{WORK_FILE}: "):
        read_work(tmp_path)
