"""A small table for tests of `rlbench reproduce`."""

from __future__ import annotations

from typing import Any

from rlbench.harness.commands.reproduce.table import Claim, PaperTable, Row
from rlbench.harness.predicting.points import Length, RatePoint


def make_row(name: str, published: float | None, **fields: Any) -> Row:
    """A row of `sync` on one GPU of its own scenario."""
    point = RatePoint(system="sync", scenario=f"emulated/{name}")
    return Row(**{"name": name, "labels": (name,), "published": published, "fit": "fitted", "point": point} | fields)


def make_table(*rows: Row, checks: tuple[Claim, ...] = (), **length: Any) -> PaperTable:
    """A table of the rows, predicted with a seed more than there are GPUs."""
    return PaperTable(
        name="tiny",
        published=("ver_navigation",),
        unit="env steps/s",
        titles=("row",),
        rows=rows,
        checks=checks,
        length=Length(num_seeds=lambda gpus: 1 + gpus, **length),
        run_options="--iterations 4",
    )
