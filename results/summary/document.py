"""What a set of runs says, as one document: everything that tables, reports and exports print comes from it.

`results.summary.summarise` makes it. Runs that differ in their seeds alone are one cell here. Units are those of
`results.records.schema`; every interval is a 95 % interval, `low` and `high` are None where there is none.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from results.fairness.differences import Difference
from results.records.schema import Counted, RunRecord
from results.summary.bottleneck import Bottleneck

SUMMARY_VERSION = 1
HISTORY_VERSION = 1

Kind = Literal["measured", "emulated", "predicted"]
"""On hardware; on emulated GPUs or a stretched clock; made up by a model."""
Repeated = Literal["seeds", "iterations"]
"""What an interval was resampled from: it speaks of other seeds, or of the run alone."""
Verdict = Literal["worse", "not worse", "unknown"]


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Estimate(_Document):
    """A figure with its interval."""

    value: float
    low: float | None = None
    high: float | None = None
    units: Repeated | None = None
    """None where there is no interval; of a ratio `seeds` only where both sides have several."""
    num_units: int = 0


class ToThreshold(_Document):
    """The median cost of getting to a threshold, by Kaplan and Meier."""

    cost: Literal["env_steps", "seconds", "gpu_seconds"]
    value: float | None
    """None where too many runs never got there."""
    low: float | None
    high: float | None
    at_least: float | None
    """Where the median is not known: what the runs spent without getting there, median."""
    num_runs: int
    num_censored: int
    """Runs that never got there."""


class Point(_Document):
    """A point of a learning curve: the mean over runs at a cost."""

    env_steps: float
    seconds: float
    gpu_seconds: float
    value: float
    low: float | None = None
    high: float | None = None
    """The lowest and the highest run, where there are several: not an interval."""


class Learning(_Document):
    """How well the runs of a cell learned."""

    metric: str
    final: Estimate
    """Interquartile mean over runs of the last 100 episodes' mean."""
    finals: list[float]
    """The last 100 episodes' mean of each run that has a curve."""
    area: Estimate | None
    """Mean of the curves against env steps, from where all of the group have begun to `area_env_steps`, over runs."""
    area_env_steps: float | None
    """As far as all runs of the same work on as many GPUs went."""
    threshold: float | None
    to_threshold: list[ToThreshold]
    curve: list[Point]
    against_reference: Verdict | None
    """Whether `area` is below the reference's, beyond the 95 % interval of the difference; unknown with one seed."""


class AcrossTasks(_Document):
    """How well the runs of a system learned over all tasks of a sweep, on one number of GPUs."""

    sweep: str
    kind: Kind
    gpus: int
    system: str
    metric: str
    tasks: list[str]
    """Scenario and workload of each; of a `return` those of one scenario, which have one scale."""
    num_runs: int
    final: Estimate
    """Interquartile mean of the last 100 episodes' means, over the runs of all tasks."""
    improvement: float | None
    """How likely a run of it ends better than one of the reference on the same task; None for the reference."""
    thresholds: list[float]
    shares: list[float]
    """The performance profile: the share of runs that ended above each threshold, mean over tasks."""


class CellSummary(_Document):
    """The runs that differ in their seeds alone."""

    id: str
    sweep: str
    system: str
    """With what was set, as `--systems` takes it."""
    scenario: str
    workload: str
    gpus: int
    device: str
    protocol: str
    kind: Kind
    time_scale: float
    runs: list[str]
    """Their ids, those that did not finish included; of a cell that was run again the one that counts."""
    seeds: list[int]
    """Of those that finished."""
    statuses: dict[str, int]
    """How many runs ended in each way."""
    steps_per_s: Estimate | None = None
    frames_per_s: float | None = None
    scaling: Estimate | None = None
    """steps_per_s / that of the same on `scaling_base_gpus`, the fewest of the sweep."""
    scaling_base_gpus: int | None = None
    efficiency: Estimate | None = None
    utilisation: float | None = None
    utilisation_source: str = "not read"
    time_shares: dict[str, float] = Field(default_factory=dict)
    env_time_shares: dict[str, float] = Field(default_factory=dict)
    lag_mean: float | None = None
    lag_max: float | None = None
    uses_per_sample: float | None = None
    """(learned + reused) / learned."""
    useful_fraction: float | None = None
    """Env steps learned / (learned + discarded): what was in flight when a run ended is neither."""
    cpu_percent: float | None = None
    core_wait: float | None = None
    """How long ranks were ready to run and had no core, as a share of their time."""
    memory_bytes: float | None = None
    gpu_power_w: float | None = None
    bottleneck: Bottleneck | None = None
    learning: Learning | None = None
    steady: bool | None = None
    steps_counted: Counted = "learned"
    """Which env steps the rate is of."""


class Comparison(_Document):
    """How many times the steps/s of one system are those of another, on the same work and as many GPUs."""

    sweep: str
    scenario: str
    workload: str
    gpus: int
    kind: Kind
    system: str
    against: str
    ratio: Estimate
    comparable: bool
    """Whether nothing but the systems' own choices differed; else `Fairness` says what did."""


class Fairness(_Document):
    """What the runs of one group of a table, the same work on as many GPUs, differ in beside their systems."""

    sweep: str
    scenario: str
    workload: str
    gpus: int
    differences: list[Difference]


class Finding(_Document):
    """Something that spoils figures, or may."""

    severity: Literal["unreadable", "failed", "warning"]
    text: str
    runs: list[str]
    """Ids of the runs that it is about, with their sweep before a slash if there are several; an unreadable folder."""


class Reference(_Document):
    """A figure of somebody else, to hold ours against: what a paper published."""

    scenario: str
    workload: str
    gpus: int
    system: str
    steps_per_s: float
    source: str


class Thread(_Document):
    """What a thread of a rank, or its environments in the mean, did in one iteration."""

    name: str
    milliseconds: dict[str, float]
    """By kind of span."""


class Iteration(_Document):
    """An iteration of a run whose worker timeline is shown."""

    sweep: str
    run: str
    label: str
    """The system, and the number of GPUs."""
    what: str
    """Which iteration it is."""
    begin_s: float
    """On the run's clock."""
    seconds: float
    threads: list[Thread]


class Revision(_Document):
    """A cell of a revision on a machine class: a row of a history."""

    history_version: int = HISTORY_VERSION
    commit: str
    measured_at: str
    """When its first run began, ISO 8601."""
    machine: str
    """The class."""
    system: str
    scenario: str
    workload: str
    gpus: int
    device: str
    length: str
    """Protocol and limits of its runs: `protocol=steady seconds=30`."""
    kind: Kind
    steps_per_s: float = Field(gt=0, allow_inf_nan=False)
    low: float | None = Field(gt=0, allow_inf_nan=False)
    high: float | None = Field(gt=0, allow_inf_nan=False)
    """Ends of the 95 % interval, where there is one."""
    num_runs: int

    @property
    def series(self) -> tuple[str, ...]:
        """What rows have in common that are drawn as one line."""
        return (self.machine, self.system, self.scenario, self.workload, str(self.gpus), self.device, self.length)

    @property
    def key(self) -> tuple[str, ...]:
        """What there is one row of."""
        return (self.commit, *self.series)


class ChangePoint(_Document):
    """Where a series has changed."""

    commit: str
    """The first revision of the new level."""
    ratio: float
    """The level from there to the next change / the one before."""


class Series(_Document):
    """A cell on a machine class over revisions, the oldest first."""

    name: str
    """The cell: `ver, emulated/open-fridge, homogeneous, 8 emulated GPUs`."""
    machine: str
    rows: list[Revision]
    changes: list[ChangePoint]


class Summary(_Document):
    """Everything."""

    summary_version: int = SUMMARY_VERSION
    reference: str | None
    """The system that learning and speed are held against: the first of the newest sweep, unless one was named."""
    seed: int
    """Of the generators that intervals were drawn with."""
    answers: list[str]
    """A few sentences for each scenario and workload of each sweep."""
    findings: list[Finding]
    fairness: list[Fairness]
    cells: list[CellSummary]
    comparisons: list[Comparison]
    across_tasks: list[AcrossTasks]
    published: list[Reference]
    iterations: list[Iteration] = Field(default_factory=list)
    """Those of the worker timelines, in reports and in their JSON; else none are read."""
    history: list[Series] = Field(default_factory=list)
    """Of a history file, where a report is given one."""
    runs: list[RunRecord]
    """All, also those that were run again, with the figures that compare runs of a sweep filled in."""

    def to_json(self) -> str:
        """As a document."""
        return self.model_dump_json(indent=1) + "\n"

    def cell(self, **wanted: Any) -> CellSummary:
        """The one cell with these fields. Raises LookupError when there are none, or several."""
        found = [each for each in self.cells if all(getattr(each, name) == value for name, value in wanted.items())]
        if len(found) != 1:
            raise LookupError(f"{len(found)} cells with {wanted}")
        return found[0]
