"""A run as experiment trackers take it: settings, figures, and the points of its course.

TensorBoard, MLflow and Weights & Biases get the same names and values from here. The step of a point is the number of
fresh samples (env steps; agent steps where environments have several agents) that all ranks had learned by then; its
time is when that was, on the wall clock. Names are those of CleanRL where it has one (`charts/episodic_return`,
`charts/SPS`, `losses/policy_loss`):

    charts/…     returns and the like, of the last 100 episodes; SPS (steps/s) and policy lag of the point's iterations;
                 run_seconds, the run's own clock
    losses/…     statistics of learning
    stats/…      whatever else the system has put into its series
    time/…       shares of the ranks' time in the point's iterations
    telemetry/…  the machine, every few seconds
    figures/…    the run's final figures, as in run.json, with both ends of their intervals
    counters/…   the run's final counts
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from rlbench.reports.exports.course import Clock, Point, read_points
from rlbench.reports.exports.export import flat
from rlbench.reports.exports.names import name_of
from rlbench.reports.figures import format as fmt
from rlbench.results.reading.untrusted import visible

if TYPE_CHECKING:
    from rlbench.results.records.schema import RunRecord
    from rlbench.results.records.store import StoredRun

Kind = Literal["measured", "emulated", "predicted"]
"""What figures speak of: this hardware, the profile of emulated GPUs, or a model in which nothing ran."""
Setting = bool | int | float | str
MOST_TEXT = 500
"""Longest setting or note; trackers refuse more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tracked:
    """A run, for a tracker; all texts are visible, all names are parts joined by `/`, none of them `.` or `..`."""

    sweep: str
    id: str
    name: str
    """What it is called there: its id, and after it its kind, unless it was measured."""
    kind: Kind
    status: str
    notes: Sequence[str]
    """Its kind, why it did not finish, and its warnings, a line each."""
    tags: Mapping[str, str]
    settings: Mapping[str, Setting]
    """Of the system and the scenario, by dotted name."""
    figures: Mapping[str, float]
    began_s: float
    """Like `ended_s`, in seconds since 1970."""
    ended_s: float
    points: Sequence[Point]
    """In the order of their steps."""

    @property
    def key(self) -> str:
        """16 hex digits, which a run keeps wherever its folder is."""
        return hashlib.sha256(f"{self.sweep}/{self.id}".encode()).hexdigest()[:16]

    @property
    def last_step(self) -> int:
        """The step of the last point, 0 where there is none."""
        return self.points[-1].step if self.points else 0


def tracked(run: StoredRun) -> Tracked:
    """A run, and the points of its series and telemetry; a predicted run, which has no course, has none.

    Raises ValueError naming a damaged file.
    """
    record = run.record
    kind = kind_of(record)
    began_s = datetime.fromisoformat(record.started_at).timestamp()
    clock = Clock(zero_s=began_s + (record.starting_s or 0.0), scale=record.figures.time_scale)
    return Tracked(
        sweep=visible(record.sweep),
        id=visible(record.id),
        name=visible(record.id) if kind == "measured" else f"{visible(record.id)}-{kind}",
        kind=kind,
        status=record.status,
        notes=list(_notes(record, kind)),
        tags=_tags(record, kind),
        settings=_settings(record, kind),
        figures=_figures(record),
        began_s=began_s,
        ended_s=began_s + record.duration_s,
        points=[] if kind == "predicted" else read_points(run.path, clock),
    )


def kind_of(record: RunRecord) -> Kind:
    """What the figures of a run speak of."""
    if record.figures.predicted or record.cell.device == "predicted":
        return "predicted"
    return "emulated" if record.figures.emulated or record.cell.device == "emulated" else "measured"


def _notes(record: RunRecord, kind: Kind) -> Iterator[str]:
    said = {
        "emulated": "emulated: GPUs were emulated from a profile; the figures speak of that profile, not of hardware",
        "predicted": "predicted: a model produced the figures, nothing ran",
    }
    if kind in said:
        yield said[kind]
    if record.reason is not None:
        yield f"{record.status}: {_text(record.reason)}"
    for warning in record.warnings:
        yield f"warning: {_text(warning)}"


def _tags(record: RunRecord, kind: Kind) -> dict[str, str]:
    """What runs are looked up by."""
    return {
        "kind": kind,
        "status": record.status,
        "system": _text(fmt.system(record)),
        "scenario": _text(fmt.scenario(record)),
        "workload": _text(record.cell.workload),
        "device": _text(record.cell.device),
        "unit": record.counters.unit,
        "sweep": _text(record.sweep),
        "commit": _text(record.commit or "none"),
    }


def _settings(record: RunRecord, kind: Kind) -> dict[str, Setting]:
    cell = record.cell
    first: dict[str, Setting] = {
        "kind": kind,
        "system": _text(fmt.system(record)),
        "scenario": _text(fmt.scenario(record)),
        "workload": _text(cell.workload),
        "gpus": cell.gpus,
        "seed": cell.seed,
        "device": _text(cell.device),
        "protocol": _text(cell.protocol),
        "scaling": _text(cell.scaling),
        "cell": _text(cell.hash),
    }
    known = {name_of(name): _setting(value) for name, value in flat(record.configuration).items()}
    return known | first


def _setting(value: Any) -> Setting:
    return value if isinstance(value, bool | int | float) else _text("none" if value is None else str(value))


def _text(text: str) -> str:
    text = visible(text)
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 1]}…"


def _figures(record: RunRecord) -> dict[str, float]:
    """The numbers of `figures` and `counters`; an interval has two, a reading that of its value."""
    document = record.figures.model_dump(mode="json", exclude={"emulated", "predicted", "steps_counted"})
    for name in [name for name in document if name.endswith("_interval")]:
        ends = document.pop(name) or (None, None)
        document |= dict(zip((f"{name[:-9]}_low", f"{name[:-9]}_high"), ends, strict=True))
    document |= {"duration_s": record.duration_s, "starting_s": record.starting_s, "ending_s": record.ending_s}
    document = {"figures": document, "counters": record.counters.model_dump(mode="json")}
    return {
        name_of(name.removesuffix(".value").replace(".", "/")): float(value)
        for name, value in flat(document).items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
