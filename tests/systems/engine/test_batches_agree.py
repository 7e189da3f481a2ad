"""Environments in batches give the samples that single ones give, to the bit where the same random numbers act."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from rlbench.harness.plan.cells import Cell
from tests.systems.engine.batched import KINDS, MODES, NUM_ENVS, NUM_STEPS, cell_of, record_batched, registered
from tests.systems.engine.cells import run_in_turn
from tests.systems.engine.recorded import Recorded

SAME_STREAM = (AutoresetMode.SAME_STEP.value, AutoresetMode.DISABLED.value)
"""Modes in which each call steps every environment, so that they get what the same random numbers choose."""


@pytest.fixture(scope="module")
def same_seeds(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Recorded]:
    """`sync` with environments of the same seeds, alone and in batches of each kind, whose weights stay what they are.

    Where numbers lie in memory may change the last bit of what is learned.
    """
    folder = tmp_path_factory.mktemp("same")
    cells: dict[str, Cell] = {}
    ways = [("alone", MODES[0].value), *((kind, mode.value) for kind in KINDS for mode in MODES)]
    with registered():
        for kind, mode in ways:
            logs = folder / f"logs-{kind}-{mode}"
            logs.mkdir()
            system = "sync:learn.learning_rate=1e-30"
            cells[f"{kind}-{mode}"] = cell_of((system, kind, mode, 1), logs)
        runs = run_in_turn(folder, cells, 1, record_batched)
    return {(kind, mode): Recorded(runs[f"{kind}-{mode}"].folder) for kind, mode in ways}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", SAME_STREAM)
def test_batches_give_the_samples_of_single_environments(
    same_seeds: dict[tuple[str, str], Recorded], kind: str, mode: str
) -> None:
    """With the same seeds and weights every column is equal to the bit, in the same order, where it has a meaning."""
    ours, theirs = (same_seeds[way].samples() for way in ((kind, mode), ("alone", MODES[0].value)))
    del ours["counts"], theirs["counts"]
    cut = ours["truncated"]
    assert cut.any()
    read = {"episode": cut | ours["terminated"], "bootstrap": cut, "prev_action": ~ours["episode_start"]}
    for name in ours:
        which = read.get(name, slice(None))
        assert ours[name][which].tobytes() == theirs[name][which].tobytes(), name


@pytest.mark.parametrize("kind", KINDS)
def test_resets_in_between_leave_out_nothing(same_seeds: dict[tuple[str, str], Recorded], kind: str) -> None:
    """Where a step may only reset an environment, fewer samples are learned: the same ones, environment by environment.

    Actions differ, and with them rewards: they are chosen with other random numbers.
    """
    ours, theirs = (same_seeds[kind, mode].samples() for mode in (AutoresetMode.NEXT_STEP.value, SAME_STREAM[0]))
    assert len(ours["env"]) < len(theirs["env"])
    for env in range(NUM_ENVS):
        of_ours, of_theirs = (
            {name: column[samples["env"] == env] for name, column in samples.items()} for samples in (ours, theirs)
        )
        num = len(of_ours["env"])
        assert num > NUM_STEPS
        for name in ("obs/where", "terminated", "truncated", "episode_start"):
            assert np.array_equal(of_ours[name], of_theirs[name][:num])
        noise, same = (each["reward"][:num] - each["action"][:num, 0] for each in (of_ours, of_theirs))
        assert np.array_equal(noise, same)


def test_equal_kinds_choose_equally_between_resets(same_seeds: dict[tuple[str, str], Recorded]) -> None:
    """Whoever made the batch: with resets in steps of their own all kinds give the same samples too, to the bit."""
    first, *others = (same_seeds[kind, AutoresetMode.NEXT_STEP.value].samples() for kind in KINDS)
    for other in others:
        for name in ("env", "obs/where", "action", "reward", "value", "log_prob", "state"):
            assert first[name].tobytes() == other[name].tobytes(), name
