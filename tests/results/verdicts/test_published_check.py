"""What is kept of comparisons with published figures."""

from __future__ import annotations

from benchmarks import validate_published
from rlbench.harness.commands.reproduce.papers import TABLES
from rlbench.results.verdicts.published_check import FITTED, HELD_OUT, PublishedErrors, published_errors


def test_every_table_is_there_with_its_profiles() -> None:
    """By table and kind of figures; a profile that is in none has nothing."""
    found = published_errors({"emulated/open-fridge"})
    assert set(found["ver-table1"]) == {FITTED, HELD_OUT}
    assert found["ver-table1"][FITTED].count == found["ver-table1"][HELD_OUT].count == 16
    assert published_errors({"emulated/mine.toml"}) == {}
    profiles = {
        point.scenario.partition(":")[0] for make in TABLES.values() for row in make().rows for point in row.points
    }
    assert set(published_errors(profiles)) == set(TABLES)


def test_both_kinds_of_figures_name_the_profiles_that_predict_them() -> None:
    """As many figures as the tables have, of the same profiles."""
    for name, make in TABLES.items():
        rows = [row for row in make().rows if row.points and row.published is not None]
        errors = published_errors({point.scenario.partition(":")[0] for row in rows for point in row.points})[name]
        assert errors.keys() == {validate_published.KINDS[row.fit] for row in rows if row.fit != "-"}
        for kind, of in errors.items():
            points = [row.points for row in rows if validate_published.KINDS.get(row.fit) == kind]
            assert of.count == len(points)
            assert of.scenarios == {point.scenario.partition(":")[0] for each in points for point in each}


def test_what_is_kept_is_what_the_models_give() -> None:
    """Of the smallest table, predicted again."""
    ((_, profiles, kind, count, error),) = validate_published.rows_of("ver-navigation")
    kept = published_errors(profiles.split())["ver-navigation"][kind]
    assert kept == PublishedErrors(mean=float(error), count=count, scenarios=frozenset(profiles.split()))
