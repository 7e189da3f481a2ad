"""Keys of a profile as coordinates in which steps of equal size mean about as much everywhere.

A time, a spread or a factor is its logarithm, a share the logarithm of its odds: a step of 0.1 is about 10 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rlbench.results.reading.names import known_names

REACH = 5.0
"""A number may become 150 times as large, or as small."""
COUNTS = frozenset(
    {
        "collect.num_envs",
        "collect.rollout_steps",
        "collect.envs_per_batch",
        "cpu.cores_per_gpu",
        "cpu.learn_cores",
        "episode.mean_steps",
        "learn.epochs",
        "learn.num_minibatches",
        "network.weights_mb",
    }
)
"""Keys that are known, not fitted."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key that is fitted, from the number that it has at first."""

    name: str
    start: float

    @property
    def bounds(self) -> tuple[float, float]:
        """The lowest and the highest coordinate; the start's is 0."""
        least, most = _limits(self.name)
        origin = self._origin
        low = -REACH if least <= 0 else max(-REACH, _forward(self.name, least) - origin)
        return low, min(REACH, _forward(self.name, most) - origin)

    def number(self, coordinate: float) -> float:
        """The number at a coordinate."""
        value = self._origin + coordinate
        return 1 / (1 + math.exp(-value)) if _is_share(self.name) else math.exp(value)

    @property
    def _origin(self) -> float:
        return _forward(self.name, self.start)


def keys_to_fit(numbers: Mapping[str, float], names: Iterable[str]) -> list[Key]:
    """The named keys of a profile, or all that may be fitted where none are named.

    Raises ValueError for a key that no profile has, or that cannot be fitted.
    """
    may = {name: number for name, number in numbers.items() if name not in COUNTS and number > 0}
    chosen = list(names) or [name for name, number in may.items() if number > _limits(name)[0]]
    for name in chosen:
        if name not in numbers:
            raise ValueError(f"--keys {name}: unknown; {known_names(name, numbers)}")
        if name not in may:
            is_count = name in COUNTS
            raise ValueError(
                f"--keys {name}: {'is known, and not fitted' if is_count else 'is 0; give it a value to begin with'}"
            )
    return [Key(name, may[name]) for name in chosen]


def _forward(name: str, number: float) -> float:
    return math.log(number / (1 - number)) if _is_share(name) else math.log(number)


def _limits(name: str) -> tuple[float, float]:
    """What a profile's rules allow, as far as a fit could come to it."""
    if _is_share(name):
        return 0.0, 0.999
    if name.endswith(".sigma"):
        return 0.0, 3.0
    is_factor = name.endswith(("_factor", "_steps"))
    return 1.0 if is_factor else 0.0, 1e3 if is_factor else 1e6


def _is_share(name: str) -> bool:
    return name.endswith(".share")
