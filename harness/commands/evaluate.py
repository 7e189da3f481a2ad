"""`rlbench evaluate`: plays episodes with the policies that finished runs have left, and prints how well they do.

All run records are read before anything is played; a run's system and weights are checked when its turn comes. What
environments print meanwhile, simulators also from C, goes to `EVALUATE_OUT` and `EVALUATE_ERR` in the run's folder.
"""

from __future__ import annotations

import json
import math
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from rich.table import Table
from rich.text import Text

from rlbench.harness.commands.filming import Film
from rlbench.harness.contract.device import Device, Place
from rlbench.harness.contract.scenario import Scenario
from rlbench.harness.devices.kinds import DeviceKind, make_device, visible_gpus
from rlbench.harness.live.counted import Counted
from rlbench.harness.live.footer import progress_console
from rlbench.harness.plan import registry
from rlbench.harness.plan.overrides import apply_settings, split_scenario, split_settings
from rlbench.harness.plan.system_list import split_list
from rlbench.harness.processes.raised import told_in_a_line
from rlbench.harness.processes.redirected import output_to, own_stderr
from rlbench.harness.run.sweep import PLAN_FILE, Sweep
from rlbench.reports.figures import format as fmt
from rlbench.reports.terminal.table import make_console, make_table
from rlbench.results.reading.tables import SERIES_ROWS, read_frame
from rlbench.results.reading.untrusted import WEIGHTS_BYTES, opened, visible
from rlbench.results.records import labels, store, units
from rlbench.results.records.parts import LOST, SERIES_FILE

if TYPE_CHECKING:
    from rlbench.results.records.schema import RunRecord
    from rlbench.results.records.store import StoredRun

EVALUATE_OUT, EVALUATE_ERR = "evaluate-stdout.txt", "evaluate-stderr.txt"
"""What was printed while the policies of a run played; each is there only if anything was."""
METRICS = ("success", "return", "length", "spl")
NO_TIME = {"time_scale": "1e-06"}
"""Setting for emulated scenarios: what happens in them does not depend on how long it takes."""


@runtime_checkable
class Evaluable(Protocol):
    """What a system has, in addition to `contract.System`, when its policies can be evaluated."""

    def policies(self, ranks: Sequence[int]) -> Mapping[str, str]:
        """Whose weights each file of a run holds, by file name; `ranks` are those that lasted to its end, ascending."""

    def evaluate(
        self, scenario: Scenario, seed: int, weights: Path, num_episodes: int, device: Device
    ) -> tuple[int, Mapping[str, tuple[float, float]]]:
        """Plays at least `num_episodes` episodes with the weights.

        Returns how many were played, and the mean and its standard error by `METRICS`; NaN where there is none.
        """


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftPolicy:
    """A policy that a run has left."""

    record: RunRecord
    weights: Path
    whose: str
    """Whose weights they are: `final`, `mean of 8 ranks`, `rank 0 alone`."""
    system: Evaluable
    scenario: Scenario


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluated:
    """A row of the table."""

    left: LeftPolicy
    num_episodes: int
    figures: Mapping[str, tuple[float, float]]
    """Mean and standard error by `METRICS`."""
    film: Film | None = None
    """Of its first environment."""

    def as_json(self) -> dict[str, Any]:
        """The row for scripts; a missing figure is null."""
        record = self.left.record
        names = {
            "run": record.id,
            "sweep": record.sweep,
            "system": fmt.system(record),
            "scenario": fmt.scenario(record),
            "workload": record.cell.workload,
            "gpus": record.cell.gpus,
            "seed": record.cell.seed,
            "policy": self.left.whose,
            "file": str(self.left.weights),
            "episodes": self.num_episodes,
        }
        figures = {metric: [_known(value) for value in self.figures[metric]] for metric in METRICS}
        means = {metric: {"mean": mean, "standard_error": error} for metric, (mean, error) in figures.items()}
        return names | means | ({} if self.film is None else {"video": self.film.as_json()})

    def shown(self) -> dict[str, str]:
        """The row's cells by their columns, as text."""
        record = self.left.record
        names = {
            "system": fmt.system(record),
            "scenario": fmt.scenario(record),
            "workload": record.cell.workload,
            "seed": str(record.cell.seed),
            "sweep": record.sweep,
            "GPUs": fmt.gpus(record),
            "policy": self.left.whose,
            "episodes": f"{self.num_episodes:,}",
        }
        return names | {metric: _shown(*self.figures[metric]) for metric in METRICS}


NAMES = ("system", "scenario", "workload", "seed", "sweep", "GPUs", "policy")
SHAREABLE = ("scenario", "workload", "seed", "sweep", "episodes")
"""Columns that move to a line above the table when all rows have the same value."""


Typed = Sequence[tuple[str, Mapping[str, str]]]
"""Scenarios that the user has typed in this command."""


def print_evaluations(
    folders: Sequence[Path],
    out: Path,
    num_episodes: int,
    *,
    typed: str | None = None,
    as_json: bool = False,
    video: Path | None = None,
) -> None:
    """Evaluates the policies of some runs, or of the newest sweep in `out`, and prints a row for each.

    `typed` has the scenarios of these runs, as `--scenario` takes them; one that names code is played only if it is
    there. `video` is the file for a film of the first policy of the only run.
    Raises ValueError when something is wrong with a run, with the number of episodes or with the file.
    """
    if num_episodes < 1:
        raise ValueError(f"--episodes {num_episodes}: must be at least 1; leave it out for 100")
    runs, unreadable = ([_read_run(folder) for folder in folders], []) if folders else _newest_runs(out)
    for run in runs:
        if run.record.cell.device == "predicted":
            raise ValueError(f"{run.path}: a model predicted it, so it has no policy; name runs of `rlbench run`")
    film = None if video is None else Film(path=video)
    if film is not None and len(runs) != 1:
        such_as = f", such as {runs[-1].path}"
        raise ValueError(f"--video {video}: shows one run, and there are {len(runs)}; name the folder of one{such_as}")
    named = None if typed is None else [split_scenario(text, "--scenario") for text in split_list(typed, "--scenario")]
    scenarios = [_scenario_of(run, named) for run in runs]
    evaluated: list[Evaluated] = []
    with own_stderr() as told, Counted(progress_console(told), len(runs)) as progress:
        for run, own in zip(runs, scenarios, strict=True):
            progress.say(f"playing {num_episodes:,} episodes with {visible(run.record.id)}")
            with output_to(run.path / EVALUATE_OUT, run.path / EVALUATE_ERR):
                for left in _policies(run, *own):
                    evaluated.append(_evaluate(left, num_episodes, None if evaluated else film))
            progress.advance()
    for each in unreadable:
        print(f"rlbench: warning: {visible(each.reason)}", file=sys.stderr)  # noqa: T201  stdout may be JSON
    if as_json:
        sys.stdout.write(json.dumps([one.as_json() for one in evaluated], indent=1) + "\n")
        return
    rows = [one.shown() for one in evaluated]
    shared = [column for column in SHAREABLE if len({row[column] for row in rows}) == 1]
    console = make_console()
    console.print(Text(", ".join(f"{column} {rows[0][column]}" for column in shared)))
    console.print(_table(rows, [column for column in rows[0] if column not in shared]))
    console.print()
    unit = units.common(one.left.record.counters.unit for one in evaluated)
    of_agents = "" if unit == "env steps" else ", of agents their stays"
    console.print(Text(f"success, return, length ({unit}), spl: means over the episodes (standard error)"))
    console.print(Text(f"episodes{of_agents}: equally many in each environment; their seeds are not those of training"))
    if film is not None:
        console.print(Text(film.told()), soft_wrap=True)


def _read_run(folder: Path) -> StoredRun:
    """The finished run in a folder."""
    if not (folder / store.RUN_FILE).exists():
        what = "is no run folder" if folder.is_dir() else "is not there"
        raise ValueError(
            f"{folder}: {what}; give the folders that hold a {store.RUN_FILE}, or none to play those of the newest "
            "sweep in --out"
        )
    (run,) = store.read_runs(folder)
    if run.record.status != "finished":
        raise ValueError(
            f"{folder}: the run is {run.record.status}, it must be finished; `rlbench run --resume` runs it again"
        )
    return run


def _newest_runs(out: Path) -> tuple[list[StoredRun], list[store.Unreadable]]:
    """The finished runs of the newest sweep, and those that cannot be read."""
    if not any(out.glob(f"*/{PLAN_FILE}")):
        raise ValueError(f"--out {out}: holds no sweep; name folders of runs, or give what `rlbench run --out` wrote")
    folder = Sweep.newest(out).folder
    readable, unreadable = store.read_readable(folder)
    runs = [run for run in readable if run.record.status == "finished"]
    if not runs:
        raise ValueError(f"{folder}: holds no finished run; `rlbench run --resume --out {out}` completes the sweep")
    return runs, unreadable


def _scenario_of(run: StoredRun, typed: Typed | None) -> tuple[str, dict[str, str]]:
    """The scenario of a run, and its settings. Raises ValueError for one that the user should have typed."""
    text = labels.typed_scenario(run.record.cell)
    name, settings = split_scenario(text, "scenario")
    if typed is None and registry.names_code(name, settings):
        raise ValueError(
            f"{run.path}: its scenario names code, which is loaded only if you type it: "
            f"rlbench evaluate {shlex.quote(str(run.path))} --scenario {shlex.quote(visible(text))}"
        )
    if typed is not None and (name, settings) not in typed:
        raise ValueError(f"{run.path}: its scenario is another than --scenario says: {visible(text)}")
    return name, settings


def _policies(run: StoredRun, scenario_name: str, scenario_settings: Mapping[str, str]) -> list[LeftPolicy]:
    """The policies that a run has left, at least one. Raises ValueError."""
    name, settings = split_settings(fmt.system(run.record), "system")
    system: object = registry.load_system(name, settings)
    if not isinstance(system, Evaluable):
        raise ValueError(  # noqa: TRY004  a user's error
            f"{run.path}: system {name} cannot be evaluated, it has no methods `policies` and `evaluate`; "
            "name folders of other runs"
        )
    ranks = ranks_left(run)
    with told_in_a_line(f"{run.path}: system {name}"):
        whose = {run.path / file: text for file, text in system.policies(ranks).items()}
    found = [path for path in whose if path.exists()]
    if not found:
        raise ValueError(f"{run.path}: holds no {next(iter(whose)).name}; run that cell again, then evaluate that run")
    for path in found:
        try:
            with opened(path, WEIGHTS_BYTES):
                pass
        except ValueError as problem:
            raise ValueError(f"{path}: {problem}; run that cell again, then evaluate that run") from None
    scenario = registry.load_scenario(scenario_name, run.record.cell.workload, scenario_settings)
    learned_on = run.record.configuration.get("scenario")
    if isinstance(learned_on, Mapping) and list(learned_on.get("code", ())) != list(getattr(scenario, "code", ())):
        raise ValueError(
            f"{run.path}: the files that its environments are made from have changed since; put them back, or run that "
            "cell again"
        )
    with told_in_a_line(f"scenario {scenario_name}"):
        if hasattr(scenario, "time_scale"):
            scenario = apply_settings(scenario, NO_TIME, scenario_name)
    return [
        LeftPolicy(record=run.record, weights=path, whose=whose[path], system=system, scenario=scenario)
        for path in found
    ]


def ranks_left(run: StoredRun) -> list[int]:
    """The ranks that have lasted to the end of a run."""
    path = run.path / SERIES_FILE
    try:
        series = read_frame(path, {"rank": "int64"}, {LOST: "bool"}, most_rows=SERIES_ROWS)
    except ValueError as problem:
        raise ValueError(f"{path}: cannot be read ({problem}); run that cell again, then evaluate that run") from None
    lasted = series[~series[LOST]] if LOST in series else series
    return sorted(lasted["rank"].unique().tolist())


def _evaluate(left: LeftPolicy, num_episodes: int, film: Film | None) -> Evaluated:
    """Plays on the CPU, or on a GPU if there is one and the run used one; films the first environment."""
    cell = left.record.cell
    kind: DeviceKind = "cuda" if cell.device == "cuda" and visible_gpus() else "cpu"
    whom = f"{left.record.id}: scenario {cell.scenario}, or system {cell.system},"
    with told_in_a_line(whom), tempfile.TemporaryDirectory(prefix="rlbench-") as folder:
        device = make_device(kind, Place(rank=0, num_ranks=1, local_rank=0), left.scenario, Path(folder))
        filmed = nullcontext(left.scenario) if film is None else film.of(left.scenario, device)
        with filmed as scenario:
            played, figures = left.system.evaluate(scenario, cell.seed, left.weights, num_episodes, device)
    return Evaluated(left=left, num_episodes=played, figures=figures, film=film)


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _shown(mean: float, error: float) -> str:
    if _known(mean) is None:
        return fmt.NONE
    return f"{fmt.number(mean)} ({fmt.number(_known(error))})"


def _table(rows: Sequence[Mapping[str, str]], columns: Sequence[str]) -> Table:
    table = make_table()
    for column in columns:
        table.add_column(column, justify="left" if column in NAMES else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(row[column]) for column in columns))
    return table
