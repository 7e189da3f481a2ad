from __future__ import annotations

from typing import Any

import pytest

from rlbench.reports.figures.columns import kind_notes
from rlbench.results.summary.assumed import assumed_keys
from tests.results.made_records import make_record
from tests.results.summaries import make_cell

KEYS = [
    "step.sigma",
    "heterogeneous.sigma",
    "cpu.actor_infer_ms",
    "gpu.render_while_learning_factor",
    "network.latency_ms",
]


@pytest.mark.parametrize(
    ("gpus", "workload", "collect", "overlap", "used"),
    [
        (1, "homogeneous", "Lockstep", "Alternate", ["step.sigma"]),
        (2, "homogeneous", "Dynamic", "Alternate", ["step.sigma", "network.latency_ms"]),
        (1, "heterogeneous", "Dynamic", "OneAhead", ["step.sigma", "heterogeneous.sigma", KEYS[3]]),
        (1, "homogeneous", "ActorSide", "Continuous", ["step.sigma", "cpu.actor_infer_ms", KEYS[3]]),
    ],
)
def test_keys_count_where_what_they_stand_for_happens(
    gpus: int, workload: str, collect: str, overlap: str, used: list[str]
) -> None:
    """Of the assumed keys those that a run's choices, workload and number of ranks make it use."""
    system = {"collect": {"kind": collect}, "overlap": {"kind": overlap}}
    configuration: dict[str, Any] = {"system": system, "scenario": {"profile": {"assumed": KEYS}}}
    record = make_record(gpus=gpus, cell={"workload": workload}, configuration=configuration)
    assert assumed_keys(record) == used


@pytest.mark.parametrize(
    ("size", "used"), [(1, ["step.sigma", "episode.sigma"]), (8, []), ("many", None), (None, None)]
)
def test_steps_of_single_environments_count_where_there_are_such(size: object, used: list[str] | None) -> None:
    """Environments in batches take the times of calls; a size that is none says nothing."""
    scenario = {"profile": {"assumed": ["step.sigma", "episode.sigma"]}, "envs_per_batch": size}
    record = make_record(configuration={"scenario": scenario})
    assert assumed_keys(record) == (["step.sigma", "episode.sigma"] if used is None else used)


@pytest.mark.parametrize(
    "configuration", [{}, {"scenario": {}}, {"scenario": {"profile": {"assumed": 3}}}, {"scenario": "theirs"}]
)
def test_scenarios_without_a_profile_assume_nothing(configuration: dict[str, Any]) -> None:
    """Nor do records of others, whatever they hold there."""
    assert assumed_keys(make_record(configuration=configuration)) == []


def test_figures_that_rest_on_them_say_so() -> None:
    """A line for the keys that all systems use, and one for those of some."""
    cells = [make_cell("sync", assumed=KEYS[:1]), make_cell("impala", assumed=[KEYS[0], KEYS[2]])]
    lines = [line for line in kind_notes(cells) if "assumed" in line]
    assert lines == [
        "assumed in the profile, not measured: step.sigma",
        "assumed in the profile, not measured: cpu.actor_infer_ms (impala)",
    ]
