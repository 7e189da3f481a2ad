from __future__ import annotations

from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from rlbench.results import published

ROOT = Path(__file__).resolve().parents[2]
NAMES = [
    "ddppo_scaling",
    "sample_factory_table1",
    "sample_factory_table_a2",
    "spatial_convolutions",
    "ver_navigation",
    "ver_table1",
]


def test_the_tables_are_known() -> None:
    """All published tables are listed by name."""
    assert published.names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_tables_say_where_they_stand(name: str) -> None:
    """Each table has a line with paper and table, and is a rectangle of cells with a title for each column."""
    assert published.source(name).count("Table") + published.source(name).count("Fig.") >= 1
    assert not published.source(name).startswith("#")
    rows = published.read(name)
    assert rows
    for row in rows:
        assert list(row) == list(rows[0])
        assert all(title and cell is not None and cell == cell.strip() for title, cell in row.items())


def test_figures_are_the_papers() -> None:
    """Cells are read as the papers print them; what could not be run there is empty."""
    (ver,) = (row for row in published.read("ver_table1") if (row["gpus"], row["system"]) == ("8", "ver"))
    assert ver == {"gpus": "8", "system": "ver", "mean_sps": "2861", "mean_pm": "21", "max_sps": "3829", "max_pm": "23"}
    assert [row["speedup"] for row in published.read("ddppo_scaling")] == ["7.3", "107", "196"]
    assert len(published.read("ver_table1")) == 16
    table_a2 = published.read("sample_factory_table_a2")
    most = [row for row in table_a2 if (row["machine"], row["simulator"]) == ("system2", "vizdoom")][-1]
    assert (most["num_envs"], most["sample_factory_appo"], most["seedrl_impala"]) == ("1728", "146551", "")


def test_unknown_tables_are_refused() -> None:
    """A table that is not there is refused in one line that lists the known ones."""
    with pytest.raises(ValueError, match=rf"^published table 'nope': unknown; known: {', '.join(NAMES)}$"):
        published.read("nope")
    with pytest.raises(ValueError, match=r"'\.\./__init__': unknown"):
        published.source("../__init__")


def test_the_wheel_holds_them() -> None:
    """Who installs rlbench has the tables and the profiles that reproduce them."""
    inside = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    assert {f"rlbench/results/published/{name}.csv" for name in NAMES} <= inside
    profiles = {path.name for path in (ROOT / "scenarios" / "emulated" / "profiles").glob("*.toml")}
    assert {f"rlbench/scenarios/emulated/profiles/{name}" for name in profiles} <= inside
