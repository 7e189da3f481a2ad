"""What a report says first."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from rlbench.reports.page.charts.works import works
from rlbench.reports.page.first_screen import first_screens
from rlbench.reports.page.headline import Tile, Verdict, title, verdicts
from rlbench.results.summary.bottleneck import Bottleneck
from rlbench.results.summary.document import CellSummary, Summary
from tests.reports.page.pages import estimate, full_cell, full_summary, make_learning, summary_of
from tests.results.summaries import make_cell, make_comparison


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ([], "No runs"),
        ([make_cell("ver", 1, kind="measured", device="cuda")], "ver on open-fridge, 1 GPU"),
        (
            [
                make_cell(name, gpus, kind="predicted")
                for name in ("sync", "ver", "a", "b", "c", "d")
                for gpus in (1, 256)
            ],
            "sync, ver and 4 more on open-fridge, 1 to 256 GPUs, predicted",
        ),
        (
            [
                make_cell("sync", 2, scenario="gym/CartPole-v1", kind="measured", device="cpu"),
                make_cell("ver", 2, scenario="atari:games=pong", kind="measured", device="cpu"),
            ],
            "sync and ver on CartPole-v1 and atari, 2 CPU ranks",
        ),
        (
            [make_cell("a"), make_cell("b"), make_cell("c", kind="predicted")],
            "a, b and c on open-fridge, 8 GPUs, emulated and predicted",
        ),
    ],
)
def test_title_says_what_was_compared(cells: list[CellSummary], said: str) -> None:
    """Systems, scenario, GPUs, and what was not measured on hardware."""
    assert title(summary_of(cells)) == said


def verdict_of(summary: Summary) -> Verdict:
    """The last verdict of the first work."""
    return verdicts(works(summary)[0], summary)[-1]


def tiles_of(summary: Summary) -> Sequence[Tile]:
    """Its tiles where nothing is filtered."""
    return verdict_of(summary).headlines[0].tiles


def test_fastest_of_a_fair_race() -> None:
    """The leader, its rate, and its lead over the next and the baseline; a tie is no significant difference."""
    cells = [
        full_cell("ver", 8, 700.0, leads=True),
        make_cell("sync", 8, 350.0),
        make_cell("nover", 8, 690.0),
        make_cell("appo", 8, 900.0),
    ]
    comparisons = [
        make_comparison("ver", "sync", 2.0, (1.9, 2.1)),
        make_comparison("ver", "nover", 1.014, (0.98, 1.05)),
        make_comparison("ver", "appo", 0.78, (0.75, 0.8), comparable=False),
    ]
    verdict = verdict_of(summary_of(cells, comparisons=comparisons, reference="sync"))
    fastest, why, caveat = verdict.headlines[0].tiles
    assert (fastest.heading, fastest.value) == ("Fastest comparable on 8 emulated GPUs", "ver")
    assert fastest.lines == [
        "700 steps/s",
        "no significant difference from `nover` (1.01x [0.98, 1.05])",
        "2.00x as fast as `sync`, the baseline [1.90, 2.10]",
    ]
    assert why.value == "Bound by the simulator"
    assert caveat.value == "Emulated GPUs"
    assert "not comparable: appo" in caveat.lines[-1]
    assert verdict.apart == {3}


def test_why_there_is_no_interval() -> None:
    """The system whose rate has none is named, and what there is too little of."""
    sync = make_cell("sync", 8, 350.0)
    comparisons = [make_comparison("ver", "sync", 2.0)]
    cells = [full_cell("ver", 8, 700.0, leads=True), sync]
    fastest, _, _ = tiles_of(summary_of(cells, comparisons=comparisons))
    assert fastest.lines[1] == "2.00x as fast as `sync` (no interval: too few iterations or seeds of `sync`)"


def test_of_several_sweeps_the_newest_is_named() -> None:
    """The others are pale beside it."""
    cells = [full_cell("ver", 8, 700.0), full_cell("ver", 8, 900.0, sweep="sweep-0")]
    verdict = verdict_of(summary_of(cells))
    assert verdict.headlines[0].tiles[0].lines[-1] == "Of sweep sweep-1; the others' bars are pale."
    assert verdict.apart == {1}


def test_what_more_of_it_would_give() -> None:
    """The tile of the cause has the gain of more of what bounds it, and the efficiency."""
    bound = Bottleneck(stage="simulator", share=0.5, sentence="bound by the simulator: 10% more gives 5% more")
    scaling = {"scaling": estimate(6.0, 0.5), "efficiency": estimate(0.75, 0.05), "scaling_base_gpus": 1}
    _, why, _ = tiles_of(summary_of([full_cell("ver", 8, 700.0, bottleneck=bound, **scaling)]))
    assert why.lines == ["10% more gives 5% more", "6.00x [5.50, 6.50] its rate on 1 emulated GPU: 75% efficiency"]


def test_gravest_caveat_first() -> None:
    """A prediction, then runs that did not finish, then the rest."""
    lost = make_cell("appo", 8, None, statuses={"failed": 2})
    (_, _, caveat) = tiles_of(summary_of([full_cell("ver", 8, 700.0), lost]))
    assert (caveat.value, caveat.lines[0]) == ("Some runs did not finish", "On 8 emulated GPUs: 2 failed.")
    (_, _, caveat) = tiles_of(summary_of([full_cell("ver", 8, 700.0, kind="predicted", device="predicted")]))
    assert caveat.value == "Simulated by a model, not measured"
    seeds = full_cell("ver", 8, 7.0, kind="measured", device="cuda")
    (_, _, caveat) = tiles_of(summary_of([seeds]))
    assert caveat.value == "One seed"


@pytest.mark.parametrize(
    ("scenario", "said"),
    [
        ("emulated/open-fridge:time_scale=0.5", r"Its sister profile `open-fridge-steady` was \d+% off, .* it was not"),
        ("emulated/open-fridge-steady", r"It was \d+% off, on average, from 16 published figures that it was not"),
        ("emulated/atari-36-cores", r"It and sister profiles were \d+% off, .* from 33 .* that they were not"),
        ("emulated/gibson", "It speaks of its profile"),
    ],
)
def test_a_prediction_says_whose_error_is_known(scenario: str, said: str) -> None:
    """Of figures that a profile was not fitted to; where only another profile predicts such, it is named."""
    predicted = full_cell("ver", 8, 700.0, kind="predicted", device="predicted", scenario=scenario)
    (_, _, caveat) = tiles_of(summary_of([predicted]))
    assert re.match(said, caveat.lines[0])


def test_where_a_threshold_was_asked_for_who_got_there_first() -> None:
    """The tile names the goal, what it cost, and the fastest."""
    cells = [full_cell("ver", 8, 700.0, learning=make_learning()), full_cell("sync", 8, 600.0)]
    (first, _, _) = tiles_of(summary_of(cells))
    assert (first.heading, first.value) == ("First to success 0.5 on 8 emulated GPUs", "ver")
    assert first.lines == ["37.5 s, 5,000 env steps, in the median run", "Fastest: `ver`, 700 steps/s"]


def test_tiles_for_every_cell_that_filters_may_leave() -> None:
    """After the leader those comparable with it, the fastest first; a comparison is turned round where need be."""
    cells = [
        full_cell("ver", 8, 700.0, leads=True),
        make_cell("sync", 8, 350.0),
        make_cell("nover", 8, 250.0),
        make_cell("appo", 8, 900.0),
    ]
    comparisons = [
        make_comparison("ver", "sync", 2.0, (1.9, 2.1)),
        make_comparison("ver", "nover", 2.8, (2.5, 3.0)),
        make_comparison("ver", "appo", 0.78, (0.75, 0.8), comparable=False),
        make_comparison("nover", "sync", 0.5, (0.4, 0.8)),
    ]
    _, sync, nover, appo = verdict_of(summary_of(cells, comparisons=comparisons, reference="nover")).headlines
    fastest = sync.tiles[0]
    assert (fastest.heading, fastest.value) == ("Fastest comparable on 8 emulated GPUs", "sync")
    assert fastest.lines[1:] == ["2.00x as fast as `nover`, the baseline [1.25, 2.50]"]
    assert list(fastest.about.values()) == ["nover"]
    assert nover.tiles[0].lines == ["250 steps/s"]
    assert (nover.best.cell.system, appo.best.cell.system) == ("nover", "appo")
    assert appo.tiles[0].lines[1:] == ["Nothing comparable ran beside it."]


def test_where_the_first_to_a_threshold_is_hidden_the_fastest_stands() -> None:
    """The tile of the race knows its winner, and has another one for when filters hide that."""
    cells = [full_cell("ver", 8, 700.0, learning=make_learning()), full_cell("sync", 8, 800.0)]
    (sync, ver) = verdict_of(summary_of(cells)).headlines
    assert (sync.best.cell.system, sync.winner) == ("sync", "ver")
    assert sync.instead is not None
    assert sync.instead.value == "sync"
    assert (ver.best.cell.system, ver.winner) == ("ver", "ver")


def test_first_screen_of_each_work() -> None:
    """Bars of the largest number of GPUs, the fastest first; rates over GPUs, or curves where there is one number."""
    first, second = first_screens(full_summary())
    assert list(first.bars) == ["bars-0-1", "bars-0-8", "bars-0-64"]
    assert [trace["x"] for trace in first.bars["bars-0-8"]["data"] if trace["type"] == "bar"] == [[700.25], [600.125]]
    assert first.beside is not None
    assert first.beside[0] == "throughput-0"
    assert second.beside is None
    (alone,) = first_screens(summary_of([full_cell("ver", 8, 700.0, learning=make_learning())]))
    assert alone.beside is not None
    assert alone.beside[0] == "first-learning-env-steps-0"


def test_the_first_screen_says_where_efficiency_falls() -> None:
    """Systems that fall alike are named together; one number of GPUs says nothing of that."""
    cells = [
        full_cell(name, gpus, 99.0, efficiency=estimate(value, 0.01), scaling_base_gpus=1)
        for name, values in (("ver", (1.0, 0.7)), ("sync", (1.0, 0.6)), ("ddppo", (1.0, 0.9)))
        for gpus, value in zip((1, 8), values, strict=True)
    ]
    (first,) = first_screens(summary_of(cells))
    told = {where: [name for name, _ in systems] for where, systems in first.falls.items()}
    assert told == {"below 80% from 8 GPUs": ["ver", "sync"], "never below 80%": ["ddppo"]}
    (alone,) = first_screens(summary_of([full_cell("ver", 8, 700.0)]))
    assert not alone.falls
