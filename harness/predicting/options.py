"""The options of `rlbench predict`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rlbench.harness.plan.options import ENV_STEPS_HELP, ITERATIONS_HELP, SCALING_HELP


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictOptions:
    """The options as typed."""

    systems: Annotated[
        str | None,
        "Systems, with settings, as `rlbench run` takes them; or all. [needed unless --from-run: there the run's own]",
    ] = None
    gpus: Annotated[str, "GPU counts: 1,8,1024 or 1..4."] = "1"
    scenario: Annotated[
        str | None,
        "Scenarios that state their times: emulated/NAME, or emulated/path/to/profile.toml. "
        "[default: emulated/open-fridge]",
    ] = None
    workload: Annotated[str | None, "homogeneous, heterogeneous, or both with a comma. [default: homogeneous]"] = None
    seeds: Annotated[str, "Seeds: 0,1,2 or 0..4."] = "0"
    protocol: Annotated[
        str,
        "Which iterations count, and how long a run is. steady: 6 rollouts of each rank, less the warm-up "
        "that is found in them; ddppo: 10 iterations, the last 5 counted; sample-factory: 6 minutes, "
        "the last 5 counted.",
    ] = "steady"
    scaling: Annotated[str, SCALING_HELP] = "weak"
    iterations: Annotated[int | None, ITERATIONS_HELP] = None
    seconds: Annotated[float | None, "End a run after so many seconds of the profile."] = None
    env_steps: Annotated[int | None, ENV_STEPS_HELP] = None
