from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from rlbench.reports.figures import format as fmt
from rlbench.reports.terminal.table import make_console, print_table
from rlbench.results.fairness.differences import Difference
from rlbench.results.summary.document import CellSummary, Estimate, Fairness, Finding, Summary
from rlbench.results.summary.summarise import summarise
from tests.reports.summaries import between, make_summary, warning
from tests.results.made_records import make_record
from tests.results.summaries import make_cell, stored

SHARES = {"simulate": 0.5, "learn": 0.13, "wait:straggler": 0.2, "infer": 0.1, "reset": 0.05}


def cell(system: str = "ddppo", gpus: int = 1, steps_per_s: float | None = 100.0, **fields: Any) -> CellSummary:
    """A cell with the figures that most have."""
    read: dict[str, Any] = {"time_shares": SHARES, "utilisation": 0.42, "utilisation_source": "emulated busy time"}
    return make_cell(system, gpus, steps_per_s, **(read if steps_per_s is not None else {}) | fields)


def scaled(**fields: Any) -> CellSummary:
    """A cell that has every figure."""
    figures: dict[str, Any] = {
        "steps_per_s": between(1024, 983, 1065),
        "scaling": between(6.39, 6.07, 6.71),
        "scaling_base_gpus": 1,
        "efficiency": between(0.799, 0.76, 0.84),
    }
    return cell("ddppo", 8).model_copy(update=figures | fields)


def printed(*cells: CellSummary, width: int = 160, explain: bool = False, **fields: Any) -> str:
    """The table as text."""
    return printed_summary(make_summary(*cells, **fields), width=width, explain=explain)


def printed_summary(summary: Summary, *, width: int = 160, explain: bool = False) -> str:
    """The table of a summary as text."""
    file = io.StringIO()
    print_table(summary, Console(file=file, width=width, highlight=False), explain=explain)
    return file.getvalue()


def explained(*cells: CellSummary, **fields: Any) -> str:
    """The table with its explanations."""
    return printed(*cells, explain=True, **fields)


def table_of(text: str) -> list[dict[str, str]]:
    """The table's rows by its titles, of a table wide enough that each title has one line."""
    title, *rows = [[each.strip() for each in line.split("|")] for line in text.splitlines() if "|" in line]
    return [dict(zip(title, row, strict=True)) for row in rows]


def line_with(text: str, *needles: str) -> str:
    """The only line that holds all the needles."""
    (line,) = [line for line in text.splitlines() if all(needle in line for needle in needles)]
    return line


def test_row_of_a_cell() -> None:
    """A row has the rate, scaling, efficiency, utilisation, both intervals and the three largest time shares."""
    assert table_of(printed(cell(), scaled()))[1] == {
        "GPUs": "8",
        "system": "ddppo",
        "steps/s (95 %)": "1,024 (983 to 1,065)",
        "scaling (95 %)": "6.39 (6.07 to 6.71)",
        "efficiency": "80%",
        "utilisation": "42%",
        "where the time went": "simulate 50%, wait:straggler 20%, learn 13%",
    }


@pytest.mark.parametrize("width", [80, 100, 120, 160])
def test_nothing_is_cut_at_any_width(width: int) -> None:
    """At 80 columns as at 160 every row is one line, whole, no wider than the terminal; what has no room is named."""
    text = printed(cell("sync", 1), scaled(), width=width)
    assert max(map(len, text.splitlines())) <= width
    row = line_with(text, "ddppo", "|")
    for figure in ("1,024 (983 to 1,065)", "6.39", "80%", "42%"):
        assert figure in row
    for figure, name in (("6.07 to 6.71", "the intervals of scaling"), ("simulate 50%", "where the time went")):
        assert (figure in row) != (name in text.partition("no room here for ")[2])


def test_columns_that_say_nothing_are_left_out() -> None:
    """On one number of GPUs there is no scaling; without readings no utilisation; without intervals no room."""
    text = printed(cell(utilisation=None, time_shares={}), cell("sync", utilisation=None, time_shares={}))
    assert [list(row) for row in table_of(text)] == [["system", "steps/s"]] * 2
    assert "1 emulated GPU" in text.splitlines()[0]


def test_long_settings_are_folded_not_cut() -> None:
    """A system with settings too long for its column goes on in the next line, to the last letter."""
    name = "ddppo:preempt.p=0.123456789:average.interval=1234567:learn.epochs=3"
    text = printed(cell(name), width=80)
    assert name in "".join(line.split("|")[0].strip() for line in text.splitlines() if "|" in line)


def test_failed_cell_says_why() -> None:
    """A failed cell has its status where the rate would be and its reason below, brackets and all."""
    reason = "failed: ddppo, 8 emulated GPUs, seed 0: rank 3: [Errno 12] no memory [/red]"
    failed = Finding(severity="failed", text=reason, runs=["ddppo-8"])
    text = printed(cell(), cell(gpus=8, steps_per_s=None), findings=[failed])
    assert table_of(text)[1] | {"GPUs": "8", "steps/s": "failed"} == table_of(text)[1]
    assert reason in text


def test_cell_of_which_some_runs_failed() -> None:
    """The rate of those that finished stands in the table; where none did, how often they ended in each way."""
    some = cell(gpus=8, runs=["a", "b"], statuses={"finished": 1, "failed": 1})
    none = cell(gpus=4, steps_per_s=None, runs=["a", "b", "c"], statuses={"failed": 2, "timed-out": 1})
    rows = table_of(printed(some, none))
    assert {row["GPUs"]: row["steps/s"] for row in rows} == {"4": "2 failed, timed-out", "8": "100"}


def test_invalid_run_shows_no_rate() -> None:
    """The rate of an invalid run is not printed beside those of valid ones, but that it is invalid, and why."""
    record = make_record(steps_per_s=777, status="invalid", reason="10 env steps unaccounted for")
    text = printed_summary(summarise([stored(record)]))
    assert "777" not in text
    assert line_with(text, "invalid: ddppo", "seed 0").endswith(": 10 env steps unaccounted for")
    assert line_with(text, "|", "ddppo").split(" | ")[1].strip() == "invalid"


def test_what_could_not_be_read_is_not_zero() -> None:
    """Without a reading the utilisation is n/a, and 0 % only when it was 0."""
    missing = cell(gpus=1, utilisation=None, utilisation_source="no NVML")
    idle = cell(gpus=2, utilisation=0.0, utilisation_source="NVML")
    text = explained(missing, idle)
    assert [row["utilisation"] for row in table_of(text)] == ["n/a", "0%"]
    assert "utilisation: no NVML; NVML" in text


@pytest.mark.parametrize(
    ("column", "changes"),
    [
        ("seed", {"seeds": [1]}),
        ("workload", {"workload": "heterogeneous"}),
        ("scenario", {"scenario": "pointnav"}),
        ("device", {"device": "cpu"}),
        ("protocol", {"protocol": "ddppo"}),
        ("sweep", {"sweep": "sweep-2"}),
    ],
)
def test_what_differs_becomes_a_column(column: str, changes: dict[str, Any]) -> None:
    """What all cells share stands once above the table; what differs between them is a column."""
    assert f"{column} " in line_with(printed(cell(), cell(gpus=8)), "scenario emulated/open-fridge")
    text = printed(cell(), cell(**changes))
    assert column in line_with(text, "system", "|")
    assert f"{column} " not in text.splitlines()[0]


def test_several_seeds_are_one_row() -> None:
    """A cell over seeds is one row; its seeds are named as `--seeds` takes them, and the interval is theirs."""
    rates = between(1000, 900, 1100, "seeds")
    three = cell("ver", 8, steps_per_s=rates.value, seeds=[0, 1, 2], runs=["a", "b", "c"])
    three = three.model_copy(update={"steps_per_s": rates})
    text = explained(three, cell("sync", 8, seeds=[4, 7], runs=["d", "e"]))
    assert {row["system"]: row["seeds"] for row in table_of(text)} == {"ver": "0..2", "sync": "4,7"}
    assert "95 %: interval from the spread of the seeds" in text.splitlines()
    alike = printed(three, three.model_copy(update={"system": "sync"}))
    assert "seeds 0..2" in alike.splitlines()[0]


def test_the_note_says_what_intervals_come_from() -> None:
    """Intervals of single runs say nothing of others, and the note says so; without intervals there is none."""
    assert line_with(explained(scaled()), "95 %:") == (
        "95 %: interval from the spread of the iterations of the window; it says nothing of other runs or seeds"
    )
    both = explained(scaled(), cell("ver", 8).model_copy(update={"steps_per_s": between(9, 8, 10, "seeds")}))
    assert "the seeds, or the iterations of the window where there is one run alone" in line_with(both, "95 %:")
    assert "95 %" not in explained(cell())


def test_rates_without_an_interval_are_counted() -> None:
    """A line says how many seeds or iterations an interval needs, in place of a column that holds nothing."""
    few = [
        cell(system).model_copy(update={"steps_per_s": Estimate(value=9, units="seeds", num_units=2, needs=needs)})
        for system, needs in (("sync", 3), ("ver", 10))
    ]
    text = printed(*few, scaled())
    assert "- no 95 % interval for 2 of 3 rows: it needs at least 3 to 10 seeds" in text
    assert "needs at least 3 seeds" in printed(few[0])


def test_seeds_of_a_cell_that_failed() -> None:
    """Where no run finished the seeds are those that were tried."""
    failed = cell(gpus=8, steps_per_s=None, runs=["a", "b"], statuses={"failed": 2})
    assert table_of(printed(cell(), failed))[1]["seeds"] == "0,1"


def test_rows_on_as_many_gpus_stand_together_the_fastest_first() -> None:
    """They are what a reader chooses between; a line parts them from others, and what has no rate comes last."""
    cells = [cell("sync", 1), cell("sync", 8, 700.0), cell("ddppo", 8, None), cell("ver", 8, 900.0), cell("ver", 1)]
    text = printed(*cells)
    assert [(row["GPUs"], row["system"]) for row in table_of(text) if "system" in row and row["GPUs"]] == [
        *(("1", "sync"), ("1", "ver"), ("8", "ver"), ("8", "sync"), ("8", "ddppo")),
    ]
    assert sum(line.startswith("-----+") for line in text.splitlines()) == 2


def test_works_keep_their_order() -> None:
    """Scenarios and workloads come in the order of the summary, whatever their rates are."""
    works = [cell(workload=workload, steps_per_s=rate) for workload, rate in (("homogeneous", 1.0), ("mixed", 9.0))]
    assert [row["workload"] for row in table_of(printed(*works))] == ["homogeneous", "mixed"]


def test_warnings_stand_once_with_their_count() -> None:
    """A warning that several runs have is one line, which says how many; of a single run there is nothing to count."""
    found = [warning("load 3.1", "ddppo-1", "ddppo-2")]
    text = printed(cell(gpus=1), cell(gpus=2), cell(gpus=4), findings=found)
    assert line_with(text, "load 3.1") == "- warning: load 3.1 (2 of 3 runs)"
    assert line_with(printed(cell(), findings=[warning("load 3.1", "ddppo-1")]), "load 3.1") == "- warning: load 3.1"


def test_caveats_are_few_unless_all_are_asked_for() -> None:
    """Six lines at most, the last of which counts the rest; `--explain` shows all of them."""
    found = [warning(f"load {number}", "ddppo-1") for number in range(9)]
    lines = printed(cell(), findings=found).splitlines()
    shown = lines[lines.index("Caveats:") + 1 : -1]
    assert len(shown) == 6
    assert shown[-1] == "- and 4 more: --explain shows all"
    assert sum("warning: load" in line for line in explained(cell(), findings=found).splitlines()) == 9
    assert "Caveats" not in printed(cell())


def test_unreadable_folders_are_named_last() -> None:
    """What could not be read is named at the end, also where nothing could."""
    gone = Finding(severity="unreadable", text="/runs/x: is damaged", runs=["/runs/x"])
    assert printed(cell(), findings=[gone]).splitlines()[-2] == "- unreadable: /runs/x: is damaged"
    assert printed(findings=[gone]) == "no runs\nunreadable: /runs/x: is damaged\n"
    many = [gone.model_copy(update={"text": f"/runs/{number}: is damaged"}) for number in range(20)]
    assert printed(cell(), findings=many).count("is damaged") == 20


def test_what_is_not_comparable_is_said_once() -> None:
    """Systems that differ in more than their choices are named with what differs, once for all GPUs where it does."""
    difference = Difference(aspect="epochs", values={"1": ["appo"], "2": ["ddppo"]})
    fairness = [
        Fairness(sweep="sweep-1", scenario="pointnav", workload="homogeneous", gpus=gpus, differences=found)
        for gpus, found in ((1, [difference]), (4, []), (8, [difference]))
    ]
    text = printed(cell(), fairness=fairness)
    assert line_with(text, "not comparable") == "- 1, 8 GPUs: not comparable: appo differs from ddppo in epochs"
    assert "not comparable" not in printed(cell(), fairness=fairness[1:2])


def test_who_differs_is_said_only_where_all_aspects_agree_on_it() -> None:
    """Where one system is unlike the others in all aspects it is named; else only the aspects are."""
    epochs = Difference(aspect="epochs", values={"1": ["appo"], "2": ["ddppo", "ver"]})
    batch = Difference(aspect="batch", values={"64": ["appo"], "128": ["ddppo", "ver"]})
    rate = Difference(aspect="learning rate", values={"0.1": ["ver"], "0.2": ["appo", "ddppo"]})

    def said(*differences: Difference) -> str:
        group = Fairness(sweep="s", scenario="pointnav", workload="homogeneous", gpus=2, differences=list(differences))
        return line_with(printed(cell(), fairness=[group]), "not comparable")

    assert said(epochs, batch) == "- 2 GPUs: not comparable: appo differs from ddppo, ver in epochs, batch"
    assert said(epochs, rate) == "- 2 GPUs: not comparable: systems differ in epochs, learning rate"


def test_works_are_named_where_there_are_several() -> None:
    """Where groups of different work stand in a table, the line says which of them is not comparable."""
    difference = Difference(aspect="epochs", values={"1": ["appo"], "2": ["ddppo"]})
    fairness = [
        Fairness(sweep="sweep-1", scenario=scenario, workload="homogeneous", gpus=1, differences=found)
        for scenario, found in (("pointnav", [difference]), ("atari", []))
    ]
    line = line_with(printed(cell(), fairness=fairness), "not comparable")
    assert line.startswith("- sweep-1, pointnav, homogeneous, 1 GPU: not comparable")


def test_many_differences_are_one_line() -> None:
    """Where groups differ in many ways, a line names the first; `--explain` has each group with all of them."""
    aspects = ["epochs", "batch", "clip", "optimiser", "momentum"]
    found = [Difference(aspect=aspect, values={"1": ["appo"], "2": ["ddppo"]}) for aspect in aspects]
    fairness = [
        Fairness(sweep="sweep-1", scenario="pointnav", workload=workload, gpus=gpus, differences=found)
        for workload, gpus in (("homogeneous", 1), ("heterogeneous", 8))
    ]
    line = line_with(printed(cell(), fairness=fairness), "not comparable")
    assert line == "- 1, 8 GPUs: not comparable: systems differ in epochs, batch, clip and 2 more"
    assert explained(cell(), fairness=fairness).count("epochs, batch, clip, optimiser, momentum") == 2


def test_explanations_are_said_when_asked_for() -> None:
    """Sources, the base of the scaling and what emulated means, and only what applies; else how to hear them."""
    text = explained(scaled(lag_mean=0.0, lag_max=0.0))
    assert "utilisation: emulated busy time" in text
    kinds = [scaled(utilisation_source=f"{kind}: busy time") for kind in ("emulated", "predicted")]
    assert "utilisation: emulated, predicted: busy time" in explained(*kinds)
    assert "scaling: relative to 1 GPU; efficiency: scaling / GPUs" in text
    assert "lag: 0 policy versions in all runs" in text
    assert "emulated: GPUs are emulated" in text
    assert "emulated: " not in explained(cell(kind="measured", device="cuda"))
    assert "efficiency: scaling / (GPUs / 2)" in explained(scaled(scaling_base_gpus=2))
    plain = printed(scaled(lag_mean=0.0, lag_max=0.0))
    assert "utilisation:" not in plain
    assert plain.splitlines()[-1] == "--explain says what the columns mean"


def test_what_was_not_measured_is_said_without_asking() -> None:
    """Once above the table where it holds for all rows, else in each row that it holds for."""
    emulated, measured = cell(), cell("sync", kind="measured", device="cuda")
    predicted = cell("ver", kind="predicted", device="predicted")
    assert "emulated: the figures are of a profile, not of this machine" in printed(emulated)
    assert "predicted: simulated by a model (not measured)" in printed(predicted)
    assert "not measured" not in printed(measured)
    text = printed(emulated, measured, predicted)
    assert {row["system"]: row["device"] for row in table_of(text)} == {
        "ddppo": "emulated",
        "sync": "cuda",
        "ver": "predicted",
    }
    assert "- predicted: simulated by a model (not measured)" in text


def test_predictions_say_how_far_off_they_were() -> None:
    """The note gives the error of the last check, or says that there was none."""
    text = explained(cell("ddppo:preempt.p=0.8", 64, kind="predicted", device="predicted"))
    assert "64 predicted GPUs" in text
    assert "at most 8, not in batches, it was off by at" in line_with(text, "simulated by a model of the profile")
    assert "fitted to, and 14.0% for 16 held out" in line_with(text, "off from published figures (ver-table1)")
    unknown = explained(cell("mine", 64, kind="predicted", device="predicted"))
    assert "never held against runs" in " ".join(unknown.split())
    own = explained(cell("ver", 64, kind="predicted", device="predicted", scenario="emulated/mine.toml"))
    assert "this profile was never held against published figures" in " ".join(own.split())


def test_rates_of_env_steps_collected_are_named() -> None:
    """A system that does not report what it learned is named, with what its rate is of."""
    text = " ".join(printed(cell("mine", steps_counted="collected"), cell("ver")).split())
    assert "mine: steps/s are of env steps collected; what was learned is not reported" in text
    assert "collected" not in printed(cell("ver"))


def test_lag_is_a_column_where_there_is_any() -> None:
    """A system that learns on old experience shows how old."""
    assert "2.5 (7)" in line_with(printed(cell(lag_mean=2.5, lag_max=7.0)), "|", "ddppo")


def test_no_runs() -> None:
    """An empty folder is said to be empty."""
    assert printed() == "no runs\n"


def test_piped_output_is_plain_and_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal the table is 160 columns wide, or COLUMNS, and holds no escape codes."""
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    file = io.StringIO()
    print_table(make_summary(cell()), make_console(file))
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


@pytest.mark.parametrize(
    ("numbers", "written"), [([3], "3"), ([0, 1], "0,1"), ([2, 3, 4], "2..4"), ([0, 1, 5], "0,1,5"), ([], "")]
)
def test_seeds_are_written_as_they_are_typed(numbers: list[int], written: str) -> None:
    """A range where there is one, else a list."""
    assert fmt.seeds(numbers) == written


def test_the_table_is_what_the_summary_says() -> None:
    """From runs to text: 8 GPUs at six times the rate of one are 6.00 and 75 % in the table."""
    rates = [95.0, 100.0, 105.0, 99.0, 101.0]
    runs = [
        stored(make_record(gpus=1), rates),
        stored(make_record(gpus=8, steps_per_s=600), [6 * rate for rate in rates]),
    ]
    row = table_of(printed_summary(summarise(runs)))[1]
    assert row["steps/s (95 %)"].startswith("600 (5")
    assert row["scaling (95 %)"].startswith("6.00 (5")
    assert row["efficiency"] == "75%"
