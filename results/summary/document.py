"""The summary of a set of runs as one document: everything that tables, reports and exports print comes from it.

`results.summary.summarise` makes it. Here a cell is all runs that differ only in their seeds. Units are those of
`results.records.schema`. Every interval is a 95 % interval; `low` and `high` are None where there is none.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from rlbench.results.fairness.differences import Difference
from rlbench.results.records.schema import Counted, RunRecord
from rlbench.results.records.units import StepUnit
from rlbench.results.summary.bottleneck import Bottleneck

SUMMARY_VERSION = 3
HISTORY_VERSION = 2

Kind = Literal["measured", "emulated", "predicted"]
"""On hardware; on emulated GPUs or with a stretched clock; computed by a model."""
Repeated = Literal["seeds", "iterations"]
"""What an interval comes from: it covers other seeds, or that run only."""
Verdict = Literal["worse", "not worse", "unknown"]


class Document(BaseModel):
    """A document, or a part of one."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Estimate(Document):
    """A figure with its interval."""

    value: float
    low: float | None = None
    high: float | None = None
    units: Repeated | None = None
    """What was repeated, where that is known; for a ratio, `seeds` only if both sides have several."""
    num_units: int = 0
    needs: int | None = None
    """Without an interval: how many units one needs at least, as uneven as these are."""


class ToThreshold(Document):
    """The median cost of reaching a threshold, by Kaplan and Meier."""

    cost: Literal["env_steps", "seconds", "gpu_seconds"]
    value: float | None
    """None where too many runs never reached it."""
    low: float | None
    high: float | None
    at_least: float | None
    """Lower bound of an unknown median: the median of what all runs spent, whether they got there or not."""
    num_runs: int
    num_censored: int
    """Runs that never reached it."""


class CurvePoint(Document):
    """A point of a learning curve: the mean over runs at a cost."""

    env_steps: float
    seconds: float
    gpu_seconds: float
    value: float
    low: float | None = None
    high: float | None = None
    """`low` and `high` are the lowest and the highest run, where there are several: not an interval."""


class Learning(Document):
    """How well the runs of a cell learned."""

    metric: str
    final: Estimate
    """Interquartile mean over runs of the mean of the last 100 episodes."""
    finals: list[float]
    """Mean of the last 100 episodes, for each finished run with a curve."""
    area: Estimate | None
    """Mean over runs of the curve's mean over env steps, from where the group's curves begin to `area_env_steps`."""
    area_env_steps: float | None
    """Env steps that all runs of the same work on as many GPUs reached."""
    threshold: float | None
    to_threshold: list[ToThreshold]
    curve: list[CurvePoint]
    against_reference: Verdict | None
    """Whether `area` is below the reference's, beyond the 95 % interval of the difference; unknown with one seed."""


class AcrossTasks(Document):
    """How well a system learned over all tasks of a sweep, on one number of GPUs."""

    sweep: str
    kind: Kind
    gpus: int
    system: str
    metric: str
    tasks: list[str]
    """Scenario and workload of each task; for `return` only those of one scenario, which share a scale."""
    num_runs: int
    final: Estimate
    """Interquartile mean over the runs of all tasks of the mean of the last 100 episodes."""
    improvement: float | None
    """Probability that a run ends better than one of the reference on the same task; None for the reference."""
    thresholds: list[float]
    shares: list[float]
    """The performance profile: the share of runs that ended above each threshold, mean over tasks."""


class CellSummary(Document):
    """The runs that differ only in their seeds."""

    id: str
    sweep: str
    system: str
    """With its settings, as `--systems` takes it."""
    scenario: str
    workload: str
    gpus: int
    device: str
    protocol: str
    kind: Kind
    time_scale: float
    runs: list[str]
    """Ids of the runs, including unfinished ones; of a cell that was run again, only of the run that counts."""
    seeds: list[int]
    """Seeds of the finished runs."""
    statuses: dict[str, int]
    """Number of runs that ended with each status."""
    unit: StepUnit = "env steps"
    """What its samples are, and so what its rate counts, its learning curve costs and `area_env_steps` are in."""
    steps_per_s: Estimate | None = None
    env_steps_per_s: float | None = None
    """Where the rate is of agent steps, that of env steps."""
    frames_per_s: float | None = None
    scaling: Estimate | None = None
    """steps_per_s / that of the same cell on `scaling_base_gpus`, the fewest GPUs of the sweep."""
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
    """Samples learned / (learned + discarded); those in flight when a run ended count as neither."""
    cpu_percent: float | None = None
    core_wait: float | None = None
    """Time that ranks were ready to run but had no core, as a share of their time."""
    memory_bytes: float | None = None
    gpu_power_w: float | None = None
    bottleneck: Bottleneck | None = None
    learning: Learning | None = None
    steady: bool | None = None
    leads: bool = False
    """Whether it is the fastest of its work and number of GPUs, among those that may be compared."""
    steps_counted: Counted = "learned"
    """Which samples the rate counts."""
    assumed: list[str] = Field(default_factory=list)
    """Keys of the profile that the runs used and that nobody has measured."""


class Comparison(Document):
    """The steps/s of one system as a multiple of another's, on the same work and number of GPUs."""

    sweep: str
    scenario: str
    workload: str
    gpus: int
    kind: Kind
    system: str
    against: str
    ratio: Estimate
    comparable: bool
    """Whether only the systems' own choices differ; otherwise `Fairness` names the other differences."""


class Fairness(Document):
    """How the runs of a group (the same work and number of GPUs) differ apart from their systems."""

    sweep: str
    scenario: str
    workload: str
    gpus: int
    differences: list[Difference]


class Finding(Document):
    """A problem that spoils figures, or may spoil them."""

    severity: Literal["unreadable", "failed", "partial", "warning"]
    text: str
    runs: list[str]
    """Ids of the runs concerned, as `sweep/id` if there are several sweeps; or the unreadable folder."""


class Reference(Document):
    """A figure that a paper published, to compare ours with."""

    scenario: str
    workload: str
    gpus: int
    system: str
    steps_per_s: float
    source: str


class Thread(Document):
    """How a thread of a rank, or the mean of its environments, spent one iteration."""

    name: str
    milliseconds: dict[str, float]
    """Time by kind of span."""


class Iteration(Document):
    """An iteration of a run whose worker timeline is shown."""

    sweep: str
    run: str
    label: str
    """The system, and the number of GPUs."""
    what: str
    """Which iteration it is."""
    begin_s: float
    """Time on the run's clock."""
    seconds: float
    threads: list[Thread]


class HistoryRow(Document):
    """A row of a history: a cell of a revision on a machine class."""

    history_version: int = HISTORY_VERSION
    commit: str
    measured_at: str
    """When its first run began, ISO 8601 in UTC."""
    machine: str
    """The machine class."""
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
    """`low` and `high` are the ends of the 95 % interval, where there is one."""
    env_steps_per_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Where `steps_per_s` counts agent steps, env steps per second."""
    num_runs: int

    @property
    def unit(self) -> StepUnit:
        """What `steps_per_s` counts."""
        return "env steps" if self.env_steps_per_s is None else "agent steps"

    @property
    def series(self) -> tuple[str, ...]:
        """Key of a series: the fields that are equal in all its rows."""
        return (self.machine, self.system, self.scenario, self.workload, str(self.gpus), self.device, self.length)

    @property
    def key(self) -> tuple[str, ...]:
        """Key of a row in a history."""
        return (self.commit, *self.series)


class ChangePoint(Document):
    """A point where a series changes its level."""

    commit: str
    """The first revision of the new level."""
    ratio: float
    """Level from this point to the next change / the level before."""


class HistorySeries(Document):
    """A cell on a machine class over revisions, the oldest first."""

    name: str
    """Cell and length of the runs: `ver, emulated/open-fridge, homogeneous, 8 emulated GPUs, protocol=steady`."""
    machine: str
    rows: list[HistoryRow]
    changes: list[ChangePoint]


class Summary(Document):
    """The whole summary."""

    summary_version: int = SUMMARY_VERSION
    reference: str | None
    """The system with which learning and speed are compared: the first of the newest sweep, unless one was named."""
    answers: list[str]
    """A few sentences for each scenario and workload of each sweep."""
    findings: list[Finding]
    fairness: list[Fairness]
    cells: list[CellSummary]
    comparisons: list[Comparison]
    across_tasks: list[AcrossTasks]
    published: list[Reference]
    iterations: list[Iteration] = Field(default_factory=list)
    """Iterations shown as worker timelines; only reports and their JSON have them."""
    history: list[HistorySeries] = Field(default_factory=list)
    """Series of the history file that a report is given."""
    runs: list[RunRecord]
    """All runs, including earlier runs of cells that were run again; the figures that compare runs are filled in."""

    def to_json(self) -> str:
        """The document as JSON."""
        return self.model_dump_json(indent=1) + "\n"

    def cell(self, **wanted: Any) -> CellSummary:
        """The only cell with these fields. Raises LookupError if there is none, or more than one."""
        found = [each for each in self.cells if all(getattr(each, name) == value for name, value in wanted.items())]
        if len(found) != 1:
            raise LookupError(f"{len(found)} cells with {wanted}")
        return found[0]
