"""`rlbench profile`: makes a profile of the times of a measured run, for emulated GPUs and predictions.

run folder --> steps.py, gpu.py (from its spans and its series) --> making.py (all tables) --> TOML
"""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """A value of a profile, and where it comes from."""

    value: float
    how: str
    """One short line; begins with `assumed` where nothing was measured."""


Table = dict[str, Entry]
"""A table of a profile, by its keys."""
ASSUMED = "assumed"
