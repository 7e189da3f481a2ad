from __future__ import annotations

import pytest

from tests.reports.terminal.test_table import cell, line_with, printed, scaled

SWEEPS = {"emulated": "20260131-142530-9f3a", "predicted": "20260131-152530-8e2b"}


@pytest.mark.parametrize("width", [60, 80])
def test_names_without_room_stand_above_their_rows(width: int) -> None:
    """Cells of two sweeps on two devices keep every system and figure; columns stand below each other."""
    cells = [
        made.model_copy(update={"device": device, "sweep": sweep, "scenario": f"{device}/open-fridge:time_scale=0.5"})
        for device, sweep in SWEEPS.items()
        for made in (cell("sync", 1), scaled())
    ]
    text = printed(*cells, width=width)
    assert max(map(len, text.splitlines())) <= width
    for device, sweep in SWEEPS.items():
        block = text.partition(f"scenario {device}/")[2].partition("scenario ")[0]
        assert sweep in block
        assert [row.split("|")[1].strip() for row in block.splitlines() if row[3:4].isdigit()] == ["sync", "ddppo"]
        assert "1,024 (983 to 1,065)" in line_with(block, "ddppo")
    assert len({line for line in text.splitlines() if "system" in line}) == 1


def test_what_has_no_room_is_listed_as_one_says_it() -> None:
    """Commas stand between all but the last two."""
    text = printed(cell("sync", 1), scaled(), width=50)
    lines = " ".join(text.partition("no room here for ")[2].split())
    assert lines.startswith("the intervals of scaling, where the time went and utilisation")
    assert "no room here for where the time went, utilisation, scaling and efficiency" in " ".join(
        printed(cell("sync", 1), scaled(), width=45).split()
    )
