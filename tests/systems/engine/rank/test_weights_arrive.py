"""Actors receive what the learner learns: the sampler's copy of `appo`, and the copies in `impala`'s workers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from rlbench.scenarios.emulated.env import NUM_CUES, OBSERVATION_SPACE
from rlbench.systems.policies.policy import Policy, build_policy
from tests.systems.actions import choices
from tests.systems.engine.cells import make_cell, profile
from tests.systems.engine.recorded import Recorded, record_in_turn

NUM_ITERATIONS = 90
SETTINGS = "rollout.num_steps=4:rollout.batch=16:overlap.max_lag=8:learn.learning_rate=0.01"
DEVICES = {"impala": "cpu", "appo": "emulated"}
"""So both clocks of learning are there: one that waits, one that works. `impala` is first, for its workers need torch,
and then so does the server from which all are forked."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recorded]:
    """Runs of systems that collect while they learn."""
    folder = tmp_path_factory.mktemp("runs")
    scenario = profile(folder)
    cells = {
        name: make_cell(f"{name}:{SETTINGS}", scenario, iterations=NUM_ITERATIONS, device=device)
        for name, device in DEVICES.items()
    }
    return record_in_turn(folder, cells)


@pytest.fixture(params=DEVICES)
def run(request: pytest.FixtureRequest, runs: dict[str, Recorded]) -> Recorded:
    """The run of a system."""
    return runs[request.param]


def log_probs_with(policy: Policy, samples: dict[str, NDArray[np.generic]], which: NDArray[np.bool_]) -> torch.Tensor:
    """What a policy says of the actions of some samples: their log-probabilities, [K]."""
    obs = {"cue": torch.from_numpy(samples["obs/cue"][which])}
    actions = torch.from_numpy(samples["action"][which])
    with torch.no_grad():
        before = (torch.from_numpy(samples[name][which]) for name in ("prev_action", "episode_start", "state"))
        hidden, _ = policy._step(obs, *before)
        return policy._heads(hidden)[0].log_prob(actions)


def test_every_environment_goes_on_with_newer_weights(run: Recorded) -> None:
    """The versions of an environment's samples never go back, and go up to a few before the last."""
    samples = run.samples()
    for env in range(4):
        versions = samples["version"][samples["env"] == env]
        assert (np.diff(versions) >= 0).all()
        assert len(np.unique(versions)) > NUM_ITERATIONS / 12
    assert samples["version"].max() >= NUM_ITERATIONS - 10
    assert (samples["version"] <= samples["learned_at"]).all()


def test_a_sample_was_acted_with_the_weights_of_its_version(run: Recorded) -> None:
    """The stored log-probabilities are those of the learner's weights at the stored version, and of no other."""
    samples, weights = run.samples(), run.weights_by_version()
    policy = build_policy("small", OBSERVATION_SPACE, choices(NUM_CUES), seed=0)
    for version in np.unique(samples["version"]):
        which = samples["version"] == version
        stored = torch.from_numpy(samples["log_prob"][which])
        policy.load_state_dict(weights[version])
        torch.testing.assert_close(log_probs_with(policy, samples, which), stored, rtol=1e-4, atol=1e-5)
        if len(stored) < 8:
            continue  # a few may be as likely as before
        for other in {version - 1, version + 1} & set(range(len(weights))):
            policy.load_state_dict(weights[other])
            assert (log_probs_with(policy, samples, which) - stored).abs().max() > 1e-4
