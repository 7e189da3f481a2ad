"""`rlbench profile`: the times of a measured run as a profile, which emulated GPUs and predictions run from.

run folder --> steps.py, gpu.py (what its spans and its series say) --> profile.py (all tables) --> TOML
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
