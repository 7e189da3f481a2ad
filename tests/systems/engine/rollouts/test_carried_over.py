"""What a rank of `ver` collects: steps in flight carried over, stale fill, states and values of each step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from rlbench.harness.processes.told import StopRequests
from rlbench.systems.engine.rank.rank_loop import RankLoop
from rlbench.systems.policies.policy import build_policy
from rlbench.systems.ver.spec import SPEC as VER
from tests.systems.actions import choices
from tests.systems.engine.counting import LENGTHS, NUM_STEPS, SPACE
from tests.systems.engine.ranks import run_ranks
from tests.systems.engine.workers.test_inference import CUT_STEPS, StopAtFive, context_of, save

NUM_ENVS = len(LENGTHS)
NUM_VARIABLE = 4


def collect_variably(folder: Path) -> None:
    """On one rank with the composition of `ver`: four iterations, the second one cut; leaves each."""
    context = context_of(folder)
    loop = RankLoop(VER, context, StopRequests())
    watched = loop._sampler._monitor
    for number in range(NUM_VARIABLE):
        loop._monitor = loop._sampler._monitor = StopAtFive() if number == 1 else watched
        loop.collect()
        experience = loop.take()
        save(loop, folder, f"variable-{number}", experience)
        loop.learn(experience)
        loop.end_iteration()
    loop.close()
    context.meter.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a rank of `ver` has left."""
    folder = tmp_path_factory.mktemp("variable")
    run_ranks(collect_variably, 1, folder)
    return folder


@pytest.fixture(scope="module")
def variable(folder: Path) -> list[dict[str, NDArray[Any]]]:
    """What it has collected, rollout after rollout."""
    return [dict(np.load(folder / f"variable-{number}-0.npz")) for number in range(NUM_VARIABLE)]


def runs_in(rollout: dict[str, NDArray[Any]]) -> list[tuple[int, bool, NDArray[np.int64]]]:
    """Environment, whether stale, and slots of each run."""
    envs, num_stale = rollout["envs"].tolist(), int(rollout["num_stale_runs"])
    return [(env, number < num_stale, rollout[f"run.{number}"]) for number, env in enumerate(envs)]


def test_variable_rollouts_have_t_times_n_steps(variable: list[dict[str, NDArray[Any]]]) -> None:
    """A full one is fresh; a cut one is filled up with the newest steps of the one before (VER section 2.3)."""
    for number, rollout in enumerate(variable):
        runs = runs_in(rollout)
        assert sum(len(slots) for _, _, slots in runs) == NUM_STEPS * NUM_ENVS
        num_fresh = sum(len(slots) for _, is_stale, slots in runs if not is_stale)
        if number == 1:
            assert CUT_STEPS * NUM_ENVS <= num_fresh < NUM_STEPS * NUM_ENVS
        else:
            assert num_fresh == NUM_STEPS * NUM_ENVS


def test_variable_rollouts_go_on_where_the_last_ended(variable: list[dict[str, NDArray[Any]]]) -> None:
    """Fresh steps of an environment count on from one rollout to the next: none is left out and none comes twice."""
    follow: dict[int, list[float]] = {}
    num_checked = 0
    for rollout in variable:
        for env, is_stale, slots in runs_in(rollout):
            if is_stale:
                continue
            for slot in slots.tolist():
                seen = rollout["obs.where"][slot].tolist()
                if env in follow:
                    assert seen == follow[env]
                    num_checked += 1
                follow[env] = rollout["obs.where"][rollout["follow"][slot]].tolist()
    assert num_checked > 2 * NUM_STEPS * NUM_ENVS


def test_steps_in_flight_carry_the_version_that_chose_them(variable: list[dict[str, NDArray[Any]]]) -> None:
    """A fresh step has the version of its rollout, or, as an environment's first, of one whose end it outlasted.

    It may outlast several, if the environment has no other step in them.
    """
    last_fresh: dict[int, int] = {}
    for number, rollout in enumerate(variable):
        for env, is_stale, slots in runs_in(rollout):
            versions = rollout["version"][slots].tolist()
            if is_stale:
                assert max(versions) < 4 * number
                continue
            assert versions[0] in {4 * since for since in range(last_fresh.get(env, 0), number + 1)}
            assert set(versions[1:]) <= {4 * number}
            last_fresh[env] = number


def test_values_follow_from_the_stored_states(variable: list[dict[str, NDArray[Any]]], folder: Path) -> None:
    """From the state stored with a step follow its value and the next state; from that, what a run's end is worth."""
    for number, rollout in enumerate(variable):
        policy = build_policy("small", SPACE, choices(4), seed=1)
        policy.load_state_dict(torch.load(folder / f"variable-{number}-0.pt"))

        def at(name: str, rows: NDArray[np.int64], rollout: dict[str, NDArray[Any]] = rollout) -> torch.Tensor:
            return torch.from_numpy(rollout[name][rows])

        fresh = [slots for _, is_stale, slots in runs_in(rollout) if not is_stale]
        slots = np.concatenate(fresh)
        slots = slots[rollout["version"][slots] == 4 * number]
        obs = {"where": at("obs.where", slots)}
        _, _, values, states = policy.act(
            obs, at("prev_action", slots), at("episode_start", slots), at("state", slots), torch.Generator()
        )
        torch.testing.assert_close(values, at("value", slots))
        torch.testing.assert_close(states, at("state", rollout["follow"][slots]))
        last = np.array([run[-1] for run in fresh])
        last = last[~(rollout["truncated"][last] | rollout["terminated"][last])]
        nexts = rollout["follow"][last]
        obs = {"where": at("obs.where", nexts)}
        values = policy.value(obs, at("prev_action", nexts), at("episode_start", nexts), at("state", nexts))
        torch.testing.assert_close(values, at("bootstrap", last))
