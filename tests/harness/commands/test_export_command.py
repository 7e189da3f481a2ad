from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pandas as pd
import pytest

from tests.harness import sweeps
from tests.harness.command import assert_refused, call
from tests.harness.sweeps import SPANS, named, spoil, write_sweep

here = pytest.fixture(autouse=True)(sweeps.here)


def test_export_as_text(here: Path) -> None:
    """JSON, CSV and Markdown come on stdout, or in a file with `--out`, and are the same there."""
    sweep = str(write_sweep(here))
    for form, begins in (("json", "{"), ("csv", "schema_version,"), ("markdown", "- emulated/open-fridge")):
        printed = call("export", sweep, "--format", form)
        assert (printed.code, printed.err) == (0, "")
        assert printed.out.startswith(begins)
        assert call("export", sweep, "--format", form, "--out", f"out.{form}").out == ""
        assert (here / f"out.{form}").read_text(encoding="utf-8") == printed.out


def test_exports_agree(here: Path) -> None:
    """CSV and Parquet hold the runs of the JSON, with the same figures."""
    sweep = str(write_sweep(here))
    runs = json.loads(call("export", sweep, "--format", "json").out)["runs"]
    rows = list(csv.DictReader(io.StringIO(call("export", sweep, "--format", "csv").out)))
    assert call("export", sweep, "--format", "parquet", "--out", "runs.parquet").code == 0
    frame = pd.read_parquet("runs.parquet")
    for path in ("steps_per_s", "scaling_factor", "efficiency"):
        expected = [run["figures"][path] for run in runs]
        assert [float(row[f"figures.{path}"]) for row in rows] == expected
        assert frame[f"figures.{path}"].tolist() == expected
    assert frame["id"].tolist() == [run["id"] for run in runs]


def test_export_of_the_newest_sweep(here: Path) -> None:
    """Without folders it is the newest sweep in `rlbench-runs` that is written."""
    write_sweep(here / "rlbench-runs", day=1)
    sweep = write_sweep(here / "rlbench-runs", day=2)
    cells = json.loads(call("export", "--format", "json").out)["cells"]
    assert {cell["sweep"] for cell in cells} == {sweep.name}


def test_parquet_needs_a_file(here: Path) -> None:
    """Parquet is not printed."""
    assert_refused(call("export", str(write_sweep(here)), "--format", "parquet"), "--format parquet", "--out")


def test_export_that_cannot_be_written(here: Path) -> None:
    """A file that cannot be written is one line that names it, whatever the format."""
    sweep = write_sweep(here)
    for form in ("json", "csv", "markdown", "parquet"):
        ended = call("export", str(sweep), "--format", form, "--out", "no/where")
        assert_refused(ended, "no/where: cannot be written")
    ended = call("export", str(sweep / "001-sync-x1"), "--format", "perfetto", "--out", "no/where")
    assert_refused(ended, "no/where: cannot be written")


def test_export_names_what_cannot_be_read(here: Path) -> None:
    """JSON and Markdown name failed, half-written, foreign, damaged and newer runs."""
    sweep = write_sweep(here)
    spoilt = spoil(sweep)
    for form in ("json", "markdown"):
        ended = call("export", str(sweep), "--format", form)
        assert (ended.code, ended.err) == (0, "")
        assert named(ended.out, spoilt) == []


def test_timeline_of_a_run(here: Path) -> None:
    """A run folder that is named is written as a trace; without one it is the newest finished run with a timeline."""
    sweep = write_sweep(here / "rlbench-runs")
    (sweep / "004-ver-x8" / "spans.parquet").unlink()
    document = json.loads(call("export", str(sweep / "001-sync-x1"), "--format", "perfetto").out)
    assert document["otherData"]["id"] == "001-sync-x1"
    assert [event["name"] for event in document["traceEvents"] if event["ph"] == "X"] == [kind for *_, kind in SPANS]
    assert json.loads(call("export", "--format", "perfetto").out)["otherData"]["id"] == "003-ver-x1"


def test_timelines_of_a_sweep(here: Path) -> None:
    """A sweep that is named is one trace of all finished runs with a timeline; stderr says how many are left out."""
    sweep = write_sweep(here)
    ended = call("export", str(sweep), "--format", "perfetto", "--out", "trace.json")
    assert (ended.code, ended.out, ended.err) == (0, "", "")
    about = json.loads((here / "trace.json").read_text(encoding="utf-8"))["otherData"]["runs"]
    assert [each["id"] for each in about] == ["001-sync-x1", "002-sync-x8", "003-ver-x1", "004-ver-x8"]
    (sweep / "001-sync-x1" / "spans.parquet").unlink()
    (sweep / "003-ver-x1" / "spans.parquet").write_bytes(b"PAR1 cut off")
    ended = call("export", str(sweep), "--format", "perfetto")
    assert [each["id"] for each in json.loads(ended.out)["otherData"]["runs"]] == ["002-sync-x8", "004-ver-x8"]
    left_out, damaged = ended.err.splitlines()
    assert left_out == "rlbench: warning: 1 of 4 runs did not finish or have no timeline, and are left out"
    assert damaged.startswith("rlbench: warning: ")
    assert "003-ver-x1/spans.parquet: cannot be read" in damaged


def test_no_timeline_is_one_line(here: Path) -> None:
    """A run, or a sweep, without a timeline is refused, and no file is made."""
    sweep = write_sweep(here)
    for spans in sweep.glob("*/spans.parquet"):
        spans.unlink()
    ended = call("export", str(sweep), "--format", "perfetto", "--out", "trace.json")
    assert_refused(ended, "has 4 runs, none that finished with a timeline")
    ended = call("export", str(sweep / "001-sync-x1"), "--format", "perfetto", "--out", "trace.json")
    assert_refused(ended, "has no spans.parquet")
    assert not (here / "trace.json").exists()
