from __future__ import annotations

from rlbench.results.summary.references import references
from tests.results.summaries import make_cell


def test_published_figures_stand_beside_ours() -> None:
    """A system on Table 1's work has the table's figure of every number of GPUs, once, whatever ours are."""
    found = references([make_cell("ver", 8), make_cell("ver", 2)])
    assert {each.gpus: each.steps_per_s for each in found} == {1: 428, 2: 716, 4: 1432, 8: 2861}
    assert len(found) == 4
    assert {(each.system, each.scenario, each.workload) for each in found} == {
        ("ver", "emulated/open-fridge", "homogeneous")
    }
    assert all("Table 1" in each.source for each in found)


def test_the_speed_of_the_clock_does_not_change_the_work() -> None:
    """A time scale alone leaves a scenario what it is; any other setting makes it another."""
    assert references([make_cell(scenario="emulated/open-fridge:time_scale=0.5")])
    assert references([make_cell(scenario="emulated/open-fridge:time_scale=0.5:num_envs=8")]) == []


def test_other_work_and_other_systems_have_none() -> None:
    """The papers ran the homogeneous work, and their systems without settings of ours."""
    others = [
        make_cell(workload="heterogeneous"),
        make_cell("ver:preempt=never"),
        make_cell("mine"),
        make_cell(scenario="vizdoom/basic"),
    ]
    assert references(others) == []


def test_navigation_figures_are_of_their_own_profiles() -> None:
    """VER's two navigation tasks are the two profiles that were fitted to them."""
    (found,) = references([make_cell("ddppo", scenario="emulated/pointnav-hm3d")])
    assert (found.gpus, found.steps_per_s) == (8, 3065)
    assert "Fig. 4A" in found.source
