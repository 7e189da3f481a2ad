"""The options of `rlbench run` that say what is run; `harness/launch/options.py` has those that say where.

Each field is an option of the command, with its help text; see `harness.cli.flags`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

COMMAS = "commas"
"""Marks an option that takes several values with commas; a sweep file may have a list of them."""

ITERATIONS_HELP = "End a run after so many iterations. Limits replace the protocol's; the first counts."
ENV_STEPS_HELP = "End a run after so many env steps learned; of environments with several agents, agent steps."

SCALING_HELP = "With more GPUs, what stays the same: each rank's environments (weak), or all that ranks share (strong)."


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOptions:
    """The options as typed; None where there is no default, or one that depends on other options."""

    systems: Annotated[
        str | None,
        "Systems, with settings: sync,ddppo:preempt.p=0.8; all is every one that can run on the scenario; "
        "mine=./trainer.toml is a command of your own (docs/external.md). "
        "`rlbench list` names them. [needed, typed or in SWEEP_FILE, unless --resume]",
        COMMAS,
    ] = None
    gpus: Annotated[str, "GPU counts: 1,8 or 1..4; on the CPU, how many ranks share it.", COMMAS] = "1"
    scenario: Annotated[
        str | None,
        "Scenarios, with settings: vizdoom/basic:num_envs=4. "
        "[default: emulated/open-fridge on emulated GPUs, else pointnav]",
        COMMAS,
    ] = None
    workload: Annotated[str, "homogeneous, heterogeneous, or both with a comma.", COMMAS] = "homogeneous"
    seeds: Annotated[str, "Seeds: 0,1,2 or 0..4.", COMMAS] = "0"
    protocol: Annotated[
        str,
        "How long a run is, and which iterations count. steady: 30 s of training, less the warm-up that is "
        "found in them; ddppo: 10 iterations, the last 5 counted; sample-factory: 6 minutes, the last 5 counted.",
    ] = "steady"
    scaling: Annotated[str, SCALING_HELP] = "weak"
    iterations: Annotated[int | None, ITERATIONS_HELP] = None
    seconds: Annotated[
        float | None,
        "End a run after so many seconds of training, on the wall clock; a rollout that is under way then is "
        "broken off a quarter of them later, 3 s at least.",
    ] = None
    env_steps: Annotated[int | None, ENV_STEPS_HELP] = None
    until: Annotated[
        str | None,
        "End a run when the mean of a metric over the last 100 episodes is reached: success>=0.9. "
        "Metrics: return, length, success, spl.",
    ] = None
    device: Annotated[str | None, "cuda, cpu or emulated. [default: cuda where there is a GPU, else emulated]"] = None
    time_scale: Annotated[float | None, "Emulated scenarios: 0.5 runs them twice as fast as their profile."] = None
    oversubscribe: Annotated[bool, "Let several ranks share a GPU."] = False
    time_limit: Annotated[float, "Seconds after which a run is ended as timed-out."] = 3600.0
    stall: Annotated[
        float,
        "Seconds after which an environment that does not answer is hung; a run that neither steps nor learns "
        "is after 5 times as long.",
    ] = 60.0
    memory_limit: Annotated[
        float | None, "GiB that the processes of a run may have. [default: 90 % of the machine's memory]"
    ] = None
