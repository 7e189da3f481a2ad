"""Which iterations of a run count: the named protocols that drop the warm-up.

All protocols count in the same way: fresh env steps learned in the window / seconds of the window, over all ranks.

`steady` finds the warm-up with MSER (White, An effective truncation heuristic for bias reduction in simulation output,
Simulation 69(6), 1997): it drops the first d parts, with d from 1 to n / 2 such that the mean of the rest has the
smallest estimated variance, sum((rate - mean)^2) / (n - d)^2. MSER alone overlooks a slow drift (it calls more than
half of a rise by 30 % over 20 parts with 3 % noise steady), so the parts that are left must also show no drift.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from rlbench.results.records import schema
from rlbench.results.records.parts import Part

LEAST_PARTS = 3
LEAST_TO_JUDGE = 12
"""With fewer parts MSER and the drift check see little but noise, so only the first part is dropped."""
WARM_UP_S, COUNTED_S = 60.0, 300.0
"""Sample Factory's five minutes of training, and a minute before them."""
SHORT_BY = 0.02
"""What a run may be shorter by than it was asked to be: its first iteration begins after its start."""
DRIFT_FRACTION = 0.05
"""A drift up to this share of the mean rate, from the first to the last part of the window, is not worth a warning."""
DRIFT_T = 3.0
"""Nor is a drift up to this many times its standard error."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """The parts of a run that count."""

    protocol: str
    parts: tuple[Part, ...]
    """At least one, without gaps."""
    reason: str | None = None
    """Why the rate is not steady; None if it is."""

    @property
    def seconds(self) -> float:
        """Length of the window."""
        return self.parts[-1].end_s - self.parts[0].begin_s

    def to_record(self) -> schema.WindowRecord:
        """The window in the form of `run.json`."""
        return schema.WindowRecord(
            protocol=self.protocol,
            first_iteration=self.parts[0].iteration,
            last_iteration=self.parts[-1].iteration,
            begin_s=self.parts[0].begin_s,
            end_s=self.parts[-1].end_s,
            steady=self.reason is None,
            reason=self.reason,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowProtocol:
    """A way to choose the window."""

    about: str
    """One line."""
    choose: Callable[[Sequence[Part]], tuple[int, str | None]]
    """From one part or more: how many to drop from the front, and why the rest is not steady (None if it is)."""
    num_iterations: int | None = None
    """Length of a run, unless told otherwise; the other one of these two is None."""
    seconds: float | None = None
    still: bool = False
    """Whether what environments do depends on their seeds alone (`harness/metering/still.py`)."""


def choose_window(parts: Sequence[Part], protocol: str) -> Window:
    """Drops the warm-up. Raises ValueError for an unknown protocol (listing the known ones) or without any part."""
    if protocol not in PROTOCOLS:
        raise ValueError(f"--protocol {protocol}: unknown; choose one of: {', '.join(PROTOCOLS)}")
    if not parts:
        raise ValueError("no iteration was finished by all ranks: nothing to measure; give the run more time")
    num_dropped, reason = PROTOCOLS[protocol].choose(parts)
    return Window(protocol=protocol, parts=tuple(parts[num_dropped:]), reason=reason)


def steps_per_s(window: Window) -> float:
    """Fresh env steps learned per second of the window, over all ranks."""
    return sum(part.learned for part in window.parts) / window.seconds


def _choose_ddppo(parts: Sequence[Part]) -> tuple[int, str | None]:
    """Counts the last 5 of 10 iterations (DD-PPO, appendix D), or the last half of fewer."""
    if len(parts) >= 10:
        return len(parts) - 5, None
    num_counted = max(len(parts) // 2, 1)
    return len(parts) - num_counted, f"protocol ddppo wants 10 iterations, the run has {len(parts)}"


def _choose_sample_factory(parts: Sequence[Part]) -> tuple[int, str | None]:
    """Counts what begins after a minute (Sample Factory, Fig. 3: "averaged over five minutes"), or a sixth of less."""
    seconds = parts[-1].end_s - parts[0].begin_s
    whole_s = WARM_UP_S + COUNTED_S
    warm_up_s = WARM_UP_S * min(seconds / whole_s, 1.0)
    num_dropped = sum(part.begin_s - parts[0].begin_s < warm_up_s for part in parts)
    short = f"protocol sample-factory wants {whole_s:.0f} s, the run has {seconds:.0f} s"
    return min(num_dropped, len(parts) - 1), short if seconds < whole_s * (1 - SHORT_BY) else None


def _choose_steady(parts: Sequence[Part]) -> tuple[int, str | None]:
    most = len(parts) // 2
    if most < 1:
        return 0, "the run has 1 iteration, so its warm-up counts; give it more iterations"
    if len(parts) < LEAST_TO_JUDGE:
        left = len(parts) - 1
        wanted = f"iterations left after the warm-up: {left}; at least {LEAST_PARTS} are wanted"
        return 1, wanted if left < LEAST_PARTS else None
    rates = [part.rate for part in parts]
    num_dropped = min(range(1, most + 1), key=lambda num: _mser(rates[num:]))
    return num_dropped, _why_unsteady(rates[num_dropped:], hit_bound=num_dropped == most)


def _mser(rates: Sequence[float]) -> float:
    mean = fmean(rates)
    return sum((rate - mean) ** 2 for rate in rates) / len(rates) ** 2


def _why_unsteady(rates: Sequence[float], *, hit_bound: bool) -> str | None:
    if hit_bound:
        return "the warm-up fills half of the run or more; give it more iterations"
    drift, t = _drift(rates)
    if abs(drift) > DRIFT_FRACTION and abs(t) > DRIFT_T:
        return f"the rate still {'rises' if drift > 0 else 'falls'}, by {abs(drift):.0%} over the window"
    return None


def _drift(rates: Sequence[float]) -> tuple[float, float]:
    """Change of the least-squares line over the window, relative to the mean rate, and the slope's t statistic."""
    num, mean = len(rates), fmean(rates)
    xs = [index - (num - 1) / 2 for index in range(num)]
    sum_xx = sum(x * x for x in xs)
    slope = sum(x * rate for x, rate in zip(xs, rates, strict=True)) / sum_xx
    if slope == 0 or mean == 0:
        return 0.0, 0.0
    residual = sum((rate - mean - slope * x) ** 2 for x, rate in zip(xs, rates, strict=True))
    standard_error = math.sqrt(residual / (num - 2) / sum_xx)
    return slope * (num - 1) / mean, slope / standard_error if standard_error else math.inf


PROTOCOLS: dict[str, WindowProtocol] = {
    "ddppo": WindowProtocol(
        about="10 iterations, the last 5 counted (DD-PPO, appendix D)",
        num_iterations=10,
        choose=_choose_ddppo,
    ),
    "sample-factory": WindowProtocol(
        about="6 minutes, the last 5 counted (Sample Factory, section 4)",
        seconds=WARM_UP_S + COUNTED_S,
        choose=_choose_sample_factory,
    ),
    "steady": WindowProtocol(
        about="the warm-up is found (MSER) and dropped, and the rest checked for drift",
        seconds=30.0,
        choose=_choose_steady,
    ),
    "still": WindowProtocol(
        about="as steady, and nothing is learned: actions come from seeds, so all runs do the same work, at full cost",
        seconds=30.0,
        choose=_choose_steady,
        still=True,
    ),
}
