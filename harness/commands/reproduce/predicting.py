"""The rates of a table's points as the systems' models predict them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlbench.harness.live.counted import Counted
from rlbench.harness.predicting.points import Planned

if TYPE_CHECKING:
    from rich.console import Console

    from rlbench.harness.commands.reproduce.table import PaperTable
    from rlbench.harness.predicting.points import RatePoint, Rates


def predict_rates(table: PaperTable, console: Console) -> Rates:
    """Env steps/s of all points of a table; shows progress on the console. Raises ValueError for what has no model."""
    rates: dict[RatePoint, float] = {}
    with Counted(console, len(table.points)) as progress:
        progress.say(f"predicting {table.name}")
        for point in table.points:
            rates |= Planned([point], table.length).rates()
            progress.advance()
    return rates
