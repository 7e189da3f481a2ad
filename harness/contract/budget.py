"""When a run is over: after iterations, seconds or env steps, or when a metric is reached; whichever comes first."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from rlbench.results.reading.names import known_names

METRICS = ("return", "length", "success", "spl")
LARGEST = 1e12
"""The largest limit of seconds, iterations or env steps."""
GRACE_FRACTION, LEAST_GRACE_S = 0.25, 3.0
"""An iteration that is under way when `seconds` have passed gets this share of them more, but at least `LEAST_GRACE_S`;
then its rollout is broken off."""
COMPARISONS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """The progress of a run, summed or averaged over all ranks; every rank computes the same."""

    iterations: int = 0
    env_steps: int = 0
    seconds: float = 0.0
    stop_requested: bool = False
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Means over the last finished episodes: `return`, `length`, `success`, `spl`; absent before the first episode."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """A budget; None is no limit."""

    iterations: int | None = None
    seconds: float | None = None
    """The iteration that is under way then is still completed if that does not take too long; see `breaks_off_s`."""
    env_steps: int | None = None
    until: str | None = None
    """A metric of recent episodes, a comparison and a number, such as `success>=0.9`."""

    def __post_init__(self) -> None:
        """Checks every field."""
        for name, flag in (("iterations", "--iterations"), ("seconds", "--seconds"), ("env_steps", "--env-steps")):
            value = getattr(self, name)
            if value is not None:
                check_limit(flag, value)
        if self.until is not None:
            parse_condition(self.until)

    @property
    def is_empty(self) -> bool:
        """True if there is no limit."""
        return self.iterations is None and self.seconds is None and self.env_steps is None and self.until is None

    @property
    def breaks_off_s(self) -> float | None:
        """When a rollout that is under way is broken off, and its samples are not learned; None is never."""
        return None if self.seconds is None else self.seconds + max(GRACE_FRACTION * self.seconds, LEAST_GRACE_S)

    @property
    def has_end(self) -> bool:
        """Whether it is known beforehand when the run is over; an `until` alone does not tell."""
        return any(limit is not None for limit in (self.iterations, self.seconds, self.env_steps))

    def spent(self, progress: Progress) -> float:
        """The part that is spent, 0 to 1, by the limit that will be reached first as it looks; 0 without one."""
        parts = [value / limit for limit, value in self._reached(progress) if limit is not None]
        return min(max(parts, default=0.0), 1.0)

    def is_spent(self, progress: Progress) -> bool:
        """True if the run should end after this iteration; the same on all ranks, since `progress` is the same."""
        if progress.stop_requested:
            return True
        if self.until is not None:
            metric, comparison, value = parse_condition(self.until)
            if metric in progress.metrics and COMPARISONS[comparison](progress.metrics[metric], value):
                return True
        return any(limit is not None and value >= limit for limit, value in self._reached(progress))

    def _reached(self, progress: Progress) -> tuple[tuple[float | None, float], ...]:
        return (
            (self.iterations, progress.iterations),
            (self.seconds, progress.seconds),
            (self.env_steps, progress.env_steps),
        )


def check_limit(flag: str, value: float) -> None:
    """Raises ValueError unless a limit is above 0 and at most `LARGEST`; also for NaN and infinity."""
    if not 0 < value <= LARGEST:
        raise ValueError(f"{flag} {value:g}: must be above 0 and at most {LARGEST:g}")


def parse_condition(text: str) -> tuple[str, str, float]:
    """Parses `success>=0.9` to ("success", ">=", 0.9). Raises ValueError that states the rule."""
    match = re.fullmatch(r"\s*(\w+)\s*(>=|<=|>|<)\s*(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*", text)
    if match is not None and match[1] not in METRICS:
        raise ValueError(f"--until {text}: unknown metric; {known_names(match[1], METRICS)}")
    if match is None or not math.isfinite(float(match[3])):
        raise ValueError(f"--until {text}: must be METRIC>=NUMBER (or <=, >, <); metrics: {', '.join(METRICS)}")
    return match[1], match[2], float(match[3])
