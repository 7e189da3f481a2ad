"""When a run is over: iterations, seconds, env steps, or a metric that was reached; whichever comes first."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

METRICS = ("return", "length", "success", "spl")
LARGEST = 1e12
"""No limit is larger: seconds, iterations or env steps."""
GRACE_FRACTION, LEAST_GRACE_S = 0.25, 3.0
"""An iteration that is under way when `seconds` have passed may still end within this share of them, or so long if that
is more; then its rollout is broken off."""
COMPARISONS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far a run is, summed or averaged over all ranks; every rank computes the same."""

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
    """The iteration that is under way then is still completed, if that does not take too long: `breaks_off_s`."""
    env_steps: int | None = None
    until: str | None = None
    """`success>=0.9`: a metric of recent episodes, a comparison, a number."""

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
        """True when nothing would end the run."""
        return self.iterations is None and self.seconds is None and self.env_steps is None and self.until is None

    @property
    def breaks_off_s(self) -> float | None:
        """When a rollout that is under way is broken off: what was collected of it is not learned. None: never."""
        return None if self.seconds is None else self.seconds + max(GRACE_FRACTION * self.seconds, LEAST_GRACE_S)

    def is_spent(self, progress: Progress) -> bool:
        """True when the run should end after this iteration; the same on all ranks, since `progress` is."""
        if progress.stop_requested:
            return True
        if self.until is not None:
            metric, comparison, value = parse_condition(self.until)
            if metric in progress.metrics and COMPARISONS[comparison](progress.metrics[metric], value):
                return True
        reached = (
            (self.iterations, progress.iterations),
            (self.seconds, progress.seconds),
            (self.env_steps, progress.env_steps),
        )
        return any(limit is not None and value >= limit for limit, value in reached)


def check_limit(flag: str, value: float) -> None:
    """Raises ValueError unless a limit is above 0 and at most `LARGEST`; NaN and infinity are neither."""
    if not 0 < value <= LARGEST:
        raise ValueError(f"{flag} {value:g}: must be above 0 and at most {LARGEST:g}")


def parse_condition(text: str) -> tuple[str, str, float]:
    """`success>=0.9` -> ("success", ">=", 0.9). Raises ValueError with the rule."""
    match = re.fullmatch(r"\s*(\w+)\s*(>=|<=|>|<)\s*(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*", text)
    if match is None or match[1] not in METRICS or not math.isfinite(float(match[3])):
        raise ValueError(f"--until {text}: must be METRIC>=NUMBER (or <=, >, <); metrics: {', '.join(METRICS)}")
    return match[1], match[2], float(match[3])
