"""The record of one run, `run.json`: it has a schema version, and every table and export is made from it.

A run leaves a record whatever happens to it. The figures of a single run are filled in when it ends. Those that compare
runs of a sweep (`scaling_factor`, `efficiency`) are filled in by `results.summary.scaled.scale` when runs are read.
All times are in seconds, shares are fractions from 0 to 1, and steps are samples, never frames: env steps, or agent
steps where environments have several agents (`results.records.units`).
A figure that could not be read is None and prints as n/a; it is never 0 instead.
"""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from rlbench.results.reading.untrusted import visible
from rlbench.results.records.units import StepUnit

SCHEMA_VERSION = 11

MOST = 2**63 - 1
"""Largest integer that SQLite and Parquet can hold."""

Status = Literal["finished", "failed", "timed-out", "interrupted", "invalid"]


def _none_if_not_finite(value: object) -> object:
    """Replaces NaN and infinity by None: JSON has neither, and neither is a measurement."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _one_line(value: object) -> object:
    return visible(" ".join(value.split())) if isinstance(value, str) else value


Measured = Annotated[float | None, BeforeValidator(_none_if_not_finite)]
Counted = Literal["learned", "collected"]
"""Which samples a rate counts: those learned, or all collected where a system does not report what it learned."""
Interval = tuple[float, float]
"""Lower and upper end of a 95 % interval."""


class _Part(BaseModel):
    # Pydantic builds the validators on first use, which keeps imports fast.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


class CellRecord(_Part):
    """The cell of the sweep that was run."""

    system: str
    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings that the user overrode, by dotted name, typed: `{"preempt.p": 0.8, "scenario.time_scale": 0.5}`."""
    scenario: str
    workload: str
    gpus: int = Field(ge=1, le=MOST)
    """Number of ranks: real or emulated GPUs, or shares of the CPU."""
    seed: int = Field(ge=-MOST, le=MOST)
    device: str
    """`cuda`, `cpu` or `emulated`; `predicted` where a model produced the figures and nothing ran."""
    protocol: str
    """How the window was chosen: a name in `harness.metering.window.PROTOCOLS`."""
    scaling: str = "weak"
    """With more GPUs, what stays the same: each rank's environments (`weak`), or all that they share (`strong`)."""
    hash: str
    """Content hash of the cell: equal for equal work."""


class Counters(_Part):
    """Counts over the whole run and all ranks; None where somebody else's system does not report a count."""

    env_steps: int = Field(default=0, ge=0, le=MOST)
    """Env steps collected, counted in the environment wrapper: steps of whole environments."""
    agent_steps: int | None = Field(default=None, ge=0, le=MOST)
    """Agent steps collected, where environments have several agents; None where an env step is one sample."""
    frames: int = Field(default=0, ge=0, le=MOST)
    """Simulator frames of those env steps."""
    learned: int | None = Field(default=0, ge=0, le=MOST)
    """Fresh samples learned, each counted once, on its first use."""
    reused: int | None = Field(default=0, ge=0, le=MOST)
    """Further uses of samples: more epochs, stale fill."""
    discarded: int | None = Field(default=0, ge=0, le=MOST)
    """Samples thrown away without being learned."""
    in_flight: int | None = Field(default=0, ge=0, le=MOST)
    """Samples that were collected, but neither learned nor discarded, when the run ended."""
    episodes: int = Field(default=0, ge=0, le=MOST)
    """Episodes that ended."""

    @property
    def samples(self) -> int:
        """Samples collected: agent steps, or env steps where environments have one agent."""
        return self.env_steps if self.agent_steps is None else self.agent_steps

    @property
    def unit(self) -> StepUnit:
        """What the samples are called."""
        return "env steps" if self.agent_steps is None else "agent steps"

    @property
    def conserved(self) -> bool:
        """Whether every sample is accounted for: collected = learned + discarded + in flight.

        Where a system does not report all of these, the sum of the others must not exceed the collected samples.
        """
        parts = (self.learned, self.discarded, self.in_flight)
        accounted = sum(part or 0 for part in parts)
        return self.samples >= accounted if None in parts else self.samples == accounted


class Reading(_Part):
    """A sensor's figure and its source; None prints as n/a."""

    value: Measured = None
    source: str = "not read"


class Lag(_Part):
    """Policy lag of the samples learned in the whole run: the learner's version minus the one that chose the action."""

    mean: float
    max: float


class WindowRecord(_Part):
    """The part of the run that counts."""

    protocol: str
    first_iteration: int
    """First iteration that counts, from 0."""
    last_iteration: int
    """Last iteration that counts, inclusive."""
    begin_s: float
    """Like `end_s`, on the clock of `series.parquet`."""
    end_s: float
    steady: bool
    """Whether the rate had settled, as far as the protocol can tell."""
    reason: str | None = None
    """Why it is not steady."""


class EnvSpread(_Part):
    """How the mean time differs between environments."""

    mean: float
    min: float
    max: float
    cv: float
    """Coefficient of variation: standard deviation / mean."""


class Figures(_Part):
    """Measured figures, over the window unless stated otherwise."""

    steps_per_s: Measured = None
    """Fresh samples learned in the window / its seconds, over all ranks; see `steps_counted` and `Counters.unit`."""
    steps_counted: Counted = "learned"
    """`collected` where the system does not report what it learned; the series then counts collected steps too."""
    steps_per_s_interval: Interval | None = None
    env_steps_per_s: Measured = None
    """Env steps of those agent steps per second; None where environments have one agent."""
    frames_per_s: Measured = None
    """Simulator frames of those samples per second."""
    scaling_factor: Measured = None
    """steps_per_s / that of the same cell on the fewest GPUs of the sweep."""
    scaling_factor_interval: Interval | None = None
    scaling_base_gpus: int | None = None
    """Those fewest GPUs, to which the scaling factor is relative."""
    efficiency: Measured = None
    """scaling_factor / (GPUs / scaling_base_gpus); 1 is linear scaling."""
    utilisation: Reading = Field(default_factory=Reading)
    """Busy share of the GPUs, from 0 to 1, mean over GPUs."""
    time_shares: dict[str, float] = Field(default_factory=dict)
    """Shares of the time of the ranks' threads, by span (`learn`, `wait:straggler`, ...), from 0 to 1."""
    env_time_shares: dict[str, float] = Field(default_factory=dict)
    """Shares of the environments' time: `simulate`, `reset`, `wait:inference` (for an action); over the whole run."""
    lag: Lag | None = None
    cpu_percent: Reading = Field(default_factory=Reading)
    """CPU use of the process tree, mean over the window; 100 is one core."""
    core_wait: Reading = Field(default_factory=Reading)
    """Time that ranks were ready to run but had no core / their time; a rank's threads add up, so it may exceed 1."""
    memory_bytes: Reading = Field(default_factory=Reading)
    """Peak private memory of the process tree."""
    gpu_memory_bytes: Reading = Field(default_factory=Reading)
    """Peak memory use of the fullest GPU."""
    gpu_power_w: Reading = Field(default_factory=Reading)
    """Mean over the window, summed over GPUs."""
    window: WindowRecord | None = None
    env_step_s: EnvSpread | None = None
    """Each environment's mean time of an env step, and how these means differ; of each agent, its share of that."""
    cpu_shares: dict[str, float] = Field(default_factory=dict)
    """CPU time of the thread / time, where it was read in spans of each kind of the ranks; what is missing had none."""
    env_cpu_share: Measured = None
    """The same in env steps; a simulator in another process or thread is not in it."""
    env_answer_s: Measured = None
    """CPU time of threads that step environments for each env step, beside steps and resets, whole run."""
    episode_return: Measured = None
    """Mean over the last finished episodes, like the next three."""
    episode_length: Measured = None
    """In samples of one environment, or of one agent's stay."""
    success: Measured = None
    spl: Measured = None
    """Success weighted by path length, from 0 to 1."""
    emulated: bool = False
    """Whether GPUs were emulated: the figures then describe the profile, not hardware."""
    predicted: bool = False
    """Whether a model produced the figures: nothing ran, and they describe the profile."""
    gains: dict[str, float] = Field(default_factory=dict)
    """How many times as many steps/s 10 % more of each stage would give, by stage. If the run is `predicted` the model
    says so, else the chain of its spans (`harness.timelines.chain`); empty where that does not tell."""
    time_scale: float = 1.0
    """Wall-clock seconds per second of the profile; every time and rate of the run is in the profile's seconds."""


class EnvFates(_Part):
    """What became of some samples: started = learned + discarded + in_flight."""

    name: str
    """The scenario part of their environments, or the length of their episodes in samples: `128 to 255`."""
    environments: int | None = Field(default=None, ge=0, le=MOST)
    """Number of environments of the part, or of agents."""
    started: int = Field(ge=0, le=MOST)
    """Collected, as the environment wrapper counts."""
    learned: int = Field(ge=0, le=MOST)
    discarded: int = Field(ge=0, le=MOST)
    in_flight: int = Field(ge=0, le=MOST)
    cut: int | None = Field(default=None, ge=0, le=MOST)
    """Not started: what rollouts lacked when they were cut; None where they have no fixed number of each environment,
    and for lengths."""


class Evenness(_Part):
    """A figure of each environment, and whether these differ by more than chance."""

    least: float
    """Like `most`, of one environment."""
    most: float
    even: float
    """What each would have if all were alike."""
    distance: float
    """Part of the samples that would have to be of other environments (total variation distance)."""
    p: Measured
    """Probability that chance alone gives that much; None with fewer than 5 iterations."""


class LearnedFrom(_Part):
    """What was learned from, over the whole run; without environments of lost ranks, where shares are compared."""

    environments: int = Field(ge=0, le=MOST)
    """Number of environments, of all ranks, or of their agents; each has a row in `environments.parquet`."""
    cut: int | None = Field(default=None, ge=0, le=MOST)
    """As in `EnvFates`, of all."""
    shares: Evenness
    """Each environment's share of the samples learned."""
    kept: Evenness | None = None
    """Learned / (learned + discarded) of each environment; None where nothing was discarded."""
    fast_favoured: Measured = None
    """Rank correlation of speed (env steps a second, resets included) and share of environments, from -1 to 1."""
    parts: list[EnvFates] = Field(default_factory=list)
    """Empty if the scenario names no parts, or more than 32."""
    lengths: list[EnvFates] = Field(default_factory=list)
    """In ascending order, `not ended` last; empty for a predicted run."""


class NodeRecord(_Part):
    """One machine of a run on several machines."""

    host: str
    first_rank: int = Field(ge=0, le=MOST)
    num_ranks: int = Field(ge=0, le=MOST)
    clock_error_s: Measured = None
    """Largest possible error of its times in the series and spans, relative to those of the other nodes."""
    machine: dict[str, Any] = Field(default_factory=dict)
    """The node's `harness.machine.machine.describe()`."""
    lost: str | None = None
    """How the node was lost while the run went on; None if it was not."""


class SweepFileRecord(_Part):
    """The sweep file that a run's options came from, or were saved in."""

    name: str
    """Its name, without its folder."""
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    """Hash of its bytes."""


class RunRecord(_Part):
    """One run, as `run.json` holds it."""

    schema_version: int = Field(default=SCHEMA_VERSION, ge=1)
    id: str
    """Name of the run folder."""
    sweep: str
    """The sweep that it belongs to: only runs of one sweep are scaled against each other."""
    status: Status
    reason: Annotated[str | None, BeforeValidator(_one_line)] = None
    """Why the run did not finish, or is invalid, in one line; None for a finished run."""
    cell: CellRecord
    configuration: dict[str, Any] = Field(default_factory=dict)
    """The whole resolved configuration."""
    counters: Counters = Field(default_factory=Counters)
    figures: Figures = Field(default_factory=Figures)
    learned_from: LearnedFrom | None = None
    """None where the system does not report it, and in records before schema 9."""
    machine: dict[str, Any] = Field(default_factory=dict)
    """`harness.machine.machine.describe()`."""
    nodes: list[NodeRecord] = Field(default_factory=list)
    """The machines of a run that used several, or one other than the harness's; else empty."""
    packages: dict[str, str] = Field(default_factory=dict)
    """Versions of the packages that the run used."""
    commit: str | None = None
    """Commit of the working folder; ends in `-dirty` if files were changed."""
    command: list[str]
    sweep_file: SweepFileRecord | None = None
    """None where all options were typed, and in records before schema 11."""
    started_at: str
    """ISO 8601 with time zone."""
    duration_s: float = Field(ge=0)
    """From the start of the run's processes to their end."""
    starting_s: Measured = None
    """The part of `duration_s` before the first iteration; None without one, and for a run on several machines."""
    ending_s: Measured = None
    """The part of `duration_s` after the last iteration."""
    warnings: list[str] = Field(default_factory=list)
    """What may have spoilt the figures, one line each."""

    @model_validator(mode="after")
    def _reason_fits_status(self) -> Self:
        if (self.status == "finished") != (self.reason is None):
            raise ValueError(f"reason={self.reason!r}: must be None for a finished run and a line for any other")
        return self

    @property
    def began(self) -> tuple[str, str]:
        """Sort key: the stamp in the sweep's name, which ascends even if the clock is set back, then the start."""
        stamp = re.match(r"\d{8}-\d{6}(?=-)", self.sweep)
        return stamp[0] if stamp else "", self.started_at
