"""The rates of a table's points as the systems' models predict them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from rlbench.harness.predicting.points import Planned

if TYPE_CHECKING:
    from rich.console import Console

    from rlbench.harness.commands.reproduce.table import PaperTable
    from rlbench.harness.predicting.points import RatePoint, Rates


def predict_rates(table: PaperTable, console: Console) -> Rates:
    """Env steps/s of all points of a table. Raises ValueError for what has no model."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    rates: dict[RatePoint, float] = {}
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(f"predicting {table.name}", total=len(table.points))
        for point in table.points:
            rates |= Planned([point], table.length).rates()
            progress.advance(task)
    return rates
