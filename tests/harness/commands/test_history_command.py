"""`rlbench history`, and the report that draws it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness import sweeps
from tests.harness.command import assert_refused, call
from tests.harness.sweeps import write_sweep

here = pytest.fixture(sweeps.here)


def test_revisions_are_added_and_shown(here: Path) -> None:
    """Each folder adds its revision; the same again changes nothing; the file is made where it is asked for."""
    for day, (commit, faster) in enumerate((("aaaaaaaaaaaaaaaa", 1.0), ("bbbbbbbbbbbbbbbb", 0.9)), start=1):
        write_sweep(here / commit, day=day, faster=faster, commit=commit)
    first = call("history", "aaaaaaaaaaaaaaaa")
    assert first.code == 0, first.err
    ended = call("history", "bbbbbbbbbbbbbbbb")
    assert ended.out.count("aaaaaaaaaaaa |") == 4
    assert ended.out.count("bbbbbbbbbbbb |") == 4
    assert "ver, emulated/open-fridge, heterogeneous, 8 emulated GPUs, protocol=ddppo seconds=" in ended.out
    lines = (here / "rlbench-history.jsonl").read_text()
    assert len(lines.splitlines()) == 8
    call("history", "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb")
    assert (here / "rlbench-history.jsonl").read_text() == lines
    assert call("history").out == ended.out
    document = json.loads(call("history", "--json").out)
    assert [len(series["rows"]) for series in document] == [2, 2, 2, 2]


def test_the_report_draws_it(here: Path) -> None:
    """With --history there is a chart of revisions; a history that is not there is a usage error."""
    write_sweep(here / "rlbench-runs", commit="aaaaaaaaaaaaaaaa")
    call("history", "rlbench-runs", "--file", "mine.jsonl")
    assert call("report", "--history", "mine.jsonl").code == 0
    assert "Steps/s over revisions: emulated/open-fridge" in (here / "rlbench-report.html").read_text()
    assert_refused(call("report", "--history", "nowhere.jsonl"), "--history nowhere.jsonl: is not there")


def test_what_cannot_be_kept(here: Path) -> None:
    """No runs yet is a line that says what to do; a changed work tree and a damaged file are usage errors."""
    assert call("history").out == "no revisions: `rlbench history RUNS` adds those of a folder of runs\n"
    write_sweep(here / "dirty", commit="aaaaaaaaaaaaaaaa-dirty")
    assert_refused(call("history", "dirty"), "no finished run of a committed revision")
    assert not (here / "rlbench-history.jsonl").exists()
    (here / "rlbench-history.jsonl").write_text("{}\n")
    assert_refused(call("history"), "rlbench-history.jsonl, line 1: is no row of a history")
