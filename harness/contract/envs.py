"""The environments that systems get: made by the scenario, counted by the harness."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from harness.metering.counted import CountedEnv, episodes_path
from harness.metering.meter_file import Block, MeterFile

if TYPE_CHECKING:
    import gymnasium

    from harness.contract.device import Seat


class MakesEnvs(Protocol):
    """A scenario, or a wrapper of one."""

    def make_env(self, seat: Seat) -> gymnasium.Env[dict[str, Any], int]:
        """Makes one environment."""


@runtime_checkable
class InParts(Protocol):
    """What a scenario may have whose environments differ: in their games, maps or scenes."""

    def part(self, global_index: int, seed: int) -> str:
        """The part of the scenario that environment `global_index` of a run has, whose seed is `seed` (`Seat`).

        The record says what each part was learned from; environments with the same text are of the same part.
        """


def env_seeds(seed: int, rank: int, num_envs: int) -> list[int]:
    """The seeds of the first `num_envs` environments of a rank, of a run with a seed."""
    from numpy.random import SeedSequence

    seeds: list[int] = SeedSequence([seed, rank]).generate_state(2 + num_envs).tolist()
    return seeds[2:]


def make_counted_env(scenario: MakesEnvs, seat: Seat, folder: Path | str, meter: Path) -> CountedEnv:
    """Makes environment `seat.index` of a rank, with its counters. Call it in the process that will step it."""
    block = Block(MeterFile(meter, writable=True), 1 + seat.index)
    episodes = os.open(episodes_path(Path(folder), seat.place.rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    return CountedEnv(scenario.make_env(seat), block, episodes, seat.global_index, seat.seed)
