from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rlbench.harness.commands.predict.from_run import free_path
from rlbench.harness.live.state import LIVE_FILE, Writer
from rlbench.harness.run.sweep import PLAN_FILE, Sweep
from rlbench.results.reading.tables import SPANS_FILE
from rlbench.results.records.parts import SERIES_FILE
from rlbench.results.records.store import RUN_FILE, StoredRun, load_run
from tests.fuzz import samples
from tests.harness import sweeps
from tests.harness.command import assert_refused, call
from tests.harness.sweeps import write_sweep
from tests.results.made_records import make_record, write_run_folder
from tests.results.summaries import make_run

here = pytest.fixture(autouse=True)(sweeps.here)
HOSTILE = "\x1b]0;x\x07[bold]\u202e\x9b31m<b>&"
READING = (["results"], ["report"], ["export", "--format", "csv"], ["export", "--format", "markdown"])


def spoil(run: Path, change: dict[str, Any]) -> None:
    """Changes some keys of a record."""
    path = run / RUN_FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | change), encoding="utf-8")


@pytest.mark.parametrize("command", READING)
def test_a_terminal_obeys_no_record(here: Path, command: list[str]) -> None:
    """Escape sequences and the markup of tables are printed as they stand, wherever a record has a text."""
    sweep = write_sweep(here)
    failed = make_run("appo", 8, id="failed", sweep=sweep.name, status="failed", reason="r", steps_per_s=None)
    run = write_run_folder(sweep, failed)
    cell = json.loads((run / RUN_FILE).read_text())["cell"]
    spoil(run, {"reason": HOSTILE, "warnings": [HOSTILE], "cell": cell | {"system": HOSTILE, "scenario": HOSTILE}})
    ended = call(*command, str(sweep))
    printed = ended.out + ended.err
    assert (ended.code, "Traceback" in printed) == (0, False)
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(printed)
    if command != ["report"]:
        assert "[bold]" in "".join(printed.split()).replace("\\", "")  # Markdown has its own marks for brackets


@pytest.mark.parametrize("command", READING)
def test_names_of_folders_are_any_bytes(here: Path, command: list[str]) -> None:
    """A folder whose name is no text is read as any other, and shown escaped, as what a terminal would obey."""
    sweep = write_sweep(here)
    good = next(sweep.glob("001-*"))
    for name in (b"bad-\xff", b"bad-\x1b[2J"):
        (sweep / os.fsdecode(name)).mkdir()
        (sweep / os.fsdecode(name) / RUN_FILE).write_bytes((good / RUN_FILE).read_bytes()[:-9])
    ended = call(*command, str(sweep))
    assert ended.code == 0, ended.err
    assert not {"\x1b", "\udcff"} & set(ended.out + ended.err)
    if command == ["results"]:
        listed = "".join(ended.out.split())
        assert r"bad-\udcff/run.json:isdamaged" in listed
        assert r"bad-\x1b[2J/run.json:isdamaged" in listed


def test_a_watched_sweep_is_no_command_to_a_terminal(here: Path) -> None:
    """What its plan, its runs and its `live.json` say is shown as it stands, and a process that never was is gone."""
    sweep = write_sweep(here)
    sweep.joinpath("sweep.json").write_text('{"command": [], "cells": []}')
    sweep.rename(sweep := here / "\x1b[2J-sweep")
    writer = {"host": "\x1b[2J", "pid": 1, "started": -1, "boot": Writer.me().boot, "namespace": Writer.me().namespace}
    cell = {"number": 1, "label": "\x1b[2J\n\n", "phase": "\x1b[2J", "iterations": 0, "env_steps": 0, "joint_steps": 0}
    cell |= {"steps_per_s": 0.0, "joint_steps_per_s": 0.0, "fraction": 0.0, "elapsed_s": 1e300, "left_s": None}
    live = {"writer": writer, "num_cells": 1, "num_ended": 0, "num_failed": 0, "running": [cell], "num_running": 1}
    (sweep / LIVE_FILE).write_text(json.dumps(live))
    ended = call("watch", str(sweep))
    assert ended.code == 1
    assert "\x1b" not in ended.out + ended.err
    assert "process 1, which ran the sweep, is gone" in ended.err


def test_errors_are_no_commands_to_a_terminal(here: Path) -> None:
    """A folder that is named on the command line may have any name as well."""
    ended = call("results", f"{here}/no\x1b[2J")
    assert_refused(ended, r"no\x1b[2J: is not a folder")


@pytest.mark.parametrize("name", [SPANS_FILE, SERIES_FILE])
def test_pipes_are_not_waited_for(here: Path, name: str) -> None:
    """In the place of spans a pipe costs a run its timeline, in that of a series the run; the others are shown."""
    sweep = write_sweep(here)
    run = sweep / "004-ver-x8"
    (run / name).unlink()
    os.mkfifo(run / name)
    assert call("report", str(sweep)).code == 0
    assert "a named pipe, must be a regular file" in (here / "rlbench-report.html").read_text(encoding="utf-8")
    assert_refused(call("export", "--format", "perfetto", str(run)), "a named pipe" if name == SPANS_FILE else "has 0")


def test_links_out_of_a_run_folder_are_not_followed(here: Path) -> None:
    """What is elsewhere gets into no report."""
    sweep = write_sweep(here)
    (here / "secret.json").write_text((sweep / "001-sync-x1" / RUN_FILE).read_text().replace("sync", "secret"))
    (sweep / "001-sync-x1" / RUN_FILE).unlink()
    (sweep / "001-sync-x1" / RUN_FILE).symlink_to(here / "secret.json")
    listed = call("results", str(sweep), "--json")
    assert "secret" not in listed.out
    assert [run["id"] for run in json.loads(listed.out)] == ["002-sync-x8", "003-ver-x1", "004-ver-x8"]


@pytest.mark.parametrize("name", ["../../x", "/etc/x", "a,b:c d", "\x1b", ".."])
def test_a_profile_of_a_run_stays_in_its_folder(here: Path, name: str) -> None:
    """Whatever the record says the run is called."""
    path = free_path(here, name)
    assert path.parent == here
    assert path.name.startswith("profile-")
    assert not set(path.name) & set("/,: \x1b")
    path.symlink_to("nowhere")
    assert free_path(here, name) != path, "what is there is kept"


def test_weights_are_a_regular_file(here: Path) -> None:
    """`rlbench evaluate` looks at the file before any system does, of whatever format the system's are."""
    run = write_run_folder(here / "sweep", make_record("sync", id="run"), [100.0] * 10)
    os.mkfifo(run / "policy.pt")
    assert_refused(call("evaluate", str(run)), "policy.pt: is a named pipe", "run that cell again")
    (run / "policy.pt").unlink()
    (run / "policy.pt").symlink_to("/dev/zero")
    assert_refused(call("evaluate", str(run)), "policy.pt: is a link that leads out of its folder")
    (run / "policy.pt").unlink()
    (run / "policy.pt").write_bytes(b"cos\nsystem\n(S'touch pwned'\ntR.")
    assert_refused(call("evaluate", str(run)), "policy.pt: is damaged")
    assert not (here / "pwned").exists()


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("gpus",), "2"),
        (("gpus",), True),
        (("seed",), 0.5),
        (("system_settings",), []),
        (("scenario_settings",), {"num_envs": 4}),
        (("limits",), {"iterations": "1"}),
        (("limits",), None),
        (("device",), "abacus"),
        (("extra",), 1),
    ],
)
def test_a_plan_of_other_types_is_damaged(here: Path, place: tuple[str, ...], value: object) -> None:
    """Each field of a cell is of its type, before anything is done with it."""
    sweep = samples.make_sweep(here)
    plan = json.loads((sweep / PLAN_FILE).read_text())
    plan["cells"][1][place[0]] = value
    (sweep / PLAN_FILE).write_text(json.dumps(plan))
    ended = call("run", "--resume", "--dry-run", "--out", str(here))
    assert_refused(ended, f"{PLAN_FILE}: is damaged", place[0] if value is not None else "limits")


def test_a_good_plan_is_read(here: Path) -> None:
    """As it was written: a limit of 60 becomes no 60.0, for a cell's hash tells them apart."""
    plan = samples.make_sweep(here) / PLAN_FILE
    written = json.loads(plan.read_text())
    assert [json.loads(cell.to_json()) for cell in Sweep.read(plan).cells] == written["cells"]
    written["cells"][0]["limits"]["seconds"] = 60
    plan.write_text(json.dumps(written))
    assert repr(Sweep.read(plan).cells[0].limits.seconds) == "60"


@pytest.mark.parametrize(
    "machine",
    [
        {"gpus": [{"slowdowns": 3, "process_ids": 7, "memory_used_bytes": "x", "memory_bytes": None, "name": [1]}]},
        {"gpus": 3, "num_affine_cores": "many", "cpu_quota_cores": [1], "cpu_model": {"a": 1}},
        {"num_affine_cores": -1, "cpu_quota_cores": 0},
    ],
)
def test_a_machine_may_be_anything(here: Path, machine: dict[str, Any]) -> None:
    """What a record says of its machine and its configuration is not checked, and costs no traceback."""
    sweep = samples.make_sweep(here)
    for run in sweep.glob("0*"):
        record = json.loads((run / RUN_FILE).read_text())
        device = {"cell": record["cell"] | {"device": "cuda"}}
        odd: dict[str, Any] = {"optimizer": {}, "epochs": [[]], "adam_eps": {}}
        scenario = {"learn": odd, "profile": 3, "num_envs": "few"}
        spoil(run, device | {"machine": machine, "configuration": {"scenario": scenario, "system": [], "limits": 3}})
    for command in READING:
        assert call(*command, str(sweep)).code == 0
    ended = call("profile", "--from-run", str(sweep / samples.VICTIM))
    assert_refused(ended, "has no scenario.num_envs in its configuration")


def test_a_curve_that_cannot_be_read_costs_a_run_its_curve(here: Path) -> None:
    """`rlbench compare` names it, and compares all the same."""
    sweep = samples.make_sweep(here)
    series = sweep / samples.VICTIM / SERIES_FILE
    pd.read_parquet(series).assign(**{"return": "high"}).to_parquet(series)
    ended = call("compare", str(sweep), str(sweep))
    assert ended.code == 0
    assert "column 'return' is no column of numbers" in " ".join(ended.out.split())


def test_a_run_is_read_through_a_link(here: Path) -> None:
    """A link to a sweep or a run is how people name one."""
    sweep = write_sweep(here / "elsewhere")
    (here / "link").symlink_to(sweep)
    run: StoredRun = load_run(here / "link" / "001-sync-x1")
    assert run.record.id == "001-sync-x1"
    assert len(json.loads(call("results", "link", "--json").out)) == 4
