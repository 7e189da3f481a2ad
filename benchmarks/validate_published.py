"""Compares predictions from the shipped profiles with the published figures: `nox -s validate -- --published`.

Predicts every table of `rlbench reproduce`, and prints the mean error of its predictions, apart for figures that
profiles were fitted to and for those held out. `--keep` writes them where the notes of predicted tables read them.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterable
from statistics import fmean

from rlbench.harness.commands.reproduce.papers import TABLES
from rlbench.harness.commands.reproduce.predicting import predict_rates
from rlbench.harness.commands.reproduce.table import Filled, Fit, errors_by_fit, fill
from rlbench.reports.terminal.table import make_console
from rlbench.results.verdicts.published_check import COLUMNS, FILE, FITTED, HELD_OUT

KINDS = {"fitted": FITTED, "held out": HELD_OUT}


def rows_of(name: str) -> list[tuple[str, str, str, int, str]]:
    """A row of `COLUMNS` for each kind of figures of a table."""
    table = TABLES[name]()
    filled = fill(table, predict_rates(table, make_console()), {}).values()
    errors = errors_by_fit(filled)
    return [(name, _profiles(filled, fit), KINDS[fit], len(of), f"{fmean(of):.4f}") for fit, of in errors.items()]


def _profiles(filled: Iterable[Filled], fit: Fit) -> str:
    """The profiles that figures of a kind are predicted from."""
    there = [one.row for one in filled if one.row.fit == fit and one.predicted_error is not None]
    return " ".join(sorted({point.scenario.partition(":")[0] for row in there for point in row.points}))


def main() -> None:
    """Predicts and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true", help=f"write the errors to {FILE.name}, which notes quote")
    asked = parser.parse_args()
    rows = [row for name in TABLES for row in rows_of(name)]
    for row in rows:
        sys.stdout.write(f"{row[0]}: {float(row[4]):.1%} of {row[3]} figures {row[2]}\n")
    if asked.keep:
        with FILE.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])


if __name__ == "__main__":
    main()
