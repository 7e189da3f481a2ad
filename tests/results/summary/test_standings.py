from __future__ import annotations

from rlbench.results.summary.standings import standings
from tests.results.summaries import make_cell, make_comparison

CELLS = [make_cell("sync"), make_cell("ver"), make_cell("appo"), make_cell("gossip", steps_per_s=None)]
AGAINST_SYNC = make_comparison("ver", "sync", 2.0, (1.9, 2.1))


def test_all_others_slower() -> None:
    """One that all others of its group are slower than at 95 % is the fastest; a failed one has no place."""
    found = standings(CELLS, [AGAINST_SYNC, make_comparison("ver", "appo", 1.1, (1.05, 1.15))])
    assert found == {"ver-8": "fastest", "sync-8": "slower", "appo-8": "slower"}


def test_a_tie_is_of_both() -> None:
    """Where the interval of the ratio holds 1, neither is the fastest."""
    found = standings(CELLS, [AGAINST_SYNC, make_comparison("ver", "appo", 1.1, (0.95, 1.25))])
    assert found == {"ver-8": "tied", "sync-8": "slower", "appo-8": "tied"}


def test_without_an_interval_nothing_is_fastest() -> None:
    """One comparison without an interval leaves it open."""
    found = standings(CELLS, [AGAINST_SYNC, make_comparison("ver", "appo", 1.1)])
    assert found == {"ver-8": "highest", "sync-8": "slower", "appo-8": "untested"}


def test_what_is_not_comparable_does_not_count() -> None:
    """Neither for the fastest nor against it; where nothing is comparable, nothing is the fastest."""
    unlike = make_comparison("ver", "appo", 0.5, (0.4, 0.6), comparable=False)
    assert standings(CELLS, [AGAINST_SYNC, unlike]) == {
        "ver-8": "fastest",
        "sync-8": "slower",
        "appo-8": "not comparable",
    }
    alone = [make_cell("ver"), make_cell("appo")]
    assert set(standings(alone, [unlike]).values()) == {"not comparable"}


def test_other_pairs_do_not_make_a_leader() -> None:
    """Only the one that is held against all others leads; a system alone, or twice in a group, has no place."""
    pair = make_comparison("sync", "appo", 1.5, (1.4, 1.6))
    assert standings(CELLS, [pair]) == {}
    assert standings([make_cell("ver")], []) == {}
    twice = [make_cell("ver"), make_cell("ver", device="cpu"), make_cell("sync")]
    assert standings(twice, [AGAINST_SYNC]) == {}
