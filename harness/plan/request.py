"""Turns the options of `rlbench run` into a request; chooses what was left open, and says so in one line."""

from __future__ import annotations

from dataclasses import dataclass

from rlbench.harness.contract.budget import Limits, check_limit, parse_condition
from rlbench.harness.devices.kinds import DeviceKind, choose_device
from rlbench.harness.metering.window import PROTOCOLS
from rlbench.harness.plan.options import RunOptions
from rlbench.harness.plan.scaling import Scaling, check_scaling
from rlbench.results.reading.names import known_names

EMULATED_SCENARIO = "emulated/open-fridge"
QUICK_TIME_SCALE = 0.5
"""Time scale of the default emulated scenario: a sweep over 1 and 8 GPUs then takes minutes on two cores."""
REAL_SCENARIO = "pointnav"
GIB = 2**30


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What `rlbench run` was asked for; lists, such as `systems`, are still text."""

    systems: str
    gpus: str
    scenarios: str
    workloads: str
    seeds: str
    device: DeviceKind
    oversubscribe: bool
    protocol: str
    scaling: Scaling = "weak"
    limits: Limits
    stall_s: float
    time_limit_s: float
    memory_limit_bytes: int | None = None
    elsewhere: bool = False
    """The runs are on other machines, so their devices are not looked for here."""


def complete(asked: RunOptions, *, elsewhere: bool = False) -> tuple[Request, str | None]:
    """The request, and the line that says what was chosen for the user, if anything. Raises ValueError.

    `elsewhere`: the runs are on other machines, whose GPUs cannot be seen from here.
    """
    if not asked.systems:
        raise ValueError("--systems: name at least one, such as sync,ddppo; `rlbench list systems` names them")
    if asked.protocol not in PROTOCOLS:
        raise ValueError(f"--protocol {asked.protocol}: unknown; {known_names(asked.protocol, PROTOCOLS)}")
    check_limit("--time-limit", asked.time_limit)
    check_limit("--stall", asked.stall)
    if asked.memory_limit is not None:
        check_limit("--memory-limit", asked.memory_limit)
    if elsewhere and asked.device is None:
        raise ValueError("--device: say cuda, cpu or emulated; what other machines have is not to be seen from here")
    device = choose_device(asked.device)
    scenarios, line = _scenarios(asked, device)
    until = None if asked.until is None else "{}{}{:.12g}".format(*parse_condition(asked.until))
    limits = Limits(iterations=asked.iterations, seconds=asked.seconds, env_steps=asked.env_steps, until=until)
    if limits.is_empty:
        protocol = PROTOCOLS[asked.protocol]
        limits = Limits(iterations=protocol.num_iterations, seconds=protocol.seconds)
    request = Request(
        systems=asked.systems,
        gpus=asked.gpus,
        scenarios=scenarios,
        workloads=asked.workload,
        seeds=asked.seeds,
        device=device,
        oversubscribe=asked.oversubscribe,
        elsewhere=elsewhere,
        protocol=asked.protocol,
        scaling=check_scaling(asked.scaling),
        limits=limits,
        stall_s=asked.stall,
        time_limit_s=asked.time_limit,
        memory_limit_bytes=None if asked.memory_limit is None else int(asked.memory_limit * GIB),
    )
    return request, line


def _scenarios(asked: RunOptions, device: DeviceKind) -> tuple[str, str | None]:
    """The scenarios, with the time scale as a setting, and the line that says what was chosen."""
    scenarios, scale = asked.scenario, asked.time_scale
    lines = []
    if device == "emulated" and asked.device is None:
        lines.append("no GPU here: using emulated GPUs")
    if scenarios is None:
        scenarios = EMULATED_SCENARIO if device == "emulated" else REAL_SCENARIO
        if device == "emulated" and scale is None:
            scale = QUICK_TIME_SCALE
        shown = f" (time scale {scale:g})" if scale is not None else ""
        others = "others with --device and --scenario" if asked.device is None else "another with --scenario"
        lines.append(f"scenario {scenarios}{shown}; choose {others}")
    if scale is not None:
        names = scenarios.split(",")
        for name in names:
            if not name.strip().startswith("emulated"):
                raise ValueError(f"--time-scale {scale:g}: {name} takes real time; it goes with emulated/… only")
        scenarios = ",".join(f"{name.strip()}:time_scale={scale:.12g}" for name in names)
    return scenarios, ", ".join(lines) or None
