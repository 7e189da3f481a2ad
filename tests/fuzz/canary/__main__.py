"""Plays rounds for so many seconds; prints each fault once, then a table: `python -m tests.fuzz.canary --help`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.fuzz.canary.playing import Player

SEED, SECONDS = 1, 600.0


def main() -> None:
    """Exit code 1 where there was a fault."""
    parser = argparse.ArgumentParser(prog="canary", description=__doc__)
    parser.add_argument("--seed", type=int, default=SEED, help="of all that is drawn")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="begins no round after so long")
    parser.add_argument("--rounds", type=int, help="so many rounds at most")
    parser.add_argument("--first", type=int, default=0, help="the round to begin with: repeats one, with --rounds 1")
    parser.add_argument("--slow", type=float, default=0.3, help="share of the time for commands that run cells")
    parser.add_argument("--out", type=Path, default=Path("canary-faults"), help="where places with a fault are kept")
    asked = parser.parse_args()
    with Player(asked.out.absolute(), seed=asked.seed, slow_share=asked.slow) as player:
        player.play(asked.seconds, first=asked.first, most=asked.rounds)
        sys.stdout.write(player.table())
    sys.exit(1 if player.faults else 0)


if __name__ == "__main__":
    main()
