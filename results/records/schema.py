"""The record of one run: `run.json`, versioned, the one thing that every table and export is made of.

A run leaves a record whatever happened to it. Figures of a single run are filled in when it ends; those that compare
runs of a sweep (`scaling_factor`, `efficiency`) are filled in by `results.summary.scaled.scale` when the runs are read.
All times are seconds, shares and efficiencies fractions from 0 to 1, and steps are env steps (never frames).
A figure that could not be read is None and prints as n/a; it is never 0 instead.
"""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from results.reading.untrusted import visible

SCHEMA_VERSION = 8

MOST = 2**63 - 1
"""What an integer of a database, or of Parquet, can be."""

Status = Literal["finished", "failed", "timed-out", "interrupted", "invalid"]


def _none_if_not_finite(value: object) -> object:
    """JSON knows neither NaN nor infinity, and neither is a measurement."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _one_line(value: object) -> object:
    return visible(" ".join(value.split())) if isinstance(value, str) else value


Measured = Annotated[float | None, BeforeValidator(_none_if_not_finite)]
Counted = Literal["learned", "collected"]
"""Which env steps a rate is of: those learned from, or all, where a system does not report what it learned."""
Interval = tuple[float, float]
"""A 95 % interval: lower and upper end."""


class _Part(BaseModel):
    # Built on first use: imports stay quick.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


class Cell(_Part):
    """The point of the sweep that was run."""

    system: str
    settings: dict[str, Any] = Field(default_factory=dict)
    """What the user overrode, by dotted name, with typed values: `{"preempt.p": 0.8, "scenario.time_scale": 0.5}`."""
    scenario: str
    workload: str
    gpus: int = Field(ge=1, le=MOST)
    """Ranks: real or emulated GPUs, or shares of the CPU."""
    seed: int = Field(ge=-MOST, le=MOST)
    device: str
    """`cuda`, `cpu` or `emulated`; `predicted` where a model made the run up."""
    protocol: str
    """How the window was chosen: a name of `harness.metering.window.PROTOCOLS`."""
    hash: str
    """Content hash of the cell: equal for equal work."""


class Counters(_Part):
    """Whole-run counts, over all ranks; None: the system is somebody else's and does not report it."""

    env_steps: int = Field(default=0, ge=0, le=MOST)
    """Env steps collected, counted in the environment wrapper."""
    frames: int = Field(default=0, ge=0, le=MOST)
    """Simulator frames of those env steps."""
    learned: int | None = Field(default=0, ge=0, le=MOST)
    """Fresh samples learned, each counted once, on its first use."""
    reused: int | None = Field(default=0, ge=0, le=MOST)
    """Further uses of samples: more epochs, stale fill."""
    discarded: int | None = Field(default=0, ge=0, le=MOST)
    """Samples thrown away unlearned."""
    in_flight: int | None = Field(default=0, ge=0, le=MOST)
    """Samples collected that were neither learned nor discarded when the run ended."""
    episodes: int = Field(default=0, ge=0, le=MOST)
    """Episodes that ended."""

    @property
    def conserved(self) -> bool:
        """Whether every env step is accounted for: collected = learned + discarded + in flight.

        Where some of these are not reported, whether the others are no more than was collected.
        """
        parts = (self.learned, self.discarded, self.in_flight)
        accounted = sum(part or 0 for part in parts)
        return self.env_steps >= accounted if None in parts else self.env_steps == accounted


class Reading(_Part):
    """A figure of a sensor, with where it comes from; None prints as n/a."""

    value: Measured = None
    source: str = "not read"


class Lag(_Part):
    """Policy lag of learned samples: the learner's policy version less the one that chose the action."""

    mean: float
    max: float


class Window(_Part):
    """The part of the run that counts."""

    protocol: str
    first_iteration: int
    """First iteration that counts, from 0."""
    last_iteration: int
    """Last iteration that counts, itself included."""
    begin_s: float
    """On the clock of `series.parquet`."""
    end_s: float
    steady: bool
    """Whether the rate had settled, as far as the protocol can tell."""
    reason: str | None = None
    """Why it is not steady."""


class Spread(_Part):
    """How a mean time differs between environments."""

    mean: float
    min: float
    max: float
    cv: float
    """Coefficient of variation: standard deviation / mean."""


class Figures(_Part):
    """What was measured, in the window unless said otherwise."""

    steps_per_s: Measured = None
    """Fresh env steps learned in the window / its seconds, over all ranks; see `steps_counted`."""
    steps_counted: Counted = "learned"
    """`collected` where the system does not report what it learned; so are the parts of the series then."""
    steps_per_s_interval: Interval | None = None
    frames_per_s: Measured = None
    """Simulator frames of the same."""
    scaling_factor: Measured = None
    """steps_per_s / that of the same cell on the fewest GPUs of the sweep."""
    scaling_factor_interval: Interval | None = None
    scaling_base_gpus: int | None = None
    """The fewest GPUs: what the scaling factor is relative to."""
    efficiency: Measured = None
    """scaling_factor / (GPUs / scaling_base_gpus); 1 is linear scaling."""
    utilisation: Reading = Field(default_factory=Reading)
    """Busy share of the GPUs, from 0 to 1, mean over GPUs."""
    time_shares: dict[str, float] = Field(default_factory=dict)
    """Share of the time of the ranks' threads by span (`learn`, `wait:straggler`, ...), from 0 to 1."""
    env_time_shares: dict[str, float] = Field(default_factory=dict)
    """Share of the environments' time in `simulate`, `reset`, `wait:inference` (for an action); of the whole run."""
    lag: Lag | None = None
    cpu_percent: Reading = Field(default_factory=Reading)
    """Mean over the window, of the process tree; 100 is one core."""
    core_wait: Reading = Field(default_factory=Reading)
    """How long ranks were ready to run and had no core / their time; threads of one add up, so it may exceed 1."""
    memory_bytes: Reading = Field(default_factory=Reading)
    """Peak private memory of the process tree."""
    gpu_memory_bytes: Reading = Field(default_factory=Reading)
    """Peak of the fullest GPU."""
    gpu_power_w: Reading = Field(default_factory=Reading)
    """Mean over the window, summed over GPUs."""
    window: Window | None = None
    env_step_s: Spread | None = None
    """Time of one env step: of each environment the mean, over the environments these."""
    episode_return: Measured = None
    """Mean of the last finished episodes, as the next three."""
    episode_length: Measured = None
    """Env steps."""
    success: Measured = None
    spl: Measured = None
    """Success weighted by path length, from 0 to 1."""
    emulated: bool = False
    """Whether GPUs were emulated: the figures then speak of the profile, not of hardware."""
    predicted: bool = False
    """Whether a model made the run up: nothing was run, and the figures speak of the profile."""
    time_scale: float = 1.0
    """Wall-clock seconds per second of the profile; every time and rate of the run is in the profile's seconds."""


class Node(_Part):
    """One machine of a run that had several."""

    host: str
    first_rank: int = Field(ge=0, le=MOST)
    num_ranks: int = Field(ge=0, le=MOST)
    clock_error_s: Measured = None
    """By how much its times in the series and spans may be wrong against those of the others, at most."""
    machine: dict[str, Any] = Field(default_factory=dict)
    """`harness.machine.machine.describe()` there."""
    lost: str | None = None
    """How it was lost while the run went on, if it was."""


class RunRecord(_Part):
    """One run, as `run.json` holds it."""

    schema_version: int = Field(default=SCHEMA_VERSION, ge=1)
    id: str
    """The name of the run folder."""
    sweep: str
    """Which sweep it belongs to: only runs of one sweep are scaled against each other."""
    status: Status
    reason: Annotated[str | None, BeforeValidator(_one_line)] = None
    """Why it did not finish, or is invalid, in one line; None for a finished run."""
    cell: Cell
    configuration: dict[str, Any] = Field(default_factory=dict)
    """The whole resolved configuration."""
    counters: Counters = Field(default_factory=Counters)
    figures: Figures = Field(default_factory=Figures)
    machine: dict[str, Any] = Field(default_factory=dict)
    """`harness.machine.machine.describe()`."""
    nodes: list[Node] = Field(default_factory=list)
    """The machines of a run that had several, or one that was not the harness's own; else empty."""
    packages: dict[str, str] = Field(default_factory=dict)
    """Versions of what the run used."""
    commit: str | None = None
    """Of the working folder; ends in `-dirty` when files were changed."""
    command: list[str]
    started_at: str
    """ISO 8601 with time zone."""
    duration_s: float = Field(ge=0)
    """From the start of its processes to their end."""
    starting_s: Measured = None
    """Of these, until the first iteration began; None where none did, and of a run on several machines."""
    ending_s: Measured = None
    """Of these, after the last iteration had ended."""
    warnings: list[str] = Field(default_factory=list)
    """What may have spoilt the figures, a line each."""

    @model_validator(mode="after")
    def _reason_fits_status(self) -> Self:
        if (self.status == "finished") != (self.reason is None):
            raise ValueError(f"reason={self.reason!r}: must be None for a finished run and a line for any other")
        return self

    @property
    def began(self) -> tuple[str, str]:
        """Orders runs by when they were begun: by the names of their sweeps, which ascend wherever the clock is set."""
        stamp = re.match(r"\d{8}-\d{6}(?=-)", self.sweep)
        return stamp[0] if stamp else "", self.started_at
