"""Makes a profile from a run folder: all of its tables, and their text as TOML, each value with its source.

`measure` reads run.json, spans.parquet, series.parquet and policy.pt; `to_toml` makes the text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rlbench.harness.commands.profile import ASSUMED, Entry, Table
from rlbench.harness.commands.profile.alike import check_alike
from rlbench.harness.commands.profile.calls import POOLS, Calls, by_size, call_tables, once_each
from rlbench.harness.commands.profile.cores import Cores, cores_of, cpu_shares_of, with_work
from rlbench.harness.commands.profile.gpu import (
    LISTENING,
    SCHEDULING,
    AssumedLink,
    Inferences,
    Learning,
    gpu_table,
    joined,
    network_table,
    read_inferences,
    read_learning,
    schedule_item,
)
from rlbench.harness.commands.profile.steps import EnvSteps, read_steps, step_tables
from rlbench.reports.figures import format as fmt
from rlbench.results.fairness.aspects import gpus_of, part
from rlbench.results.reading.outputs import write_output
from rlbench.results.reading.tables import SERIES_ROWS, SPANS_COLUMNS, SPANS_FILE, SPANS_ROWS, read_frame
from rlbench.results.records.parts import LOST, SERIES_FILE

if TYPE_CHECKING:
    import pandas as pd

    from rlbench.results.records.schema import RunRecord
    from rlbench.results.records.store import StoredRun

T = TypeVar("T")
WEIGHTS_FILE = "policy.pt"
WHOLE = ("num_envs", "rollout_steps", "envs_per_batch", "cores_per_gpu", "learn_cores", "epochs", "num_minibatches")
"""Keys whose values are whole numbers."""
PROFILED = {
    "rank": "int64",
    "iteration": "int64",
    "learned": "int64",
    "reused": "int64",
    "span/learn": "float64",
    "span/communicate": "float64",
}
"""Columns of a series that a profile is made from, with their types."""
MARKS = {LOST: "bool", **dict.fromkeys((*SCHEDULING, *LISTENING), "float64")}
LEARNED = ("epochs", "num_minibatches")
"""Keys of the table `learn`."""
PREDICTED = "predicted"
"""The device of predicted runs."""
DIGITS = 5
"""Significant digits of a value in a file."""
BATCH = "batch"
Value = float | int | list[int] | list[float]
ProfileDocument = dict[str, dict[str, Value] | list[str] | str]
"""A profile as TOML has it: `about`, `assumed`, and tables."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredProfile:
    """A profile of a run."""

    about: str
    tables: dict[str, Table]
    mean_step_ms: float
    """Mean work per env step: what the profile's own mean should be."""
    calls: tuple[Calls, ...] = ()
    """Calls that step several environments, by ascending size; of single environments only beside such."""

    @property
    def profile(self) -> ProfileDocument:
        """The profile as TOML has it, without the sources of its values."""
        tables: ProfileDocument = {"about": self.about, "assumed": self.assumed}
        for name, table in self.tables.items():
            tables[name] = {
                key: round(entry.value) if key in WHOLE else float(entry.value) for key, entry in table.items()
            }
        if self.calls:
            tables[BATCH] = {
                "sizes": [calls.size for calls in self.calls],
                "step_ms": [calls.mean_ms for calls in self.calls],
                "sigma": max(calls.sigma for calls in self.calls if calls.size > 1),
            }
        return tables

    @property
    def assumed(self) -> list[str]:
        """Dotted keys whose values were not measured."""
        return [key for key, how in self.comments.items() if how.startswith(ASSUMED)]

    @property
    def comments(self) -> dict[str, str]:
        """The sources of the values, by dotted key."""
        of_tables = {f"{name}.{key}": entry.how for name, table in self.tables.items() for key, entry in table.items()}
        return of_tables | ({f"{BATCH}.{key}": how for key, how in _of_calls(self.calls).items()} if self.calls else {})


def _of_calls(calls: Sequence[Calls]) -> dict[str, str]:
    """The sources of the table `batch`, by key."""
    nums = " and ".join(f"{of_size.num:,}" for of_size in calls)
    return {
        "sizes": "environments that one call steps",
        "step_ms": f"means of {nums} calls, with their resets",
        "sigma": "spread of log(time), of the size that spreads most",
    }


def measure(
    run: StoredRun, link: AssumedLink, other: StoredRun | None = None, more: Sequence[StoredRun] = ()
) -> MeasuredProfile:
    """The profile of a run, with the source of each value.

    Args:
        run: the run.
        link: what is assumed of the network.
        other: a run that differs in the size of its mini-batches alone, to tell what one costs beside its samples.
        more: runs of the same scenario, for how long calls with other numbers of environments take, how single ones
            step where `run` has none, inferences of other sizes, and learning in mini-batches of another size.

    Raises:
        ValueError: one line that says which run lacks what.
    """
    for one, another in combinations([run, *more], 2):
        check_alike(one, another)
    learning_of_other = None if other is None else _told(other, _learning)
    parts = [_told(another, _parts_of) for another in more]
    return _told(run, lambda one: _measure(one, link, learning_of_other, parts))


def _told(run: StoredRun, work: Callable[[StoredRun], T]) -> T:
    """What `work` makes of a finished run. Raises ValueError with the run's name."""
    record = run.record
    if record.cell.device == PREDICTED:
        raise ValueError(
            f"{run.path}: the run is {PREDICTED}, a profile needs a measured one; `rlbench run` makes some"
        )
    if record.status != "finished":
        raise ValueError(f"{run.path}: the run is {record.status}, a profile needs a finished one: {record.reason}")
    if record.counters.unit == "agent steps":
        raise ValueError(f"{run.path}: the run's environments have several agents, profiles are of one")
    try:
        return work(run)
    except ValueError as error:
        raise ValueError(f"{run.path}: the run {error}") from None


def _tables(run: StoredRun, cores: Cores) -> tuple[pd.DataFrame, int, pd.DataFrame]:
    """The spans with their work, calls once each; environments of a call; and the iterations that count."""
    spans, size = once_each(_read(run.path / SPANS_FILE, SPANS_COLUMNS, {}, SPANS_ROWS))
    of_recv = part(run.record, "scenario", "recv")
    if isinstance(of_recv, int) and of_recv not in (0, size):
        raise ValueError(POOLS)
    spans = with_work(spans, cores, cpu_shares_of(run.record))
    return spans, size, _counted(_read(run.path / SERIES_FILE, PROFILED, MARKS, SERIES_ROWS), run.record)


def _learning(run: StoredRun) -> Learning:
    spans, _, series = _tables(run, cores_of(run.record))
    return read_learning(series, spans, _updates_each(run.record))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Parts:
    """What any run of several tells."""

    spans: pd.DataFrame
    series: pd.DataFrame
    steps: EnvSteps
    calls: Calls
    inferences: Inferences
    learning: Learning


def _parts_of(run: StoredRun) -> _Parts:
    spans, size, series = _tables(run, cores_of(run.record))
    steps = read_steps(spans)
    if not len(steps.seconds):
        raise ValueError("has no simulate spans of environments; let it run for longer")
    return _Parts(
        spans=spans,
        series=series,
        steps=steps,
        calls=Calls.of(steps, size),
        learning=read_learning(series, spans, _updates_each(run.record)),
        inferences=read_inferences(spans),
    )


def _updates_each(record: RunRecord) -> int:
    """Mini-batches of an iteration; 0 where the run does not tell."""
    table = _learn_table(record)
    return round(table["epochs"].value * table["num_minibatches"].value) if len(table) == len(LEARNED) else 0


def _measure(run: StoredRun, link: AssumedLink, other: Learning | None, more: Sequence[_Parts]) -> MeasuredProfile:
    record, cores, parts = run.record, cores_of(run.record), _parts_of(run)
    spans, series, calls = parts.spans, parts.series, parts.calls
    weights = run.path / WEIGHTS_FILE
    if other is None:
        other = next((each.learning for each in more if each.learning.tells_apart(parts.learning)), None)
    gpu = gpu_table(joined([parts.inferences, *(each.inferences for each in more)]), parts.learning, other)
    collect = {key: _configured(record, key) for key in ("num_envs", "rollout_steps")}
    alone = next((each.steps for each in [parts, *more] if each.calls.size == 1), None)
    if alone is None:
        of_steps = call_tables(calls, record.counters)
    else:
        of_steps = step_tables(alone, record.counters, record.cell.workload)
    how = "each was stepped by itself" if calls.size == 1 else "so many environments had the same spans"
    collect["envs_per_batch"] = Entry(calls.size, how)
    tables = {
        "collect": collect,
        **of_steps,
        "cpu": _cpu_table(cores, gpu, schedule_item(series, spans, cpu_shares_of(record)), record),
        "gpu": gpu,
        "network": network_table(series, record.cell.gpus, weights.stat().st_size if weights.exists() else None, link),
        "learn": _learn_table(record),
    }
    tables = {name: table for name, table in tables.items() if table}
    alone_s = float(parts.steps.seconds.mean())
    return MeasuredProfile(
        about=_about(record),
        tables=tables,
        mean_step_ms=1e3 * alone_s if calls.size == 1 else calls.mean_ms / calls.size,
        calls=by_size([calls, *(each.calls for each in more)]),
    )


def _read(path: Path, columns: Mapping[str, str], optional: Mapping[str, str], most_rows: int) -> pd.DataFrame:
    if not path.exists():
        raise ValueError(f"has no {path.name}; let it run for longer")
    try:
        return read_frame(path, columns, optional, most_rows=most_rows)
    except ValueError as problem:
        raise ValueError(f"has a {path.name} that cannot be read ({problem})") from None


def _counted(series: pd.DataFrame, record: RunRecord) -> pd.DataFrame:
    """The rows of the window, without those of lost ranks."""
    window = record.figures.window
    if window is None:
        raise ValueError("has no window of iterations that count; let it run for longer")
    inside = series["iteration"].between(window.first_iteration, window.last_iteration)
    return series[inside & ~series[LOST]] if LOST in series else series[inside]


def _configured(record: RunRecord, key: str) -> Entry:
    value = part(record, "scenario", key)
    if not isinstance(value, int):
        raise ValueError(f"has no scenario.{key} in its configuration; profile a run of another scenario")  # noqa: TRY004
    return Entry(value, "as configured")


def _learn_table(record: RunRecord) -> Table:
    """How much is learned from each batch, by systems that do not say so themselves; empty if the run does not tell."""
    own = part(record, "system", "learn")
    table = {}
    for key in LEARNED:
        value = part(record, "scenario", "learn", key)
        if isinstance(value, int):
            is_own = isinstance(own, dict) and key in own
            table[key] = Entry(value, f"as {record.cell.system} sets it" if is_own else "as configured")
    return table


def _cpu_table(cores: Cores, gpu: Table, schedule: Entry, record: RunRecord) -> Table:
    one_ms = gpu["infer_fixed_ms"].value + gpu["infer_item_ms"].value
    are_few = cores.num < _configured(record, "num_envs").value
    inferred = "infer_fixed_ms + infer_item_ms, which the CPU took"
    return {
        "cores_per_gpu": Entry(
            cores.per_gpu, f"{cores.how}; waiting for one is taken off the steps" if are_few else cores.how
        ),
        "actor_infer_ms": Entry(one_ms, inferred if record.cell.device == "cpu" else f"{ASSUMED}: as on the GPU"),
        "learn_cores": Entry(
            cores.num_learning, "all: the rank has no GPU" if cores.num_learning else "none: the rank has a GPU"
        ),
        "schedule_ms": schedule,
        "answer_ms": _answer(record),
    }


def _answer(record: RunRecord) -> Entry:
    answer_s = record.figures.env_answer_s
    if answer_s is None:
        return Entry(0.0, f"{ASSUMED}: the run does not tell")
    return Entry(1e3 * answer_s, "CPU time of the environments' threads beside steps and resets / env steps")


def _about(record: RunRecord) -> str:
    cell = record.cell
    device = {"cpu": "the CPU", "emulated": "emulated GPUs"}.get(cell.device, cell.device)
    names = [gpu.get("name") for gpu in gpus_of(record)] if cell.device == "cuda" else []
    told = dict.fromkeys(str(name) for name in [*names, record.machine.get("cpu_model")] if name)
    machine = ", ".join(told)
    return (
        f"{fmt.scenario(record)}, {cell.workload}; {fmt.system(record)} on {device}, {cell.gpus} rank(s), "
        f"seed {cell.seed}, {record.counters.env_steps:,} env steps, on {record.started_at[:10]}"
        f"{f'; {machine}' if machine else ''}"
    )


def mean_step_ms(values: ProfileDocument, workload: str) -> float:
    """Mean simulation time of an env step by a profile; each lognormal factor has the mean exp(sigma^2 / 2)."""
    batch, size = values.get(BATCH), _table(values, "collect")["envs_per_batch"]
    if size > 1 and isinstance(batch, dict):
        sizes, step_ms = batch["sizes"], batch["step_ms"]
        assert isinstance(sizes, list)
        assert isinstance(step_ms, list)
        return step_ms[sizes.index(int(size))] / size
    step, collision, episode, spread = (
        _table(values, name) for name in ("step", "collision", "episode", "heterogeneous")
    )
    share = collision["share"]
    variance = step["sigma"] ** 2 + episode["sigma"] ** 2
    variance += spread["sigma"] ** 2 if workload == "heterogeneous" else 0.0
    return ((1 - share) * step["median_ms"] + share * collision["median_ms"]) * math.exp(variance / 2)


def _table(values: ProfileDocument, name: str) -> dict[str, float | int]:
    table = values[name]
    assert isinstance(table, dict)
    return {key: value for key, value in table.items() if not isinstance(value, list)}


def to_toml(tables: ProfileDocument, comments: Mapping[str, str]) -> str:
    """The text of a profile; `comments` are by dotted key."""
    lines = [f"{key} = {json.dumps(tables[key], ensure_ascii=False)}" for key in ("about", "assumed") if key in tables]
    for name, table in tables.items():
        if not isinstance(table, dict):
            continue
        settings = {key: f"{key} = {_shown(value)}" for key, value in table.items()}
        width = max(map(len, settings.values()), default=0)
        lines += ["", f"[{name}]"]
        for key, setting in settings.items():
            comment = comments.get(f"{name}.{key}")
            lines.append(f"{setting:<{width}}  # {comment}" if comment else setting)
    return "\n".join(lines) + "\n"


def _shown(value: Value) -> str:
    """A value with its significant digits; a float stays a float."""
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    return str(value) if isinstance(value, int) else repr(float(f"{value:.{DIGITS}g}"))


def write_profile(tables: ProfileDocument, path: Path, comments: Mapping[str, str]) -> None:
    """Writes a profile. Raises ValueError when the file cannot be written."""
    try:
        write_output(path, [to_toml(tables, comments)])
    except OSError as error:
        raise ValueError(f"{path}: cannot be written: {error.strerror}; name another file with --out") from None
