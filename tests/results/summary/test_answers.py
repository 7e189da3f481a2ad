from __future__ import annotations

from typing import Any

import pytest

from rlbench.results.summary.answers import answer
from rlbench.results.summary.bottleneck import Bottleneck
from rlbench.results.summary.document import CellSummary, Comparison, Estimate, Learning, ToThreshold, Verdict
from tests.results.summaries import make_cell, make_comparison

WORK = "emulated/open-fridge, homogeneous"


def said(*cells: CellSummary, comparisons: tuple[Comparison, ...] = (), reference: str | None = None) -> str:
    """The only answer."""
    (text,) = answer(cells, comparisons, reference)
    return text


def learned(verdict: Verdict) -> Learning:
    """How a cell learned that was held against the reference."""
    figures: dict[str, Any] = {"metric": "success", "final": Estimate(value=0.5), "finals": [0.5]}
    figures |= {"to_threshold": [], "curve": []}
    return Learning(area=None, area_env_steps=None, threshold=None, against_reference=verdict, **figures)


def test_one_system_on_one_gpu_count() -> None:
    """With nothing to hold it against there is the rate, and what bounds it."""
    bound = Bottleneck(stage="inference", share=0.49, sentence="bound by inference: it takes 49%")
    text = said(make_cell("ver", 8, 2573.4, bottleneck=bound, scaling=Estimate(value=1), scaling_base_gpus=8))
    assert text == f"{WORK}: on 8 emulated GPUs `ver` makes 2,573 steps/s. It is bound by inference: it takes 49%."


def test_the_fastest_on_the_most_gpus() -> None:
    """Of those that it beats the next and the slowest are named, and what it gains from its GPUs."""
    scaling = Estimate(value=5.92, low=5.34, high=6.4, units="iterations", num_units=5)
    cells = [
        make_cell("ver", 8, 600, scaling=scaling, scaling_base_gpus=1),
        *(make_cell(name, 8, 300) for name in ("sync", "ddppo", "nover")),
        make_cell("ver", 1, 9999),
    ]
    comparisons = (
        make_comparison("ver", "sync", 3.0, (2.8, 3.2)),
        make_comparison("ver", "ddppo", 2.5, (2.2, 2.6)),
        make_comparison("ver", "nover", 2.0, (1.9, 2.1)),
        make_comparison("ver", "sync", 9.0, (8.0, 9.1), gpus=1),
    )
    expected = (
        f"{WORK}: on 8 emulated GPUs `ver` makes 600 steps/s, 3.00x [2.80, 3.20] as many as `sync` and "
        "2.00x [1.90, 2.10] as many as `nover`; that is 5.92x [5.34, 6.40] what it makes on 1."
    )
    assert said(*cells, comparisons=comparisons) == expected
    with_reference = said(*cells, comparisons=comparisons, reference="ddppo")
    assert "3.20] as many as `sync`, 2.50x [2.20, 2.60] as many as `ddppo` and 2.00x" in with_reference


def test_ties_and_what_has_no_interval_are_told() -> None:
    """An interval that holds 1 is a tie; a ratio without an interval says so."""
    cells = [make_cell("ver", steps_per_s=600), *(make_cell(name, steps_per_s=500) for name in ("a", "b", "c"))]
    comparisons = (
        make_comparison("ver", "a", 1.01, (0.9, 1.1)),
        make_comparison("ver", "b", 1.02, (1.0, 1.1)),
        make_comparison("ver", "c", 1.2),
    )
    assert said(*cells, comparisons=comparisons) == (
        f"{WORK}: on 8 emulated GPUs `ver` makes 600 steps/s, 1.20x as many as `c` (no interval); "
        "the intervals do not tell it from `a` and `b`."
    )
    only_ties = said(*cells[:2], comparisons=comparisons[:1])
    assert only_ties.endswith("`ver` makes 600 steps/s; the intervals do not tell it from `a`.")


def test_what_may_not_be_compared_is_ranked_apart() -> None:
    """The leader is the fastest of those that may be compared; a faster one that may not is named beside them."""
    leader = make_cell("ver", steps_per_s=600, leads=True)
    cells = [leader, make_cell("sync", steps_per_s=300), make_cell("appo", steps_per_s=900)]
    comparisons = (
        make_comparison("ver", "sync", 2.0, (1.9, 2.1)),
        make_comparison("ver", "appo", 0.67, (0.6, 0.7), comparable=False),
    )
    (text,) = answer(cells, comparisons)
    assert text == (
        f"{WORK}: on 8 emulated GPUs `ver` makes 600 steps/s, 2.00x [1.90, 2.10] as many as `sync`. "
        "Not comparable with it: `appo` (900 steps/s)."
    )


@pytest.mark.parametrize(
    ("ratio", "ends", "shown"),
    [
        (180.41, (164.56, 197.78), "180x [165, 198]"),
        (20.41, (18.16, 22.94), "20.4x [18.2, 22.9]"),
        (1.174, (1.089, 1.263), "1.17x [1.09, 1.26]"),
        (3.0, (3.0, 3.0), "3.00x [3.00, 3.00]"),
    ],
)
def test_digits_are_those_that_the_interval_bears(ratio: float, ends: tuple[float, float], shown: str) -> None:
    """Two of its half width, and at most hundredths."""
    cells = [make_cell("ver", steps_per_s=600), make_cell("sync", steps_per_s=300)]
    assert f", {shown} as many as `sync`." in said(*cells, comparisons=(make_comparison("ver", "sync", ratio, ends),))


def reached(**seconds: float | None) -> list[CellSummary]:
    """Cells whose runs were to reach success 0.9; the seconds that each took, None for more than half that did not."""
    cells = []
    for name, value in seconds.items():
        costs = {"seconds": value, "env_steps": value and 1000 * value, "gpu_seconds": value and 8 * value}
        ends: dict[str, Any] = {"low": None, "high": None, "at_least": None, "num_runs": 3, "num_censored": 0}
        medians = [ToThreshold.model_validate({"cost": cost, "value": each, **ends}) for cost, each in costs.items()]
        learning = learned("not worse").model_copy(update={"threshold": 0.9, "to_threshold": medians})
        cells.append(make_cell(name, learning=learning))
    return cells


def test_a_threshold_that_was_asked_for_is_answered_first() -> None:
    """Who reached it first, with what it cost, the others in multiples of that time, and who did not."""
    assert said(*reached(sync=250.0, ver=100.0, appo=None)).startswith(
        f"{WORK}: `ver` reached success 0.9 first: after 100 s, 100,000 env steps, 800 GPU-seconds; "
        "`sync` after 2.5x that time; `appo` did not, in half of the runs. On 8 emulated GPUs `"
    )
    alone = [cell.model_copy(update={"gpus": 1}) for cell in reached(ver=100.0)]
    assert "after 100 s, 100,000 env steps. " in said(*alone)  # GPU-seconds of one GPU are seconds
    assert said(*reached(ver=None)).startswith(f"{WORK}: no system reached success 0.9 in half of its runs. ")


def test_gpu_counts_on_which_nothing_finished_are_not_passed_over() -> None:
    """When all runs on 16 GPUs failed, the answer is about 8, and says why."""
    text = said(make_cell("ver", 16, None), make_cell("ver", 8), make_cell("ver", 1))
    assert text.startswith(f"{WORK}: no run on 16 emulated GPUs finished; on 8 emulated GPUs `ver` makes 600 steps/s")
    assert said(make_cell("ver", 16, None), make_cell("sync", 8, None)) == f"{WORK}: no run finished."


def test_systems_without_a_run_on_the_most_gpus_are_not_passed_over() -> None:
    """Who failed on 8 GPUs, and who was never run there, is named: nobody has beaten them."""
    cells = [make_cell("ver"), make_cell("gossip", 8, None), make_cell("gossip", 1), make_cell("sync", 1, 900)]
    text = said(*cells)
    assert text == (
        f"{WORK}: on 8 emulated GPUs `ver` makes 600 steps/s. "
        "There is no finished run of `gossip` and `sync` on as many."
    )


def test_seeds_that_did_not_finish_are_told() -> None:
    """A mean over the seeds that survived is no mean over seeds."""
    text = said(make_cell(seeds=[0, 3], statuses={"finished": 2, "failed": 2, "timed-out": 1}))
    assert text.endswith("steps/s. 3 of its 5 runs did not finish.")


def test_faster_and_worse_at_learning() -> None:
    """Who beats the reference on speed and learns worse is named, the fastest or not; nobody else is."""
    cells = [
        make_cell("appo", steps_per_s=900, learning=learned("worse")),
        make_cell("impala", steps_per_s=800, learning=learned("worse")),
        make_cell("ver", steps_per_s=700, learning=learned("not worse")),
        make_cell("sync", steps_per_s=400),
        make_cell("gossip", steps_per_s=399, learning=learned("worse")),
        make_cell("easgd", steps_per_s=401, learning=learned("worse")),
    ]
    comparisons = (
        make_comparison("appo", "sync", 2.25, (2.2, 2.3)),
        make_comparison("impala", "sync", 2.0),
        make_comparison("ver", "sync", 1.75, (1.7, 1.8)),
        make_comparison("gossip", "sync", 0.99, (0.9, 0.999)),
        make_comparison("easgd", "sync", 1.01, (0.9, 1.2)),
    )
    text = said(*cells, comparisons=comparisons, reference="sync")
    assert text.endswith(
        "From as many env steps `appo` and `impala` learn worse than `sync`, which they beat on speed."
    )
    alone = said(cells[0], cells[3], comparisons=comparisons[:1], reference="sync")
    assert alone.endswith("From as many env steps `appo` learns worse than `sync`, which it beats on speed.")
    assert "worse" not in said(*cells[2:], comparisons=comparisons[2:], reference="sync")


def test_sweeps_are_answered_one_by_one() -> None:
    """Figures of several sweeps do not stand side by side, so each has its answer, with its name."""
    cells = [make_cell(sweep="monday"), make_cell(sweep="tuesday", gpus=1), make_cell("sync", sweep="monday")]
    own = (make_comparison("ver", "sync", 2.0, (1.9, 2.1), sweep="monday"),)
    assert answer(cells, own) == [
        f"{WORK} (sweep monday): on 8 emulated GPUs `ver` makes 600 steps/s, 2.00x [1.90, 2.10] as many as `sync`.",
        f"{WORK} (sweep tuesday): on 1 emulated GPU `ver` makes 600 steps/s.",
    ]


def test_predicted_figures_are_not_mixed_with_measured_ones() -> None:
    """What a model says of 64 GPUs does not stand for what was measured on 8, and GPUs are called what they were."""
    measured = make_cell(kind="measured", device="cuda")
    predicted = make_cell("sync", gpus=64, kind="predicted", device="predicted")
    assert answer([measured, predicted], ()) == [
        f"{WORK}: on 8 GPUs `ver` makes 600 steps/s.",
        f"{WORK}: on 64 predicted GPUs `sync` makes 600 steps/s.",
    ]
    assert said(make_cell(gpus=1, kind="measured", device="cpu")).startswith(f"{WORK}: on 1 CPU rank `ver`")


def test_nothing_to_answer() -> None:
    """Without a cell there is no answer."""
    assert answer([], ()) == []


def test_too_few_cores_are_said_with_the_answer() -> None:
    """Systems whose ranks waited long for a core are named, if their GPUs are emulated: the order may be another."""
    cells = [
        make_cell("gossip", steps_per_s=900, core_wait=0.3),
        make_cell("ver", steps_per_s=800, core_wait=0.504),
        make_cell("sync", steps_per_s=400, core_wait=0.1),
    ]
    text = "The machine had too few cores for that: `gossip` (30 % of the time) and `ver` (50 % of the time) waited"
    assert text in said(*cells)
    assert said(*cells[1:]).endswith("`ver` (50 % of the time) waited for one, so its figure is too low.")
    assert "cores" not in said(*(cell.model_copy(update={"kind": "measured"}) for cell in cells))
    assert "cores" not in said(cells[2])
