"""Checks how far one system is ahead of another on emulated GPUs: `nox -s gate -- --deep`.

Both sides of a ratio run in turn (A B B A ...), repetition k of both with seed k, so a slow neighbour hits both, and
the draws of a seed favour neither. Absolute rates, which a busy machine spoils, are not checked. A ratio holds if its
whole 95 % interval, over the pairs, is above the limit: neither a regression passes nor a measurement that shows
nothing. The limits, and what `rlbench predict` says for the same seeds:

- `ver` must make more than 1.6 times the steps/s of `ddppo`. Predicted: 2.02 times, and 1.44 times for `nover`, which
  is `ver` with fixed rollouts. So a `ver` whose rollouts wait for slow environments is below the limit.
- `ddppo` with p 0.6, which preempts the last of four ranks, must make more steps/s than with p 1.0, which never
  preempts. Predicted: 1.20 times as many.

Two cores suffice. Alone on them, ranks of `ver` waited for a core 4 % of the time. Beside programs that kept the load
at 6 to 9, they waited 11 to 20 % of the time, and the ratios held.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.gate.claims import Claim
from rlbench.results.summary.findings import find_all
from rlbench_pytest import Throughput
from tests.lanes import deep

Must = Callable[[Claim], None]
NUM_PROFILE_S = 32.0
"""Seconds of the profile in each run."""


def hold(
    throughput: Throughput,
    must_hold: Must,
    over: tuple[str, str],
    limit: float,
    *,
    gpus: int,
    scenario: str,
    repetitions: int,
    time_scale: float,
) -> None:
    """Measures the ratio of two systems, which must be above the limit."""
    ratio = throughput.ratio(
        *over,
        repetitions=repetitions,
        seconds=time_scale * NUM_PROFILE_S,
        gpus=gpus,
        scenario=scenario,
        workload="heterogeneous",
        device="emulated",
        time_scale=time_scale,
    )
    what = f"{' / '.join(over)}, {gpus} emulated GPUs"
    must_hold(Claim(what=what, ratio=ratio, limit=limit, above=True, spoilt_by=find_all(throughput.records)))


@deep
def check_ver_against_ddppo(throughput: Throughput, must_hold: Must) -> None:
    """Variable rollouts of whichever environments are fastest, against lockstep."""
    scenario = "emulated/open-fridge:num_envs=16:rollout_steps=16"
    hold(throughput, must_hold, ("ver", "ddppo"), 1.6, gpus=2, scenario=scenario, repetitions=4, time_scale=0.35)


@deep
def check_preemption(throughput: Throughput, must_hold: Must) -> None:
    """Cutting the last of four ranks short, against waiting for it."""
    scenario = "emulated/open-fridge:num_envs=8:rollout_steps=32"
    over = ("ddppo", "ddppo:preempt.p=1.0")
    hold(throughput, must_hold, over, 1.0, gpus=4, scenario=scenario, repetitions=5, time_scale=0.2)
