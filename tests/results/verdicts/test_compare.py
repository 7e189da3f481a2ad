from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rlbench.results.records import labels
from rlbench.results.records.schema import RunRecord
from rlbench.results.records.store import StoredRun, Unreadable
from rlbench.results.verdicts.compare import Compared, Runs, compare
from tests.results.summaries import make_run, stored

RATES = [98.0, 100.0, 102.0, 99.0, 101.0, 100.0]


def measured(record: RunRecord, rate: float) -> StoredRun:
    """A run whose iterations are about that fast."""
    figures = record.figures.model_copy(update={"steps_per_s": rate})
    return stored(record.model_copy(update={"figures": figures}), [rate / 100 * each for each in RATES])


def both(a: Sequence[StoredRun], b: Sequence[StoredRun], **options: Any) -> Compared:
    """Two sides held against each other."""
    return compare(Runs(name="before", runs=a), Runs(name="after", runs=b), **options)


def test_ratio_is_of_b_to_a() -> None:
    """100 steps/s before and 110 after are 1.1, with an interval that holds it and tells it from 1."""
    compared = both([measured(make_run(), 100)], [measured(make_run(), 110)])
    (pair,) = compared.pairs
    assert pair.ratio is not None
    assert pair.ratio.value == pytest.approx(1.1)
    assert pair.ratio.low is not None
    assert pair.ratio.high is not None
    assert 1 < pair.ratio.low < 1.1 < pair.ratio.high < 1.2
    assert pair.ratio.units == "iterations"
    assert (pair.a.steps_per_s and pair.a.steps_per_s.value, pair.b.steps_per_s and pair.b.steps_per_s.value) == (
        100,
        110,
    )


def test_seeds_are_what_an_interval_is_of_where_there_are_several() -> None:
    """With three seeds on both sides the ratio is of their means, and its interval speaks of seeds."""
    a = [measured(make_run(seed=seed), rate) for seed, rate in enumerate((90, 100, 110))]
    b = [measured(make_run(seed=seed), rate) for seed, rate in enumerate((190, 200, 210))]
    (pair,) = both(a, b).pairs
    assert pair.ratio is not None
    assert pair.ratio.value == pytest.approx(2)
    assert (pair.ratio.units, pair.ratio.num_units) == ("seeds", 3)
    assert pair.a.seeds == [0, 1, 2]


def test_the_interval_is_reproducible() -> None:
    """The same runs give the same document."""
    a, b = [measured(make_run(), 100)], [measured(make_run(), 110)]
    assert both(a, b).to_json() == both(a, b).to_json()


@pytest.mark.parametrize(
    "other",
    [
        make_run(gpus=8),
        make_run(cell={"scenario": "pointnav"}),
        make_run(cell={"workload": "homogeneous"}),
        make_run(cell={"device": "cpu"}),
    ],
)
def test_cells_of_other_work_do_not_match(other: RunRecord) -> None:
    """Another scenario, workload, device or number of GPUs is a cell that one side has alone."""
    compared = both([measured(make_run(), 100)], [measured(other, 100)])
    assert compared.pairs == []
    assert [cell.runs for cell in compared.a.alone] == [["ddppo-1-0"]]
    assert [cell.runs for cell in compared.b.alone] == [[other.id]]
    assert not compared.comparable
    assert compared.heading() == "nothing to compare: no cell was run on both sides"


@pytest.mark.parametrize("other", [make_run("sync"), make_run(cell={"settings": {"preempt.p": 0.5}})])
def test_sides_of_one_system_each_are_held_against_each_other(other: RunRecord) -> None:
    """Another system, or one with other settings, where no side has several; else cells match by their systems."""
    (pair,) = both([measured(make_run(), 100)], [measured(other, 50)]).pairs
    assert (pair.a.system, pair.b.system) == ("ddppo", labels.system(other.cell))
    assert pair.ratio is not None
    assert pair.ratio.value == pytest.approx(0.5)
    assert both([measured(make_run(), 100), measured(make_run("ver"), 100)], [measured(other, 50)]).pairs == []
    (pair,) = both([measured(make_run(), 100)], [measured(other, 50)], reference="ddppo").pairs
    assert pair.a_to_reference is not None
    assert pair.b_to_reference is None  # that side has no run of it


def test_a_reference_that_differs_is_said() -> None:
    """What a system does otherwise than the reference of its side stands beside the ratio."""
    side = [measured(make_run("sync"), 100), measured(make_run("ver", learn={"epochs": 1}), 200)]
    pairs = {pair.a.system: pair for pair in both(side, side, reference="sync").pairs}
    assert pairs["ver"].beside_reference == ["epochs: 2 (sync), 1 (ver)"]
    assert pairs["sync"].beside_reference == []


def test_cells_of_both_and_of_one() -> None:
    """What both have run is compared, what one has run is named there."""
    a = [measured(make_run(gpus=gpus), 100) for gpus in (1, 2)]
    b = [measured(make_run(gpus=gpus), 100) for gpus in (2, 4)]
    compared = both(a, b)
    assert [pair.a.gpus for pair in compared.pairs] == [2]
    assert [cell.gpus for cell in compared.a.alone] == [1]
    assert [cell.gpus for cell in compared.b.alone] == [4]


def test_the_newest_sweep_is_known_by_its_name_wherever_the_clock_was_set() -> None:
    """A sweep whose clock was set back has earlier times, and a later name; without such a name times decide."""
    times = ["2026-03-01T10:00:00+00:00", "2026-03-01T09:00:00+00:00"]
    for names, newest in ((["20260301-100000-aaaa", "20260301-100001-bbbb"], 200.0), (["first", "second"], 100.0)):
        sides = [
            measured(make_run(sweep=name, started_at=time), rate)
            for name, time, rate in zip(names, times, [100.0, 200.0], strict=True)
        ]
        (pair,) = both(sides, sides[:1]).pairs
        assert pair.a.steps_per_s is not None
        assert pair.a.steps_per_s.value == pytest.approx(newest)


def test_the_newest_sweep_of_a_side_counts() -> None:
    """Where a side ran a cell in two sweeps, the later one counts, unless it did not finish."""
    runs = {
        name: measured(make_run(sweep=name, started_at=f"2026-01-0{day}T00:00:00+00:00"), rate)
        for name, day, rate in (("1-old", 1, 50), ("2-new", 2, 100))
    }
    failed = make_run(
        sweep="3-failed", started_at="2026-01-03T00:00:00+00:00", status="failed", reason="died", steps_per_s=None
    )
    (pair,) = both([runs["2-new"], runs["1-old"], stored(failed)], [runs["2-new"]]).pairs
    assert pair.a.sweep == "2-new"
    assert pair.ratio is not None
    assert pair.ratio.value == 1


def test_alike_runs_are_comparable() -> None:
    """Runs that differ in their speed alone are comparable, and so are those of two commits: that is the point."""
    a, b = [measured(make_run(), 100)], [measured(make_run(commit="fedcba9876543210"), 110)]
    assert both(a, a).heading() == "comparable"
    assert both(a, a).differences == []
    compared = both(a, b)
    assert (compared.comparable, compared.heading()) == (True, "comparable")
    assert [difference.aspect for difference in compared.differences] == ["commit"]


@pytest.mark.parametrize(
    ("other", "aspect"),
    [
        (make_run(packages={"torch": "2.14", "numpy": "2.3"}), "versions"),
        (make_run(machine={"cpu_model": "Xeon"}), "machine"),
        (make_run(learn={"epochs": 1}), "epochs"),
        (make_run(cell={"protocol": "steady"}), "protocol"),
    ],
)
def test_what_differs_is_named(other: RunRecord, aspect: str) -> None:
    """Other versions, another machine, other work or another protocol: not comparable, and who has what is said."""
    compared = both([measured(make_run(), 100)], [measured(other, 100)])
    assert not compared.comparable
    (difference,) = compared.differences
    assert difference.aspect == aspect
    who = dict(difference)["values"]
    assert sorted(name for names in who.values() for name in names) == ["A", "B"]
    assert compared.heading().startswith(f"not comparable, because of {aspect}: ")
    assert "(A)" in compared.heading()
    assert "(B)" in compared.heading()


def test_a_difference_of_all_cells_is_said_once() -> None:
    """Another torch is one difference, however many cells there are."""
    a = [measured(make_run(gpus=gpus), 100) for gpus in (1, 2, 4)]
    b = [measured(make_run(gpus=gpus, packages={"torch": "2.14", "numpy": "2.3"}), 100) for gpus in (1, 2, 4)]
    compared = both(a, b)
    assert len(compared.pairs) == 3
    assert len(compared.differences) == 1


def test_a_side_without_finished_runs() -> None:
    """A cell that failed on one side has no ratio, and the failure is among that side's findings."""
    failed = stored(make_run(status="failed", reason="rank 3 died", steps_per_s=None))
    compared = both([measured(make_run(), 100)], [failed])
    (pair,) = compared.pairs
    assert pair.ratio is None
    assert pair.b.statuses == {"failed": 1}
    assert compared.a.findings == []
    assert [finding.severity for finding in compared.b.findings] == ["failed"]
    assert "rank 3 died" in compared.b.findings[0].text


def test_unreadable_folders_are_findings_of_their_side() -> None:
    """What could not be read is named on the side that it is of."""
    gone = Unreadable(path=Path("/x"), reason="/x: is damaged")
    compared = compare(
        Runs(name="before", runs=[measured(make_run(), 100)]), Runs(name="after", runs=[], unreadable=[gone])
    )
    assert (compared.a.name, compared.b.name) == ("before", "after")
    assert [finding.text for finding in compared.b.findings] == ["/x: is damaged"]
    assert (compared.a.num_runs, compared.b.num_runs) == (1, 0)


def test_a_reference_takes_the_machine_out() -> None:
    """Against the reference of its own side each figure says what a slower machine does not change."""
    a = [measured(make_run("sync"), 100), measured(make_run("ver"), 200)]
    b = [measured(make_run("sync"), 50), measured(make_run("ver"), 150)]
    pairs = {pair.a.system: pair for pair in both(a, b, reference="sync").pairs}
    ver, sync = pairs["ver"], pairs["sync"]
    assert ver.ratio is not None
    assert ver.a_to_reference is not None
    assert ver.b_to_reference is not None
    assert (ver.ratio.value, ver.a_to_reference.value, ver.b_to_reference.value) == pytest.approx((0.75, 2, 3))
    assert ver.a_to_reference.low is not None
    assert sync.a_to_reference is not None
    assert (sync.a_to_reference.value, sync.a_to_reference.low) == (1, None)


def test_unknown_reference() -> None:
    """A reference that nobody has run is refused with those that there are."""
    a = [measured(make_run(), 100)]
    with pytest.raises(ValueError, match="--reference nope: no run of it; known: ddppo"):
        both(a, a, reference="nope")


def learned(folder: Path, seed: int, level: float) -> StoredRun:
    """A run whose success rises to about `level`, in a folder of its own."""
    path = folder / str(seed)
    path.mkdir(parents=True)
    rows = [
        {
            "rank": 0,
            "iteration": k,
            "begin_s": k,
            "end_s": k + 1.0,
            "learned": 100,
            "success": level * k / 9 + seed / 500,
        }
        for k in range(10)
    ]
    pd.DataFrame(rows).to_parquet(path / "series.parquet")
    return StoredRun(path=path, record=make_run(seed=seed, id=f"seed-{seed}"))


@pytest.mark.parametrize(("level", "verdict"), [(0.3, "worse"), (0.9, "not worse")])
def test_learning_is_held_against_a(tmp_path: Path, level: float, verdict: str) -> None:
    """With three seeds each, a side that learns less for the same env steps is called worse, and one alike is not."""
    a = [learned(tmp_path / "a", seed, 0.9) for seed in range(3)]
    b = [learned(tmp_path / "b", seed, level) for seed in range(3)]
    (pair,) = both(a, b, threshold=0.5).pairs
    assert pair.a.learning is not None
    assert pair.b.learning is not None
    assert (pair.a.learning.metric, pair.b.learning.against_reference) == ("success", verdict)
    assert pair.a.learning.threshold == 0.5
    assert pair.a.learning.against_reference is None


def test_json_holds_everything() -> None:
    """The document reads back as it was."""
    compared = both([measured(make_run(), 100)], [measured(make_run("ver"), 100), measured(make_run(), 90)])
    assert Compared.model_validate(json.loads(compared.to_json())) == compared
