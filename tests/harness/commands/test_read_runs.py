from __future__ import annotations

import csv
import io
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from rlbench.harness.commands.read_runs import NEWEST, find, newest_sweep
from rlbench.results.records.store import RUN_FILE, read_runs
from tests.harness import sweeps
from tests.harness.command import assert_refused, call
from tests.harness.sweeps import RATES, named, spoil, write_sweep
from tests.reports.page.pages import Page
from tests.results.made_records import make_record, write_run_folder

here = pytest.fixture(autouse=True)(sweeps.here)


def rows_of(table: str) -> list[str]:
    """The rows of a printed table."""
    return [line for line in table.splitlines() if "|" in line][1:]


def test_results_are_filtered(here: Path) -> None:
    """`--where` keeps the runs that have all values, and scales them against a base that it does not show."""
    sweep = write_sweep(here)
    rows = call("results", str(sweep), "--where", "system=ver", "--where", "gpus=8").out.splitlines()
    (row,) = [line for line in rows if line.startswith("ver")]
    assert [text.split()[0] for text in row.split("|")][1:3] == ["1,337", "6.68"]
    assert [line for line in rows if line.startswith("sync")] == []
    runs = json.loads(call("results", str(sweep), "--where", "gpus=8", "--json").out)
    assert [(run["cell"]["system"], round(run["figures"]["scaling_factor"], 2)) for run in runs] == [
        ("sync", 5.0),
        ("ver", 6.68),
    ]


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (["system=vre"], "no runs with system=vre; did you mean 'ver'? known: sync, ver"),
        (["system=ver", "status=finish"], "no runs with status=finish; did you mean 'finished'? known: finished"),
        (["gpus=x"], "no runs with gpus=x; known: 1, 8"),
        (["gpus=8", "status=finished", "system=ver", "seed=0", "sweep=none"], "no runs with sweep=none; known: "),
    ],
)
def test_a_value_that_no_run_has(where: list[str], said: str, here: Path) -> None:
    """The values that there are stand in place of an empty table; JSON stays a list."""
    sweep = write_sweep(here)
    conditions = [word for each in where for word in ("--where", each)]
    assert call("results", str(sweep), *conditions).out.startswith(said)
    assert json.loads(call("results", str(sweep), *conditions, "--json").out) == []


def test_values_that_no_run_has_together(here: Path) -> None:
    """Where each value is there, all conditions are repeated."""
    sweep = write_sweep(here)
    write_run_folder(sweep, make_record("appo", 2, id="alone", sweep=sweep.name, cell={"hash": "a"}))
    said = call("results", str(sweep), "--where", "system=appo", "--where", "gpus=8").out
    assert said == "no runs with system=appo and gpus=8\n"


def test_results_find_a_system_by_its_settings(here: Path) -> None:
    """`--where system=ver:preempt=never` finds that ablation alone, and `system=ver` both."""
    sweep = write_sweep(here)
    ablation = make_record(
        "ver", 8, id="ablation", sweep=sweep.name, cell={"settings": {"preempt": "never"}, "hash": "a"}
    )
    write_run_folder(sweep, ablation)

    def found(where: str) -> list[str]:
        return [run["id"] for run in json.loads(call("results", str(sweep), "--where", where, "--json").out)]

    assert found("system=ver:preempt=never") == ["ablation"]
    assert sorted(found("system=ver")) == ["003-ver-x1", "004-ver-x8", "ablation"]


def test_results_show_the_newest(here: Path) -> None:
    """`--newest` shows so many runs, and a line says how many there are; 0 shows all, as do JSON and CSV."""
    write_sweep(here, day=1)
    write_sweep(here, day=2)
    table = call("results", ".", "--newest", "3").out
    assert len(rows_of(table)) == 3
    assert table.splitlines()[-1] == "the newest 3 of 8 runs; --newest 0 shows all"
    for arguments in ((), ("--newest", "0")):
        table = call("results", ".", *arguments).out
        assert len(rows_of(table)) == 8
        assert "the newest" not in table
    assert len(json.loads(call("results", ".", "--json").out)) == 8
    assert [run["id"] for run in json.loads(call("results", ".", "--json", "--newest", "1").out)] == ["004-ver-x8"]


def test_long_lists_show_the_newest(here: Path) -> None:
    """The table shows at most 200 runs by default, each with its interval."""
    for seed in range(NEWEST + 1):
        cell = {"seed": seed % 2, "settings": {"preempt.p": seed}, "hash": str(seed)}
        write_run_folder(here / "sweep", make_record(id=f"{seed:03d}", cell=cell), RATES)
    table = call("results", "sweep").out
    assert f"the newest {NEWEST} of {NEWEST + 1} runs" in table
    rows = rows_of(table)
    assert len(rows) == NEWEST
    assert "95 %" in table
    assert all(" to " in row for row in rows)


def test_results_over_seeds(here: Path) -> None:
    """Runs that differ in their seeds alone are one row, with the mean of their rates."""
    for seed, rate in enumerate((90.0, 100.0, 110.0)):
        record = make_record(id=f"seed-{seed}", steps_per_s=rate, cell={"seed": seed, "hash": str(seed)})
        write_run_folder(here / "sweep", record, RATES)
    table = call("results", "sweep", "--explain").out
    (row,) = [line for line in table.splitlines() if line.startswith("ddppo")]
    assert row.split("|")[1].split()[0] == "100"
    assert "seeds 0..2" in table.splitlines()[0]
    assert "interval from the spread of the seeds" in table


def test_results_name_what_cannot_be_read(here: Path) -> None:
    """Unreadable and half-written folders are named at the end; the others are listed, and the exit code is 0."""
    sweep = write_sweep(here)
    spoilt = spoil(sweep)
    ended = call("results", str(sweep))
    assert (ended.code, ended.err) == (0, "")
    assert len(rows_of(ended.out)) == 5
    text = ended.out.replace("\n", "")
    assert named(text, spoilt) == []
    assert text.index("unreadable: ") > text.index("Caveats:")
    assert "failed: appo" in text
    assert "upgrade rlbench" in text
    assert len(json.loads(call("results", str(sweep), "--json").out)) == 5
    assert len(list(csv.DictReader(io.StringIO(call("results", str(sweep), "--csv").out)))) == 5


def embedded(page: Path) -> dict[str, Any]:
    """The summary in a report."""
    data: dict[str, Any] = Page(page.read_text(encoding="utf-8")).data["summary-data"]
    return data


def test_report_of_the_newest_sweep(here: Path) -> None:
    """`rlbench report` writes one file of the newest sweep, and prints where it is and what it comes to."""
    write_sweep(here / "rlbench-runs", day=1)
    sweep = write_sweep(here / "rlbench-runs", day=2)
    ended = call("report")
    assert (ended.code, ended.err) == (0, "")
    first, *answers = ended.out.splitlines()
    assert first == "rlbench-report.html"
    summary = embedded(here / first)
    assert {cell["sweep"] for cell in summary["cells"]} == {sweep.name}
    assert " ".join(answers) == " ".join(summary["answers"])
    assert "`ver` makes 1,337 steps/s" in " ".join(answers)
    assert [path.name for path in here.iterdir()] == ["rlbench-runs", first] or sorted(
        path.name for path in here.iterdir()
    ) == ["rlbench-report.html", "rlbench-runs"]


def test_report_of_several_folders(here: Path) -> None:
    """Sweeps that are named are shown together, whatever their runs are called; `--out` names the file."""
    a, b = write_sweep(here, day=1), write_sweep(here, day=2)
    assert call("report", str(a), str(b), "--out", "both.html", "--reference", "ver").code == 0
    summary = embedded(here / "both.html")
    assert (len(summary["cells"]), len(summary["runs"]), summary["reference"]) == (8, 8, "ver")


def test_report_says_the_same_as_the_export(here: Path) -> None:
    """Every figure of the report is that of `export --format json` with the same options."""
    sweep = write_sweep(here)
    options = ("--reference", "ver")
    assert call("report", str(sweep), *options).code == 0
    assert embedded(here / "rlbench-report.html") == json.loads(
        call("export", str(sweep), "--format", "json", *options).out
    )


def test_report_names_what_cannot_be_read(here: Path) -> None:
    """Failed, half-written, foreign, damaged and newer runs are named in the report, and the others are in it."""
    sweep = write_sweep(here)
    spoilt = spoil(sweep)
    ended = call("report", str(sweep))
    assert (ended.code, ended.err) == (0, "")
    summary = embedded(here / "rlbench-report.html")
    assert len(summary["cells"]) == 5
    assert named(json.dumps(summary["findings"]), spoilt) == []
    assert any("rank 3 died" in finding["text"] for finding in summary["findings"])


def test_report_of_nothing_but_unreadable_runs(here: Path) -> None:
    """A folder where nothing can be read gives a report that names it all."""
    sweep = write_sweep(here)
    for run in read_runs(sweep):
        (run.path / RUN_FILE).write_text("{")
    ended = call("report", str(sweep))
    assert (ended.code, ended.err) == (0, "")
    assert len(embedded(here / "rlbench-report.html")["findings"]) == 4


def test_report_that_cannot_be_written(here: Path) -> None:
    """A file that cannot be written is one line that names it, and an unknown reference lists those that there are."""
    sweep = str(write_sweep(here))
    assert_refused(call("report", sweep, "--out", "no/where.html"), "no/where.html: cannot be written")
    assert_refused(call("report", sweep, "--reference", "nope"), "--reference nope: no run of it; known: sync, ver")


def test_folders_by_the_names_of_their_runs(here: Path) -> None:
    """Runs of one sweep are found by their ids; runs of two sweeps that have the same id by sweep and id."""
    a, b = write_sweep(here, day=1), write_sweep(here, day=2)
    (a / "001-sync-x1" / "spans.parquet").unlink()
    folders = find([a, b]).folders()
    assert folders[f"{a.name}/001-sync-x1"] == a / "001-sync-x1"
    assert folders[f"{b.name}/001-sync-x1"] == b / "001-sync-x1"
    assert folders["001-sync-x1"] == b / "001-sync-x1"  # the one that has a timeline


def test_the_newest_sweep(here: Path) -> None:
    """The newest sweep is the one whose name says so, of two in the same second the one that was planned last."""
    old, new = write_sweep(here, day=1), write_sweep(here, day=3)
    os.utime(old / "sweep.json", ns=(4 * 10**18, 4 * 10**18))  # written later, all the same
    assert newest_sweep(here) == new
    copy = here / new.name.replace("abcd", "0000")
    shutil.copytree(new, copy)
    os.utime(copy / "sweep.json", ns=(1, 1))
    assert newest_sweep(here) == new
    shutil.rmtree(new)
    shutil.rmtree(copy)
    (here / "20990101-000000-ffff").mkdir()  # holds nothing
    assert newest_sweep(here) == old
    for stray in (here / "zzz-1" / "run", here / "unpacked-run"):  # runs that somebody put beside the sweeps
        shutil.copytree(next(old.glob("0*")), stray)
    assert newest_sweep(here) == old
    shutil.rmtree(old)
    assert newest_sweep(here) == here / "zzz-1"  # there is nothing else


def test_run_reads_earlier_runs_from_the_index(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`rlbench run` looks for runs of a newer schema without reading those that it has seen before."""
    write_sweep(here / "out")
    arguments = (
        "run",
        "--systems",
        "sync",
        "--scenario",
        "emulated:num_envs=2",
        "--device",
        "emulated",
        "--out",
        "out",
    )
    assert call(*arguments, "--dry-run").code == 0
    monkeypatch.setattr("rlbench.results.records.index.load_run", lambda path: pytest.fail(f"reads {path}"))
    assert call(*arguments, "--dry-run").code == 0
