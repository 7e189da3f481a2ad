"""`rlbench profile`: makes a run, or takes one that was made, and writes the profile of its times.

Errors in the request are reported before anything runs, and what the run lacks is reported when it is over.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from rlbench.harness.commands import INTERRUPTED
from rlbench.harness.commands.profile import ASSUMED
from rlbench.harness.commands.profile.making import WHOLE, MeasuredProfile, mean_step_ms, measure, write_profile
from rlbench.harness.commands.profile.options import ProfileOptions
from rlbench.harness.commands.profile.own_rate import brought_to_its_rate
from rlbench.harness.commands.run import run_sweep
from rlbench.harness.contract.agents import agents_per_env
from rlbench.harness.contract.scenario import WORKLOADS
from rlbench.harness.devices.kinds import choose_device
from rlbench.harness.plan import registry
from rlbench.harness.plan.options import RunOptions
from rlbench.harness.plan.planning import plan
from rlbench.harness.plan.request import EMULATED_SCENARIO, complete
from rlbench.harness.run.sweep import Sweep
from rlbench.reports.figures import format as fmt
from rlbench.reports.terminal.table import make_console, make_table
from rlbench.results.reading.untrusted import is_text, visible
from rlbench.results.records import store

if TYPE_CHECKING:
    from rich.console import Console

    from rlbench.harness.commands.profile.gpu import AssumedLink
    from rlbench.harness.plan.cells import Cell
    from rlbench.results.records.store import StoredRun

SYSTEM, SECONDS = "nover", 20.0
EMULATED = EMULATED_SCENARIO.partition("/")[0]
UNTYPABLE = re.compile(r"[,:\s]")
"""Characters that the name of a scenario on the command line cannot contain."""
NOT_PROFILED = "other"
"""The span of a rank's work that no profile states."""


def profile_scenario(
    asked: ProfileOptions, out: Path | None, runs: Path, link: AssumedLink, command: Sequence[str]
) -> int:
    """Runs one cell, writes its profile and prints it; returns the exit code. Raises ValueError.

    A second cell, with mini-batches of another size, tells what a mini-batch costs beside its samples.
    """
    to_run = _to_run(asked)
    cells = plan(complete(to_run)[0])
    if len(cells) != 1:
        raise ValueError(f"profile: {len(cells)} cells; name one scenario, one workload, one system and one seed")
    if (agents := agents_per_env(cells[0].load()[1])) > 1:
        raise ValueError(f"profile: {cells[0].scenario} has {agents} agents in each environment, profiles are of one")
    out = check_out(out or _path_of(cells[0].scenario))
    to_run = with_other_minibatches(to_run, cells[0])
    code = run_sweep(to_run, runs, resume=False, dry_run=False, command=command)
    if code == INTERRUPTED:
        return code
    folder = Sweep.newest(runs).folder
    found, unreadable = store.read_readable(folder)
    runs_of = {run.record.cell.hash: run for run in found}
    run = runs_of.pop(cells[0].hash(), None)
    if run is None or len(runs_of) > 1:
        raise ValueError(f"{folder}: holds {len(found)} runs, it must be those that were made; profile again")
    others = [other for other in runs_of.values() if other.record.status == "finished"]
    _write(run, out, link, others[0] if others else None)
    for each in unreadable:
        print(f"rlbench: warning: {visible(each.reason)}", file=sys.stderr)  # noqa: T201  a command line prints
    return 0


def with_other_minibatches(to_run: RunOptions, cell: Cell) -> RunOptions:
    """A second cell with one mini-batch where the first has several, else with two; none where it cannot have that."""
    _, scenario = cell.load()
    count = 2 if scenario.learn.num_minibatches == 1 else 1
    settings = {**cell.system_settings, "learn.num_minibatches": str(count)}
    other = ":".join([cell.system, *(f"{name}={value}" for name, value in settings.items())])
    both = replace(to_run, systems=f"{to_run.systems},{other}")
    try:
        plan(complete(both)[0])
    except ValueError:  # somebody else's system may have no such setting, and one environment fills no two
        return to_run
    return both


def profile_runs(folders: Sequence[Path], out: Path | None, link: AssumedLink) -> int:
    """Writes the profile of a run that was made before, and prints it; returns the exit code. Raises ValueError.

    Runs after the first add what `measure` makes of more runs.
    """
    runs: list[StoredRun] = []
    for folder in folders:
        if not (folder / store.RUN_FILE).exists():
            raise ValueError(f"--from-run {folder}: is no run folder; give one that holds a {store.RUN_FILE}")
        runs += store.read_runs(folder)
    _write(runs[0], check_out(out or _path_of(runs[0].record.cell.scenario)), link, more=runs[1:])
    return 0


def _path_of(scenario: str) -> Path:
    """The default file for a scenario's profile, in the working folder even if the scenario is a file elsewhere."""
    return Path(f"{re.sub(r'[^a-zA-Z0-9.-]+', '-', scenario)}.toml")


def _to_run(asked: ProfileOptions) -> RunOptions:
    """The run to make: a real scenario is measured on real hardware, a GPU if there is one."""
    device = choose_device(asked.device)
    family = re.split("[/:]", asked.scenario or "")[0].strip()
    if asked.device is None and device == "emulated" and family != EMULATED:
        device = "cpu"
    return RunOptions(
        systems=SYSTEM if asked.system is None else asked.system,
        scenario=asked.scenario,
        workload=asked.workload or WORKLOADS[0],
        seeds=str(asked.seed or 0),
        device=device,
        seconds=SECONDS if asked.seconds is None else asked.seconds,
    )


def check_out(out: Path) -> Path:
    """The file to write, if it can be one. Raises ValueError."""
    rule = None
    if not is_text(str(out)):
        rule = "must be UTF-8: records are to hold its name"
    elif out.suffix != ".toml":
        rule = "must end in .toml"
    elif UNTYPABLE.search(str(out)):
        rule = "must hold no comma, colon or space: it is to be typed as --scenario emulated/…"
    elif out.exists():
        rule = "exists; delete it, or name another file"
    elif not out.parent.is_dir():
        rule = f"{out.parent} is no folder; make it first"
    elif not os.access(out.parent, os.W_OK):
        rule = "cannot be written; name another folder"
    if rule:
        raise ValueError(f"--out {out}: {rule}")
    return out


def _write(
    run: StoredRun, out: Path, link: AssumedLink, other: StoredRun | None = None, more: Sequence[StoredRun] = ()
) -> None:
    """Writes the profile of a run, reads it back as its users will, and prints it."""
    measured = measure(run, link, other, more)
    write_profile(measured.profile, out, measured.comments)
    workload = run.record.cell.workload
    try:
        registry.load_scenario(f"{EMULATED}/{out}", workload, {})
    except ValueError as error:
        out.unlink()
        raise ValueError(f"{run.path}: the run gives no profile that can be used: {error}") from None
    measured = brought_to_its_rate(measured, run, out)
    write_profile(measured.profile, out, measured.comments)
    _print(measured, run, out, make_console())


def _print(measured: MeasuredProfile, run: StoredRun, out: Path, console: Console) -> None:
    """Prints what was measured, what was not, and what to type next."""
    workload = run.record.cell.workload
    table = make_table()
    table.add_column("of the profile")
    table.add_column("value", justify="right")
    table.add_column("is", overflow="fold")
    assumed = []
    for name, entries in measured.tables.items():
        for key, entry in entries.items():
            if entry.how.startswith(ASSUMED):
                assumed.append(f"{name}.{key}")
            else:
                value = f"{entry.value:.0f}" if key in WHOLE else fmt.number(entry.value)
                table.add_row(f"{name}.{key}", value, Text(entry.how))
    for calls in measured.calls:
        of = "1 environment" if calls.size == 1 else f"{calls.size} environments"
        how = f"mean of {calls.num:,} calls with {of}, resets included"
        table.add_row("batch.step_ms", fmt.number(calls.mean_ms), Text(how))
    console.print()
    console.print(table)
    console.print()
    mean_ms, own_ms = (fmt.number(ms) for ms in (measured.mean_step_ms, mean_step_ms(measured.profile, workload)))
    lines = [
        f"assumed: {', '.join(assumed)}",
        f"mean env step: {mean_ms} ms as measured, without waiting for a core; {own_ms} ms by the profile",
    ]
    if rest := run.record.figures.time_shares.get(NOT_PROFILED):
        lines.append(f"in no profile: {fmt.percent(rest)} of the rank's time, between inference, learning and waiting")
    beside = "" if workload == "homogeneous" else f" --workload {workload}"
    lines += [
        f"profile: {out}, of {run.path}",
        f"next: rlbench predict --systems {fmt.system(run.record)} --scenario {EMULATED}/{out}{beside} --gpus 1,8",
    ]
    for line in lines:
        console.print(Text(line))
