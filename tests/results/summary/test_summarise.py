from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rlbench.results.records.index import Index
from rlbench.results.records.parts import SERIES_FILE
from rlbench.results.records.schema import SCHEMA_VERSION, RunRecord
from rlbench.results.records.store import RUN_FILE, StoredRun, Unreadable, half_written, run_folders
from rlbench.results.summary.document import Comparison, Summary
from rlbench.results.summary.summarise import summarise
from tests.results.made_records import make_parts, write_run_folder
from tests.results.summaries import make_run, stored

RATES = [95.0, 100.0, 105.0, 99.0, 101.0]


def at(day: int) -> str:
    """A moment."""
    return f"2026-01-{day:02d}T00:00:00+00:00"


def summary_of(*records: RunRecord, **options: Any) -> Summary:
    """The summary of runs whose rates are those of `RATES`, in their proportion."""
    runs = [stored(run, [rate * (run.figures.steps_per_s or 100) / 100 for rate in RATES]) for run in records]
    return summarise(runs, **options)


def compared(summary: Summary) -> dict[tuple[str, str], Comparison]:
    """Comparisons by who is compared with whom."""
    return {(each.system, each.against): each for each in summary.comparisons}


def write_learning_run(folder: Path, record: RunRecord, success: Sequence[float]) -> StoredRun:
    """A run folder with a learning curve: 1,000 env steps in each second."""
    path = write_run_folder(folder, record)
    rows = [
        {"rank": 0, "iteration": i, "begin_s": i, "end_s": i + 1.0, "learned": 1000, "success": value}
        for i, value in enumerate(success)
    ]
    pd.DataFrame(rows).to_parquet(path / SERIES_FILE)
    return StoredRun(path=path, record=record, parts=tuple(make_parts([1000.0] * len(success))))


def test_the_fastest_is_held_against_all_and_all_against_the_reference() -> None:
    """By hand: 300 / 200 = 1.5, 300 / 100 = 3, and 200 / 100 = 2 against the reference, each within its interval."""
    rates = {"sync": 100.0, "ver": 300.0, "ddppo": 200.0}
    records = [
        make_run(name, 8, steps_per_s=rate, started_at=at(day + 1)) for day, (name, rate) in enumerate(rates.items())
    ]
    summary = summary_of(*records)
    assert summary.reference == "sync"
    found = compared(summary)
    assert len(found) == len(summary.comparisons)
    assert {pair: round(each.ratio.value, 6) for pair, each in found.items()} == {
        ("ver", "sync"): 3.0,
        ("ver", "ddppo"): 1.5,
        ("ddppo", "sync"): 2.0,
    }
    for each in found.values():
        assert each.comparable
        assert (each.gpus, each.kind, each.ratio.units) == (8, "emulated", "iterations")
        assert each.ratio.low is not None
        assert each.ratio.high is not None
        assert each.ratio.low < each.ratio.value < each.ratio.high


def test_only_the_same_work_on_as_many_gpus_is_compared() -> None:
    """Other GPU counts, workloads and sweeps have no comparison, and nothing fails for it."""
    others = [make_run("ver", 2), make_run("ver", cell={"workload": "homogeneous"}), make_run("ver", sweep="sweep-2")]
    assert summary_of(make_run("sync"), *others).comparisons == []


def test_the_reference_is_what_was_run_first_in_the_newest_sweep() -> None:
    """Also when that run failed and the cell was run again at the end; a label that somebody names wins."""
    records = [
        make_run("old", sweep="a", started_at=at(1), id="zero"),
        make_run("ver", sweep="b", started_at=at(2), id="first", status="failed", reason="died"),
        make_run("sync", sweep="b", started_at=at(3)),
        make_run("ver", sweep="b", started_at=at(4)),
    ]
    assert summary_of(*records).reference == "ver"
    assert summary_of(*records, reference="old").reference == "old"
    with pytest.raises(ValueError, match=r"^--reference gossip: no run of it; known: old, ver, sync$"):
        summary_of(*records, reference="gossip")


def test_what_differs_is_named_and_marks_the_comparison() -> None:
    """A system with other epochs is not comparable with the two others, which are with each other."""
    records = [
        make_run("sync"),
        make_run("ver", steps_per_s=200),
        make_run("appo", steps_per_s=150, learn={"epochs": 1}),
    ]
    summary = summary_of(*records)
    (fairness,) = summary.fairness
    assert [each.sentence() for each in fairness.differences] == ["epochs: 1 (appo), 2 (sync, ver)"]
    assert {pair: each.comparable for pair, each in compared(summary).items()} == {
        ("ver", "sync"): True,
        ("ver", "appo"): False,
        ("appo", "sync"): False,
    }
    (answer,) = summary.answers
    assert answer.endswith("Not comparable with it: `appo` (150 steps/s).")


def test_the_check_of_fairness_covers_seeds_and_finished_runs_alone() -> None:
    """Two seeds of the only system that ran on different cores are named; a run that failed elsewhere is not."""
    few = {"num_affine_cores": 4}
    (fairness,) = summary_of(make_run(seed=0), make_run(seed=1, machine=few)).fairness
    assert [each.aspect for each in fairness.differences] == ["cores per GPU"]
    failed = make_run("ver", machine=few, status="failed", reason="died")
    (fairness,) = summary_of(make_run(seed=0), make_run(seed=1), failed).fairness
    assert fairness.differences == []
    assert summary_of(make_run()).fairness == []


def test_a_cell_that_was_run_again_counts_once_and_its_first_try_is_named() -> None:
    """The failed try is a warning, and stays in the list of runs, but in no cell."""
    failed = make_run(id="first", status="failed", reason="rank 0 died", started_at=at(1), steps_per_s=None)
    summary = summary_of(failed, make_run(id="second", started_at=at(2)))
    assert (summary.cell().runs, summary.cell().statuses) == (["second"], {"finished": 1})
    (finding,) = summary.findings
    assert (finding.severity, finding.runs) == ("warning", ["first"])
    assert finding.text.endswith("seed 0: rank 0 died")
    assert [run.id for run in summary.runs] == ["first", "second"]


def test_runs_keep_what_compares_them() -> None:
    """The records of a summary have their scaling factors."""
    summary = summary_of(make_run(gpus=1), make_run(gpus=4, steps_per_s=300))
    assert [run.figures.scaling_factor for run in summary.runs] == [1, 3]


def test_faster_and_worse_is_marked(tmp_path: Path) -> None:
    """By hand: areas of about 0.5 against 0.2, of three seeds each: the fast system's speed costs it learning."""
    runs = []
    for seed, wobble in enumerate((-0.01, 0.0, 0.01)):
        slow = make_run("sync", seed=seed, steps_per_s=100 + seed)
        fast = make_run("appo", seed=seed, steps_per_s=300 + seed, started_at=at(2))
        runs += [write_learning_run(tmp_path, slow, [0.5 + wobble] * 6)]
        runs += [write_learning_run(tmp_path, fast, [0.2 + wobble] * 6)]
    summary = summarise(runs)
    fast_cell, slow_cell = summary.cell(system="appo"), summary.cell(system="sync")
    assert fast_cell.learning is not None
    assert slow_cell.learning is not None
    assert (fast_cell.learning.against_reference, slow_cell.learning.against_reference) == ("worse", None)
    assert fast_cell.learning.area is not None
    assert fast_cell.learning.area.value == pytest.approx(0.2)
    (answer,) = summary.answers
    assert answer.endswith("From as many env steps `appo` learns worse than `sync`, which it beats on speed.")


def test_a_series_that_was_damaged_later_is_named(tmp_path: Path) -> None:
    """Who remembered a run finds its curve damaged: the run is named, the others' learning stays."""
    runs = [write_learning_run(tmp_path, make_run(seed=seed), [0.5] * 4) for seed in range(3)]
    (runs[1].path / SERIES_FILE).write_bytes(b"PAR1 cut off")
    summary = summarise(runs)
    learning = summary.cell().learning
    assert learning is not None
    assert learning.area is not None
    assert learning.area.value == pytest.approx(0.5)
    (finding,) = summary.findings
    assert (finding.severity, finding.runs) == ("unreadable", [str(runs[1].path)])
    assert f"{runs[1].path / SERIES_FILE}: cannot be read" in finding.text


def test_a_folder_of_all_that_can_go_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Failed, half-written, foreign, damaged and newer-schema runs are named, and the good one has its figures."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    out = tmp_path / "runs" / "sweep-1"
    write_run_folder(out, make_run("ver"), RATES)
    lost = {"failed": "rank 1 was killed by SIGKILL", "timed-out": "still running after 60 s", "invalid": "no window"}
    for status, reason in lost.items():
        bad: dict[str, Any] = {"status": status, "reason": reason, "steps_per_s": None}
        write_run_folder(out, make_run(f"{status}-system", **bad, figures={"window": None}))
    newer = write_run_folder(out, make_run("newer")) / RUN_FILE
    newer.write_text(json.dumps(json.loads(newer.read_text()) | {"schema_version": SCHEMA_VERSION + 1}))
    for name, text in {"foreign": '{"tool": "theirs"}', "damaged": "{"}.items():
        (out / name).mkdir()
        (out / name / RUN_FILE).write_text(text)
    write_run_folder(out, make_run("series"), RATES)
    (out / "series-1-0" / SERIES_FILE).write_bytes(b"PAR1 cut off")
    (out / ".partial-killed").mkdir()
    index = Index(run_folders(tmp_path / "runs"))
    summary = summarise(index.runs(), unreadable=[*index.unreadable(), *half_written(tmp_path / "runs")])
    index.close()
    unreadable = {Path(run).name for each in summary.findings if each.severity == "unreadable" for run in each.runs}
    assert unreadable == {"newer-1-0", "foreign", "damaged", "series-1-0", ".partial-killed"}
    failed = [each.text for each in summary.findings if each.severity == "failed"]
    assert len(failed) == 3
    for status, reason in lost.items():
        assert any(text.startswith(f"{status}: {status}-system, ") and text.endswith(reason) for text in failed)
    assert summary.cell(system="ver").steps_per_s is not None
    assert len(summary.cells) == len(summary.runs) == 4
    (answer,) = summary.answers
    assert "There is no finished run of " in answer
    assert Summary.model_validate_json(summary.to_json()) == summary


def test_nothing_at_all() -> None:
    """A folder without a readable run has a summary that says so."""
    gone = Unreadable(path=Path("/runs/x"), reason="damaged")
    summary = summarise([], unreadable=[gone])
    assert (summary.reference, summary.cells, summary.answers, summary.runs) == (None, [], [], [])
    assert [each.text for each in summary.findings] == ["damaged"]


def test_intervals_are_the_same_on_every_reading() -> None:
    """The same runs give the same document, and a pair the same interval whatever else is in the table."""
    records = [make_run("sync", started_at=at(1)), make_run("ver", steps_per_s=200)]
    first = summary_of(*records)
    assert summary_of(*records).to_json() == first.to_json()
    more = summary_of(*records, make_run("gossip", steps_per_s=150))
    assert compared(more)["ver", "sync"] == compared(first)["ver", "sync"]


def test_published_figures_stand_beside() -> None:
    """What a paper says of the same work is in the summary."""
    work = {"workload": "homogeneous"}
    assert {each.system for each in summary_of(make_run("ver", cell=work)).published} == {"ver"}


def test_cells_are_found_by_their_fields() -> None:
    """None, and several, are errors that say how many."""
    summary = summary_of(make_run("sync"), make_run("ver"))
    assert summary.cell(system="ver").system == "ver"
    with pytest.raises(LookupError, match="2 cells"):
        summary.cell(gpus=1)
    with pytest.raises(LookupError, match="0 cells"):
        summary.cell(gpus=2)


def test_a_variant_is_held_against_what_it_changes() -> None:
    """Every variant has a ratio to its parent, though neither is the fastest or the reference; no pair comes twice."""
    rates = {"ddppo": 100.0, "appo": 900.0, "ver": 600.0, "ver:preempt=never": 500.0}
    records = [
        make_run(
            name.partition(":")[0],
            8,
            steps_per_s=rate,
            started_at=at(day + 1),
            cell={"settings": {"preempt": "never"} if ":" in name else {}, "hash": name},
            id=name,
        )
        for day, (name, rate) in enumerate(rates.items())
    ]
    summary = summary_of(*records)
    found = compared(summary)
    assert found["ver:preempt=never", "ver"].ratio.value == pytest.approx(5 / 6)
    assert found["ver:preempt=never", "ver"].ratio.low is not None
    pairs = [frozenset(pair) for pair in found]
    assert len(summary.comparisons) == len(set(pairs)) == len(pairs)


def test_speed_that_was_bought_is_a_warning_on_any_number_of_gpus(tmp_path: Path) -> None:
    """Three seeds each: `appo` is thrice as fast on 4 GPUs and learns nothing; on 8, where both learn, all is well."""
    runs = [
        write_learning_run(
            tmp_path,
            make_run(system, gpus, seed=seed, steps_per_s=rate + seed, started_at=at(1 if system == "sync" else 2)),
            [0.01 * seed + (0.0 if (system, gpus) == ("appo", 4) else 0.1) * point for point in range(9)],
        )
        for system, rate in (("sync", 100.0), ("appo", 300.0))
        for gpus in (4, 8)
        for seed in range(3)
    ]
    said = [each for each in summarise(runs).findings if "learns worse" in each.text]
    (text,) = [each.text for each in said]
    assert text.startswith("appo is faster than sync but learns worse from as many env steps: ")
    assert text.endswith(", 4 emulated GPUs")
    assert (said[0].severity, len(said[0].runs)) == ("warning", 3)
