from __future__ import annotations

from typing import Any

import pytest

from rlbench.results.records.schema import Counters, Lag, Reading, RunRecord
from rlbench.results.records.store import StoredRun
from rlbench.results.summary.cells import CellRuns, latest, make_cells
from rlbench.results.summary.document import CellSummary
from tests.results.summaries import make_run, stored

RATES = [95.0, 100.0, 105.0, 99.0, 101.0]


def summaries(*runs: StoredRun | RunRecord) -> list[CellSummary]:
    """The cells of some runs."""
    whole = [run if isinstance(run, StoredRun) else stored(run) for run in runs]
    return [cell.summary for cell in make_cells(whole)]


def cell_of(*runs: StoredRun | RunRecord) -> CellSummary:
    """The only cell of some runs."""
    (cell,) = summaries(*runs)
    return cell


def at(day: int) -> str:
    """A moment."""
    return f"2026-01-{day:02d}T00:00:00+00:00"


def test_runs_that_differ_in_their_seeds_are_one_cell() -> None:
    """By hand: the mean of 95 and 105 steps/s is 100; the interval is of 2 seeds, and is around it."""
    cell = cell_of(make_run(seed=1, steps_per_s=105), make_run(seed=0, steps_per_s=95))
    assert (cell.seeds, cell.runs, cell.statuses) == ([0, 1], ["ddppo-1-1", "ddppo-1-0"], {"finished": 2})
    rate = cell.steps_per_s
    assert rate is not None
    assert rate.value == pytest.approx(100)
    assert (rate.units, rate.num_units) == ("seeds", 2)
    assert rate.low is not None
    assert rate.high is not None
    assert rate.low < 90
    assert rate.high > 110


@pytest.mark.parametrize(
    "other",
    [
        {"gpus": 2},
        {"system": "ver"},
        {"sweep": "sweep-2"},
        {"cell": {"workload": "homogeneous"}},
        {"cell": {"scenario": "pointnav"}},
        {"cell": {"settings": {"preempt.p": 0.8}}},
        {"cell": {"settings": {"scenario.num_envs": 4}}},
        {"cell": {"device": "cpu"}},
    ],
)
def test_runs_that_differ_in_more_are_cells_of_their_own(other: dict[str, Any]) -> None:
    """Nothing but the seed is averaged over."""
    assert [cell.seeds for cell in summaries(make_run(seed=0), make_run(seed=1, **other))] in ([[0], [1]], [[1], [0]])


def test_one_run_has_the_interval_of_its_iterations() -> None:
    """With one seed the window's parts make the interval; with fewer than three of them there is no interval."""
    rate = cell_of(stored(make_run(steps_per_s=100), RATES)).steps_per_s
    assert rate is not None
    assert (rate.units, rate.num_units) == ("iterations", 5)
    assert rate.low is not None
    assert rate.high is not None
    assert 90 < rate.low < 100 < rate.high < 110
    few = cell_of(stored(make_run(steps_per_s=100), RATES[:2])).steps_per_s
    assert few is not None
    assert (few.value, few.low, few.high, few.units, few.num_units) == (100, None, None, "iterations", 0)
    assert few.needs == 3


def test_an_interval_that_says_nothing_is_none() -> None:
    """From less than half to more than twice: how many seeds it needs is said instead, by the spread of these."""
    rate = summaries(*(make_run(seed=seed, steps_per_s=100 + 15 * seed) for seed in (-1, 1)))[0].steps_per_s
    assert rate is not None
    assert (rate.low, rate.high, rate.units, rate.num_units, rate.needs) == (None, None, "seeds", 2, 3)
    more = summaries(*(make_run(seed=seed, steps_per_s=100 + 15 * seed) for seed in (-1, 0, 1)))[0].steps_per_s
    assert more is not None
    assert more.low is not None


def test_runs_that_did_not_finish_are_in_the_cell_and_not_in_its_figures() -> None:
    """Of four seeds one failed and one timed out: all are listed, and the rate is that of the other two."""
    lost = [
        make_run(seed=2, status="failed", reason="died", steps_per_s=5),
        make_run(seed=3, status="timed-out", reason="limit", steps_per_s=5),
    ]
    cell = cell_of(make_run(seed=0), make_run(seed=1), *lost)
    assert (cell.seeds, len(cell.runs)) == ([0, 1], 4)
    assert cell.statuses == {"finished": 2, "failed": 1, "timed-out": 1}
    assert cell.steps_per_s is not None
    assert cell.steps_per_s.value == 100
    nothing = cell_of(*lost)
    assert (nothing.steps_per_s, nothing.scaling, nothing.bottleneck) == (None, None, None)
    assert nothing.statuses == {"failed": 1, "timed-out": 1}


def test_a_cell_that_was_run_again_counts_once() -> None:
    """The try that finished counts, whatever came before or after it, and where none did the latest."""
    failed = make_run(id="try-1", status="failed", reason="died", started_at=at(1))
    finished = make_run(id="try-2", started_at=at(2))
    later = make_run(id="try-3", status="failed", reason="died", started_at=at(3))
    runs = [stored(run) for run in (later, finished, failed)]
    assert [run.record.id for run in latest(runs)] == ["try-2"]
    assert [run.record.id for run in latest([runs[0], runs[2]])] == ["try-3"]
    cell = cell_of(*runs)
    assert (cell.runs, cell.statuses, cell.seeds) == (["try-2"], {"finished": 1}, [0])


def test_cells_of_other_sweeps_and_other_seeds_are_not_tries() -> None:
    """Equal work in another sweep is a cell of its own; another seed is another run of the cell."""
    runs = [make_run(seed=0), make_run(seed=1), make_run(seed=0, sweep="sweep-2")]
    assert len(latest([stored(run) for run in runs])) == 3


def test_cells_come_in_the_order_of_work_system_and_gpus() -> None:
    """Systems stand as they were first run, also when that first run was repeated later; GPU counts ascend."""
    runs = [
        make_run("ver", 8, status="failed", reason="died", id="first", started_at=at(1)),
        make_run("sync", 8, started_at=at(2)),
        make_run("ver", 1, started_at=at(3)),
        make_run("sync", 1, started_at=at(4)),
        make_run("ver", 8, id="again", started_at=at(5)),
    ]
    found = summaries(*runs)
    assert [(cell.system, cell.gpus) for cell in found] == [("ver", 1), ("ver", 8), ("sync", 1), ("sync", 8)]
    assert len({cell.id for cell in found}) == 4


def scaled(*runs: StoredRun | RunRecord) -> dict[int, tuple[float | None, int | None, float | None]]:
    """By GPUs: scaling factor, GPUs of its base, efficiency."""
    return {
        cell.gpus: (
            None if cell.scaling is None else cell.scaling.value,
            cell.scaling_base_gpus,
            None if cell.efficiency is None else cell.efficiency.value,
        )
        for cell in summaries(*runs)
    }


def test_scaling_is_relative_to_the_fewest_gpus_that_finished() -> None:
    """By hand: 600 steps/s on 8 GPUs and 200 on 2 are a factor of 3 of 4; what failed on 1 GPU is no base."""
    failed = make_run(gpus=1, status="failed", reason="died", steps_per_s=None)
    factors = scaled(failed, make_run(gpus=2, steps_per_s=200), make_run(gpus=8, steps_per_s=600))
    assert factors == {1: (None, None, None), 2: (1, 2, 1), 8: (3, 2, 0.75)}


def test_only_the_same_is_a_base() -> None:
    """Another system, other work and another sweep on fewer GPUs are no base."""
    others = [make_run("ver"), make_run(sweep="sweep-2"), make_run(cell={"workload": "homogeneous"})]
    assert scaled(make_run(gpus=8), *others)[8] == (1, 8, 1)


def test_intervals_of_scaling_and_efficiency() -> None:
    """Both have the interval of the ratio, the base has none; means over seeds are divided by means over seeds."""
    base = [make_run(seed=seed, steps_per_s=rate) for seed, rate in enumerate((99, 101))]
    more = [make_run(gpus=4, seed=seed, steps_per_s=rate) for seed, rate in enumerate((390, 410))]
    one, four = summaries(*base, *more)
    assert one.scaling is not None
    assert (one.scaling.value, one.scaling.low, one.scaling.units) == (1, None, None)
    assert four.scaling is not None
    assert four.efficiency is not None
    assert four.scaling.low is not None
    assert four.efficiency.low is not None
    assert four.scaling.value == pytest.approx(4)
    assert four.efficiency.value == pytest.approx(1)
    assert (four.scaling.units, four.scaling.num_units, four.efficiency.units) == ("seeds", 2, "seeds")
    assert four.efficiency.low == pytest.approx(four.scaling.low / 4)
    assert four.scaling.low < 4


def test_a_ratio_to_a_single_run_does_not_speak_of_seeds() -> None:
    """Two seeds against one run of five iterations: the interval says nothing of other seeds of the base."""
    more = [make_run(gpus=4, seed=seed, steps_per_s=rate) for seed, rate in enumerate((390, 410))]
    four = summaries(stored(make_run(), RATES), *more)[1]
    assert four.scaling is not None
    assert (four.scaling.units, four.scaling.num_units) == ("iterations", 2)
    without = summaries(make_run(), *more)[1]  # the base has no iterations that an interval could come from
    assert without.scaling is not None
    assert without.scaling.value == pytest.approx(4)
    assert (without.scaling.low, without.scaling.units) == (None, None)


def test_intervals_do_not_change_with_what_else_is_there() -> None:
    """A cell has the same interval alone and in a table."""
    run = stored(make_run(gpus=2), RATES)
    alone = cell_of(run)
    assert summaries(stored(make_run("ver", gpus=2), RATES), run)[1].steps_per_s == alone.steps_per_s


def test_other_figures_are_means_over_the_finished_runs() -> None:
    """By hand, over two seeds: lag, uses of a sample, useful share, readings, and the peak of memory."""
    counters = Counters(env_steps=1000, frames=4000, learned=800, reused=1600, discarded=150, in_flight=50)
    first = make_run(
        seed=0,
        counters=counters,
        figures={
            "lag": Lag(mean=1.0, max=4.0),
            "time_shares": {"infer": 0.6, "learn": 0.4},
            "cpu_percent": Reading(value=100.0),
            "memory_bytes": Reading(value=5.0),
            "utilisation": Reading(source="no sample"),
        },
    )
    second = make_run(
        seed=1,
        counters=counters,
        figures={
            "lag": Lag(mean=3.0, max=3.0),
            "time_shares": {"infer": 0.2, "simulate": 0.8},
            "memory_bytes": Reading(value=7.0),
            "utilisation": Reading(value=0.5, source="NVML"),
        },
    )
    cell = cell_of(first, second)
    assert (cell.lag_mean, cell.lag_max, cell.uses_per_sample, cell.useful_fraction) == (2, 4, 3, 800 / 950)
    assert (cell.cpu_percent, cell.memory_bytes, cell.gpu_power_w) == (100, 7, None)
    assert (cell.utilisation, cell.utilisation_source) == (0.5, "NVML")
    assert cell.time_shares == pytest.approx({"infer": 0.4, "learn": 0.2, "simulate": 0.4})
    assert cell.steady is True
    assert cell.bottleneck is not None
    assert cell.bottleneck.stage == "simulator"  # the first of two that take as much


def test_what_is_not_reported_makes_no_share() -> None:
    """Uses per sample and the useful fraction are unknown where a run does not report what they are made of."""
    counters = Counters(env_steps=100, learned=90, reused=None, discarded=None, in_flight=None)
    own = make_cells([stored(make_run("mine", counters=counters, figures={"steps_counted": "learned"}))])[0].summary
    assert (own.uses_per_sample, own.useful_fraction, own.steps_counted) == (None, None, "learned")
    silent = Counters(env_steps=100, learned=None, reused=None, discarded=None, in_flight=None)
    run = make_run("mine", counters=silent, figures={"steps_counted": "collected"})
    assert make_cells([stored(run)])[0].summary.steps_counted == "collected"


def test_the_bottleneck_knows_the_system() -> None:
    """The cell's own choices and GPUs say which timelines its shares are of."""
    central = {"average": {"kind": "Central"}, "overlap": {"kind": "Continuous"}}
    shares = {"learn": 0.99 / 9, "infer": 1 / 9, "wait:learner": 7 / 9}
    cell = cell_of(make_run("appo", 8, choices=central, figures={"time_shares": shares}))
    assert cell.bottleneck is not None
    assert cell.bottleneck.share == pytest.approx(0.99)


def test_the_bottleneck_is_what_would_help_where_records_say_that() -> None:
    """By hand: of two seeds the mean gain counts, a third has none. Shares of time speak where no record says it."""
    shares = {"time_shares": {"learn": 0.9, "infer": 0.1}}
    runs = (
        make_run(seed=seed, figures=shares | {"gains": gains})
        for seed, gains in enumerate(({"learner": 1.02, "simulator": 1.06}, {"learner": 1.05, "simulator": 1.03}, {}))
    )
    cell = cell_of(*runs)
    assert cell.bottleneck is not None
    assert cell.bottleneck.sentence == (
        "bound by the simulator: 10% faster, it would give 4.5% more steps/s (the learner: 3.5%), "
        "by the chain of its spans"
    )
    predicted = cell_of(make_run(figures=shares | {"gains": {"learner": 1.05}, "predicted": True}))
    assert predicted.bottleneck is not None
    assert predicted.bottleneck.sentence.endswith("by the model")
    assert cell_of(make_run(figures=shares | {"gains": {"learner": 1.001}})).bottleneck is None
    by_shares = cell_of(make_run(figures=shares)).bottleneck
    assert by_shares is not None
    assert by_shares.sentence == "bound by the learner, by shares of time: learning takes 90% of the rank's time"


def test_a_cell_without_a_rate_has_none_to_ask_for() -> None:
    """Only cells with finished runs have a rate."""
    (cell,) = make_cells([stored(make_run(status="failed", reason="died"))])
    assert isinstance(cell, CellRuns)
    assert cell.finished == []
    with pytest.raises(AssertionError):
        _ = cell.rate
