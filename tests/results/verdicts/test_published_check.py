"""What is kept of comparisons with published figures."""

from __future__ import annotations

from benchmarks import validate_published
from rlbench.harness.commands.reproduce.papers import TABLES
from rlbench.results.verdicts.published_check import FITTED, HELD_OUT, published_errors


def test_every_table_is_there_with_its_profiles() -> None:
    """By table and kind of figures; a profile that is in none has nothing."""
    found = published_errors({"emulated/open-fridge"})
    assert set(found["ver-table1"]) == {FITTED, HELD_OUT}
    assert found["ver-table1"][FITTED][1] == found["ver-table1"][HELD_OUT][1] == 16
    assert published_errors({"emulated/mine.toml"}) == {}
    profiles = {
        point.scenario.partition(":")[0] for make in TABLES.values() for row in make().rows for point in row.points
    }
    assert set(published_errors(profiles)) == set(TABLES)


def test_what_is_kept_is_what_the_models_give() -> None:
    """Of the smallest table, predicted again."""
    ((_, profiles, kind, count, error),) = validate_published.rows_of("ver-navigation")
    kept, kept_count = published_errors(profiles.split())["ver-navigation"][kind]
    assert (kept, kept_count) == (float(error), count)
