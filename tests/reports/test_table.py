from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from reports import format as fmt
from reports.table import make_console, print_table
from results.schema import Lag, Reading, RunRecord, Window
from tests.results.records import make_record

SCALED = {
    "scaling_factor": 6.39,
    "scaling_factor_interval": (6.07, 6.71),
    "scaling_base_gpus": 1,
    "efficiency": 0.799,
    "steps_per_s_interval": (983.0, 1065.0),
}


def printed(*records: RunRecord, width: int = 160) -> str:
    """The table as text."""
    file = io.StringIO()
    print_table(records, Console(file=file, width=width, highlight=False))
    return file.getvalue()


def line_with(text: str, *needles: str) -> str:
    """The only line that holds all the needles."""
    (line,) = [line for line in text.splitlines() if all(needle in line for needle in needles)]
    return line


def test_row_of_a_run() -> None:
    """A row has the rate, scaling, efficiency, utilisation, both intervals and the four largest time shares."""
    row = line_with(printed(make_record(gpus=8, steps_per_s=1024, figures=SCALED)), "ddppo", "8 (emulated)")
    for cell in ("1,024", "6.39", "80%", "42%", "983 to 1,065", "6.07 to 6.71"):
        assert cell in row
    assert "simulate 50%, wait:straggler 20%, learn 13%, infer 10%" in row
    assert "reset" not in row


@pytest.mark.parametrize("width", [80, 100, 160])
def test_nothing_is_cut_at_any_width(width: int) -> None:
    """At 80 columns as at 160 every figure stands whole in one line, and no line is wider than the terminal."""
    records = [make_record("sync", 1), make_record("ddppo", 8, steps_per_s=1024, figures=SCALED)]
    text = printed(*records, width=width)
    assert max(map(len, text.splitlines())) <= width
    for cell in ("1,024", "6.39", "983 to 1,065", "6.07 to 6.71", "utilisation", "simulate 50%, wait:straggler 20%"):
        assert any(cell in line for line in text.splitlines())


def test_long_settings_are_folded_not_cut() -> None:
    """A system with settings too long for its column goes on in the next line, to the last letter."""
    record = make_record(cell={"settings": {"preempt.p": 0.123456789, "average.interval": 1234567, "learn.epochs": 3}})
    names = "".join(line.split("|")[0].strip() for line in printed(record, width=80).splitlines() if "|" in line)
    assert "ddppo:preempt.p=0.123456789:average.interval=1234567:learn.epochs=3" in names


def test_failed_run_says_why() -> None:
    """A failed run has its status where the rate would be and its reason below, brackets and all."""
    failed = make_record(gpus=8, steps_per_s=None, status="failed", reason="rank 3: [Errno 12] no memory [/red]")
    text = printed(make_record(), failed)
    assert "failed" in line_with(text, "|", "8 (emulated)")
    assert "failed: ddppo, GPUs 8 (emulated): rank 3: [Errno 12] no memory [/red]" in text


def test_invalid_run_shows_no_rate() -> None:
    """The rate of an invalid run is not printed beside those of valid ones."""
    text = printed(make_record(steps_per_s=777, status="invalid", reason="10 env steps unaccounted for"))
    assert "777" not in text
    assert "invalid: ddppo, GPUs 1 (emulated): 10 env steps unaccounted for" in text


def test_what_could_not_be_read_is_not_zero() -> None:
    """Without a reading the utilisation is n/a, and 0 % only when it was 0."""
    missing, idle = Reading(source="no NVML"), Reading(value=0.0, source="NVML")
    text = printed(
        make_record(gpus=1, figures={"utilisation": missing}), make_record(gpus=2, figures={"utilisation": idle})
    )
    assert "n/a" in line_with(text, "|", "1 (emulated)")
    assert " 0%" in line_with(text, "|", "2 (emulated)")
    assert "utilisation: no NVML; NVML" in text


@pytest.mark.parametrize(
    ("column", "changes"),
    [("seed", {"seed": 1}), ("workload", {"workload": "homogeneous"}), ("scenario", {"scenario": "pointnav"})],
)
def test_what_differs_becomes_a_column(column: str, changes: dict[str, Any]) -> None:
    """What all runs share stands once above the table; what differs between them is a column."""
    header = line_with(printed(make_record()), "scenario emulated/open-fridge")
    assert column in header
    text = printed(make_record(), make_record(cell=changes))
    assert column in line_with(text, "system", "|")
    assert column not in text.splitlines()[0]


def test_interleaved_runs_are_put_in_order() -> None:
    """Runs come by system, in the order of first appearance, then GPUs, however they were interleaved."""
    runs = [make_record("sync", 8), make_record("ddppo", 1), make_record("sync", 1), make_record("ddppo", 8)]
    rows = [line for line in printed(*runs).splitlines() if "(emulated)" in line]
    assert [(row.split()[0], row.split()[2]) for row in rows] == [
        ("sync", "1"),
        ("sync", "8"),
        ("ddppo", "1"),
        ("ddppo", "8"),
    ]


def test_warnings_stand_once_with_their_count() -> None:
    """A warning that several runs have is one line; a window that is not steady is one too."""
    window = Window(
        protocol="steady", first_iteration=1, last_iteration=2, begin_s=0, end_s=1, steady=False, reason="too short"
    )
    runs = [make_record(gpus=gpus, warnings=["load 3.1"]) for gpus in (1, 2)]
    text = printed(*runs, make_record(gpus=4, figures={"window": window}))
    assert line_with(text, "load 3.1") == "warning: load 3.1 (2 of 3 runs)"
    assert line_with(text, "not steady") == "warning: ddppo, GPUs 4 (emulated): not steady: too short"


def test_footnotes_name_sources() -> None:
    """Sources, the base of the scaling and what emulated means are said below the table, and only when they apply."""
    text = printed(make_record(figures=SCALED | {"lag": Lag(mean=0, max=0)}))
    assert "utilisation: emulated busy time" in text
    assert "scaling: relative to the same on 1 GPU; efficiency: that / GPUs" in text
    assert "lag: 0 policy versions in all runs" in text
    assert "emulated: " in text
    assert "emulated: " not in printed(make_record(figures={"emulated": False}, cell={"device": "cuda"}))


def test_lag_is_a_column_where_there_is_any() -> None:
    """A system that learns on old experience shows how old."""
    assert "2.5 (7)" in line_with(printed(make_record(figures={"lag": Lag(mean=2.5, max=7)})), "|", "ddppo")


def test_no_runs() -> None:
    """An empty folder is said to be empty."""
    assert printed() == "no runs\n"


def test_piped_output_is_plain_and_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal the table is 160 columns wide, or COLUMNS, and holds no escape codes."""
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    file = io.StringIO()
    print_table([make_record()], make_console(file))
    assert "where the time went" in line_with(file.getvalue(), "steps/s", "|")
    assert file.getvalue().isascii()
    assert "\x1b" not in file.getvalue()
    monkeypatch.setenv("COLUMNS", "90")
    assert make_console(io.StringIO()).width == 90


def test_settings_are_written_as_they_are_typed() -> None:
    """Several values are joined by a plus and none is a word: a table's cell can be given to the command line again."""
    record = make_record(cell={"settings": {"limit": None, "scenario.maps": ["basic", "take_cover"]}})
    assert fmt.system(record) == "ddppo:limit=none"
    assert fmt.scenario(record) == "emulated/open-fridge:maps=basic+take_cover"
