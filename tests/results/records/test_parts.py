from __future__ import annotations

from pathlib import Path

import pytest

from rlbench.results.records.parts import Part, Row, join_ranks, read_parts
from tests.results.made_records import write_series


def rank_rows(rank: int, ends: list[float], learned: int | list[int], begin: float = 0.0) -> list[Row]:
    """Iterations of one rank that end at `ends`."""
    each = [learned] * len(ends) if isinstance(learned, int) else learned
    begins = [begin, *ends[:-1]]
    return [(rank, i, *row) for i, row in enumerate(zip(begins, ends, each, strict=True))]


def as_rows(parts: list[Part]) -> list[tuple[int, float, float, int]]:
    """Parts as tuples."""
    return [(part.iteration, part.begin_s, part.end_s, part.learned) for part in parts]


def test_ranks_are_joined_end_to_end() -> None:
    """A part ends when the last rank does and begins where the one before ended, so that no second is lost."""
    rows = [(1, 0, 0.5, 2.0, 10), (0, 0, 0.0, 1.5, 20), (0, 1, 2.5, 3.5, 5), (1, 1, 2.5, 4.0, 5)]
    assert join_ranks(rows) == [
        Part(iteration=0, begin_s=0.0, end_s=2.0, learned=30),
        Part(iteration=1, begin_s=2.0, end_s=4.0, learned=10),
    ]


def test_iteration_that_a_rank_did_not_end_is_left_out() -> None:
    """What only some ranks finished is no part, nor is anything after it."""
    rows = [(0, 0, 0.0, 1.0, 1), (1, 0, 0.0, 1.0, 1), (0, 1, 1.0, 2.0, 1), (0, 2, 2.0, 3.0, 1), (1, 2, 2.0, 3.0, 1)]
    assert [part.iteration for part in join_ranks(rows)] == [0]


def test_a_lost_rank_is_not_waited_for() -> None:
    """In step, the iterations after a rank was lost are those of the others."""
    rows = rank_rows(0, [1, 2, 3], 10) + rank_rows(1, [1.5], 10)
    assert as_rows(join_ranks(rows)) == [(0, 0, 1.5, 20)]
    assert as_rows(join_ranks(rows, lost=[1])) == [(0, 0, 1.5, 20), (1, 1.5, 2, 10), (2, 2, 3, 10)]


def test_ranks_that_drift_apart_are_cut_where_the_slowest_ends_its_iterations() -> None:
    """Rank 1 ends 10 steps each second, rank 0 20 steps each 2.5 s: any 2.5 s hold 20 + 25, and the rate is 18."""
    rows = rank_rows(0, [2.5, 5.0], 20) + rank_rows(1, [1, 2, 3, 4, 5, 6], 10)
    parts = join_ranks(rows, in_step=False)
    assert as_rows(parts) == [(0, 0, 2.5, 45), (1, 2.5, 5, 45)]
    assert [part.rate for part in parts] == [18, 18]


def test_steps_are_spread_over_the_iteration_that_learned_them() -> None:
    """By hand: at 4 s rank 1 has learned 10 + 3/6 of 60 = 40, at 8 s 70 + 1/2 of 20 = 80; rank 0 learns 8 each."""
    rows = rank_rows(0, [4, 8], 8) + rank_rows(1, [1, 7, 9], [10, 60, 20])
    assert as_rows(join_ranks(rows, in_step=False)) == [(0, 0, 4, 48), (1, 4, 8, 48)]


def test_a_rank_that_begins_later_has_learned_nothing_before() -> None:
    """The first part begins with the first rank; the other counts from its own beginning: 4 s of 6 at 5 a second."""
    rows = rank_rows(0, [4, 8], 8) + rank_rows(1, [8], 30, begin=2.0)
    assert as_rows(join_ranks(rows, in_step=False)) == [(0, 0, 8, 46)]
    rows += rank_rows(2, [2, 4, 6, 8], 2)
    assert as_rows(join_ranks(rows, in_step=False)) == [(0, 0, 8, 54)]


def test_parts_end_when_the_first_rank_ends() -> None:
    """After that the rate falls because a rank has gone home: what the slowest then still ends is left out."""
    rows = rank_rows(0, [3, 6, 9], 30) + rank_rows(1, [1, 2, 3, 4, 5, 6, 7], 10)
    assert as_rows(join_ranks(rows, in_step=False)) == [(0, 0, 3, 60), (1, 3, 6, 60)]


def test_a_run_in_which_the_slowest_ends_nothing_in_time_is_one_part() -> None:
    """Its part ends with the first rank: 8 of the slowest's 10 s hold 8 of its 10 steps."""
    rows = rank_rows(0, [10], 10) + rank_rows(1, [4, 8], 40)
    assert as_rows(join_ranks(rows, in_step=False)) == [(0, 0, 8, 88)]


def test_a_lost_rank_counts_until_it_was_lost() -> None:
    """It neither sets the cuts nor the end, though it ended first and with the fewest iterations."""
    rows = rank_rows(0, [2, 4, 6], 10) + rank_rows(1, [1, 2, 3, 4, 5, 6], 10) + rank_rows(2, [3], 30)
    assert as_rows(join_ranks(rows, in_step=False, lost=[2])) == [(0, 0, 2, 50), (1, 2, 4, 40), (2, 4, 6, 30)]


def test_rounding_loses_no_step() -> None:
    """Steps of a part are whole, and sum to what was learned up to its end."""
    rows = rank_rows(0, [1, 2, 3, 4, 5, 6, 7], 1) + [(1, i, i * 0.7, (i + 1) * 0.7, 1) for i in range(10)]
    parts = join_ranks(rows, in_step=False)
    assert sum(part.learned for part in parts) == 17
    assert {part.learned for part in parts} <= {2, 3}


@pytest.mark.parametrize("in_step", [True, False])
def test_no_rows_and_only_lost_ranks_are_no_parts(*, in_step: bool) -> None:
    """Without a rank that went on there is nothing to measure."""
    assert join_ranks([], in_step=in_step) == []
    assert join_ranks(rank_rows(0, [1, 2], 1), in_step=in_step, lost=[0]) == []


def test_series_file(tmp_path: Path) -> None:
    """Parts are read from a series with more columns than they need; a run without a series has none."""
    assert read_parts(tmp_path) == []
    write_series(tmp_path, [(0, 0, 0.0, 1.0, 7), (1, 0, 0.0, 2.0, 8)])
    assert read_parts(tmp_path) == [Part(iteration=0, begin_s=0.0, end_s=2.0, learned=15)]


def test_the_series_says_how_its_ranks_are_joined(tmp_path: Path) -> None:
    """The marks of a series, and nothing else, decide whether ranks went in step, and which were lost."""
    rows = rank_rows(0, [2, 4, 6], 10) + rank_rows(1, [1, 2, 3, 4, 5, 6], 10) + rank_rows(2, [3], 30)
    for in_step, lost in ((True, []), (True, [2]), (False, []), (False, [2])):
        write_series(tmp_path, rows, in_step=in_step, lost=[row[0] in lost for row in rows])
        assert read_parts(tmp_path) == join_ranks(rows, in_step=in_step, lost=lost)


def test_part_without_duration() -> None:
    """A part must take time: a rate over none is refused where it is made."""
    for seconds in (0.0, 5e-324, 1e-12):
        with pytest.raises(ValueError, match="iteration 3: must end"):
            Part(iteration=3, begin_s=0.0, end_s=seconds, learned=1)
