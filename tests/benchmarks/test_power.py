"""What docs/gate.md says of `rlbench gate` is what was measured, with the commit and the machine."""

from __future__ import annotations

import pytest

from benchmarks.against.programs import ROOT
from benchmarks.power.tables import table
from benchmarks.power.trials import PARTS, read_rows

MEASURED = ROOT / "benchmarks/power/measured"


@pytest.mark.parametrize("part", PARTS)
def test_the_documented_tables_are_those_of_the_measured_rows(part: str) -> None:
    """A part of which nothing was measured has no table."""
    known = read_rows(MEASURED / "rows.jsonl")
    text = (ROOT / "docs/gate.md").read_text(encoding="utf-8")
    assert "\n".join(table(part, known)) in text


def test_the_documented_tables_name_their_commit_and_machine() -> None:
    """As `python -m benchmarks.power --print` prints them."""
    known = read_rows(MEASURED / "rows.jsonl")
    text = (ROOT / "docs/gate.md").read_text(encoding="utf-8")
    assert known
    named = {row["machine"] for row in known.values()} | {(MEASURED / "commit.txt").read_text(encoding="utf-8")[:12]}
    assert [each for each in named if each not in text] == []
