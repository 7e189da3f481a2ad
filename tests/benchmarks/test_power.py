"""What docs/gate.md says of `rlbench gate` is what was measured, with the commit and the machine."""

from __future__ import annotations

import pytest

from benchmarks.against.programs import ROOT
from benchmarks.power.tables import table
from benchmarks.power.trials import PARTS, read_rows

MEASURED = ROOT / "benchmarks/power/measured"
ROWS = read_rows(MEASURED / "rows.jsonl")
TABLES = {part: "\n".join(lines) for part in PARTS if (lines := list(table(part, ROWS)))}
"""Of the parts of which something was measured."""
TEXT = (ROOT / "docs/gate.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("part", TABLES)
def test_the_documented_tables_are_those_of_the_measured_rows(part: str) -> None:
    """Line by line, as `python -m benchmarks.power --print` prints them."""
    assert TABLES[part] in TEXT


def test_the_documented_tables_name_their_commit_and_machine() -> None:
    """Something was measured, and the text says of what."""
    assert ROWS
    named = {row["machine"] for row in ROWS.values()} | {(MEASURED / "commit.txt").read_text(encoding="utf-8")[:12]}
    assert [each for each in named if each not in TEXT] == []
