from __future__ import annotations

import json
from typing import Any

import pytest

from tests.harness.command import launch

FRAMESKIP = {"pointnav": 1, "atari": 4, "vizdoom": 4}
NUM_ITERATIONS, NUM_ENVS, NUM_STEPS = 2, 2, 40


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """`sync` on each of the real scenarios, on the CPU: the records of the runs by scenario."""
    folder = tmp_path_factory.mktemp("conserved")
    settings = f"num_envs={NUM_ENVS}:rollout_steps={NUM_STEPS}:learn.num_minibatches=2"
    scenarios = ",".join(f"{name}:{settings}" for name in FRAMESKIP)
    ended = launch(
        *("run", "--systems", "sync", "--scenario", scenarios, "--device", "cpu"),
        *("--iterations", str(NUM_ITERATIONS), "--out", "runs"),
        folder=folder,
    )
    assert ended.code == 0, ended.out + ended.err
    found = [json.loads(path.read_text()) for path in folder.glob("runs/*/*/run.json")]
    return {record["cell"]["scenario"].partition("/")[0]: record for record in found}


@pytest.mark.parametrize("scenario", FRAMESKIP)
def test_every_step_is_accounted_for(records: dict[str, Any], scenario: str) -> None:
    """Env steps counted in the wrapper = learned + discarded + in flight, to the sample; each is learned once."""
    counters = records[scenario]["counters"]
    assert records[scenario]["status"] == "finished"
    assert counters["env_steps"] == NUM_ITERATIONS * NUM_ENVS * NUM_STEPS
    assert counters["env_steps"] == counters["learned"] + counters["discarded"] + counters["in_flight"]
    assert counters["learned"] == counters["env_steps"]
    epochs = records[scenario]["configuration"]["scenario"]["learn"]["epochs"]
    assert counters["reused"] == (epochs - 1) * counters["learned"]


@pytest.mark.parametrize(("scenario", "frameskip"), FRAMESKIP.items())
def test_frames_are_not_env_steps(records: dict[str, Any], scenario: str, frameskip: int) -> None:
    """Frames are counted beside env steps: as many for each as the frameskip, fewer only where an episode ends."""
    counters = records[scenario]["counters"]
    most = frameskip * counters["env_steps"]
    assert most - (frameskip - 1) * (counters["episodes"] + 1) <= counters["frames"] <= most


@pytest.mark.parametrize("scenario", FRAMESKIP)
def test_nothing_lags_where_collecting_and_learning_alternate(records: dict[str, Any], scenario: str) -> None:
    """Every sample is learned at lag 0."""
    assert records[scenario]["figures"]["lag"] == {"mean": 0.0, "max": 0}
