"""Emulated environments in batches: the same environments, stepped by calls that take the time of `[batch]`."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlbench.harness.contract.scenario import WORKLOADS
from rlbench.harness.contract.settings import Work
from rlbench.harness.metering.batches.vector_envs import check_batch, seeded
from rlbench.harness.plan.registry import load_scenario
from rlbench.scenarios.emulated import FAMILY, EmulatedScenario
from rlbench.scenarios.emulated.profile import PROFILES_FOLDER, Batch, read_profile
from rlbench.scenarios.emulated.times import BLOCK_STEPS, BlocksOfTimes, CallTimes
from tests.scenarios.seats import PlainDevice, seat_of

OPEN_FRIDGE = (PROFILES_FOLDER / "open-fridge.toml").read_text(encoding="utf-8").replace("= 200.0", "= 20.0", 1)
SIZE, NUM_ENVS = 5, 10


def write(folder: Path, batch: str = "sizes = [2, 4, 64]\nstep_ms = [10, 12.0, 72.0]\nsigma = 0.5") -> Path:
    """`open-fridge` with short episodes and a table `batch`."""
    path = folder / "mine.toml"
    path.write_text(f"{OPEN_FRIDGE}\n[batch]\n{batch}\n", encoding="utf-8")
    return path


@pytest.fixture
def scenario(tmp_path: Path) -> EmulatedScenario:
    """Batches of 5, heterogeneous, a hundred thousand times as fast."""
    made = FAMILY.make(str(write(tmp_path)), "heterogeneous")
    return replace(made, envs_per_batch=SIZE, num_envs=NUM_ENVS, time_scale=1e-5)


def seats(num: int = SIZE, **fields: Any) -> list[Any]:
    """Neighbouring seats, with seeds of their own."""
    return [replace(seat_of(index=i, num_envs=NUM_ENVS, seed=100 + i), **fields) for i in range(num)]


def test_environments_of_a_batch_do_what_they_do_alone(scenario: EmulatedScenario) -> None:
    """With the same seeds and actions: the same cues, rewards, ends, last observations and successes, to the bit."""
    of_batch = seats()
    batch, alone = scenario.make_envs(of_batch), [scenario.make_env(seat) for seat in of_batch]
    check_batch(batch, SIZE, scenario.observation_space, scenario.action_space)
    shown = seeded(batch, [seat.seed for seat in of_batch])[0]["cue"]
    seen = [env.reset(seed=seat.seed)[0]["cue"] for env, seat in zip(alone, of_batch, strict=True)]
    draw, num_ended = np.random.default_rng(0), 0
    for _ in range(3 * BLOCK_STEPS):
        assert np.array_equal(shown, seen)
        actions = draw.integers(4, size=SIZE)
        observation, rewards, ended, cut, info = batch.step(actions)
        shown = observation["cue"]
        assert not cut.any()
        for i, env in enumerate(alone):
            last, reward, ends, _, said = env.step(int(actions[i]))
            assert (reward, ends, said["raw_reward"]) == (rewards[i], ended[i], info["raw_reward"][i])
            seen[i] = last["cue"]
            if ends:
                num_ended += 1
                assert info["_final_obs"][i]
                assert info["_success"][i]
                assert np.array_equal(info["final_obs"]["cue"][i], last["cue"])
                assert said["success"] == info["success"][i]
                seen[i] = env.reset()[0]["cue"]
    assert num_ended > 100


class RenderingDevice(PlainDevice):
    """Notes when it was asked for what."""

    def __init__(self) -> None:
        super().__init__("cpu")
        self.asked: list[tuple[Work, int, float]] = []

    def busy(self, work: Work, num_items: int) -> AbstractContextManager[None]:
        """Notes it."""
        self.asked.append((work, num_items, time.perf_counter()))
        return nullcontext()


def test_a_call_takes_its_time_and_renders_all(scenario: EmulatedScenario) -> None:
    """It lasts what was drawn, times the time scale, and then renders all environments in one piece of work."""
    device, scale = RenderingDevice(), 0.1
    times = CallTimes(scenario.profile, "heterogeneous", [seat.seed for seat in seats()])
    batch = replace(scenario, time_scale=scale).make_envs(seats(device=device))
    batch.reset()
    for number in range(1, 31):
        expected_s, ends = times.next_call()
        began = time.perf_counter()
        assert np.array_equal(batch.step(np.zeros(SIZE, np.int64))[2], ends)
        assert len(device.asked) == number
        work, num_items, moment = device.asked[-1]
        assert (work, num_items) == ("render", SIZE)
        assert moment - began >= scale * expected_s


@pytest.mark.parametrize(("size", "mean_ms"), [(2, 10.0), (3, 11.0), (4, 12.0), (5, 13.0), (34, 42.0), (64, 72.0)])
def test_a_call_takes_the_mean_of_its_size(size: int, mean_ms: float, tmp_path: Path) -> None:
    """That of the table, or of the line between two sizes; calls differ by the sigma around it."""
    profile = read_profile(str(write(tmp_path)))
    assert profile.batch.call_ms(size) == pytest.approx(mean_ms)
    times = CallTimes(profile, "homogeneous", range(size))
    drawn_ms = np.array([1e3 * times.next_call()[0] for _ in range(20_000)])
    assert drawn_ms.mean() == pytest.approx(mean_ms, rel=0.02)
    assert np.log(drawn_ms).std() == pytest.approx(0.5, rel=0.02)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_predictions_draw_what_batches_draw(scenario: EmulatedScenario, workload: str) -> None:
    """To the bit, in whatever order; a batch is as slow as its scenes are on average, and its resets take no time."""
    scenario = replace(scenario, workload=workload)
    seeds = [seat.seed for seat in seats(NUM_ENVS)]
    together = scenario.times(seeds)
    (later, ends_later), (first, ends_first) = together.draw([1]), together.draw([1, 0])
    for batch, (seconds, ends) in enumerate(
        [(first[1], ends_first[1]), (np.append(later[0], first[0]), np.append(ends_later[0], ends_first[0], 0))]
    ):
        alone = CallTimes(scenario.profile, workload, seeds[SIZE * batch : SIZE * (batch + 1)])
        for one_s, ended in zip(seconds, ends, strict=True):
            expected_s, expected = alone.next_call()
            assert one_s == expected_s
            assert np.array_equal(ended, expected)
    scenes = BlocksOfTimes(scenario.profile, workload, seeds).scene_factors
    assert together.scene_factors.tolist() == [scenes[:SIZE].mean(), scenes[SIZE:].mean()]
    assert scenario.reset_s == 0


def test_what_a_simulator_that_is_quicker_changes(scenario: EmulatedScenario) -> None:
    """Calls are part of the simulator's stage; nothing else of the table changes."""
    quicker = scenario.quicker("simulator", 2.0).profile.batch
    assert quicker == Batch(sizes=(2, 4, 64), step_ms=(5.0, 6.0, 36.0), sigma=0.5)


@pytest.mark.parametrize(
    ("batch", "rule"),
    [
        ("sizes = [4, 2]\nstep_ms = [1.0, 2.0]", "batch.sizes: must be an array of whole numbers from 1 to 4096, asc"),
        ("sizes = [2, 2]\nstep_ms = [1.0, 2.0]", "batch.sizes: must be an array of whole numbers"),
        ("sizes = [0]\nstep_ms = [1.0]", "batch.sizes: must be an array of whole numbers"),
        ("sizes = [1.5]\nstep_ms = [1.0]", "batch.sizes: must be an array of whole numbers"),
        ("sizes = []\nstep_ms = []", "batch.sizes: must be an array of whole numbers"),
        ("sizes = 8\nstep_ms = [1.0]", "batch.sizes: must be an array of whole numbers"),
        ("sizes = [2]\nstep_ms = [0.0]", "batch.step_ms: must be an array of numbers from 1e-06 to 1e+06, not [0.0]"),
        ("sizes = [2]\nstep_ms = [nan]", "batch.step_ms: must be an array of numbers"),
        ("sizes = [2]\nstep_ms = ['a']", "batch.step_ms: must be an array of numbers"),
        ("sizes = [2]\nstep_ms = [1.0, 2.0]", "batch: step_ms must have as many times as sizes, 1"),
        ("sizes = [2, 4]", "batch: step_ms must have as many times as sizes, 2"),
        ("sizes = [2]\nstep_ms = [1.0]\nsigma = -1.0", "batch.sigma: must be greater than or equal to 0"),
        ("sizes = [2]\nms = [1.0]", "batch.ms: unknown; known: sizes, step_ms, sigma"),
    ],
)
def test_an_impossible_table_is_refused(batch: str, rule: str, tmp_path: Path) -> None:
    """In one line with the file, the line, the key, the rule and the value."""
    path = write(tmp_path, batch)
    with pytest.raises(ValueError, match=r"mine\.toml:\d+: ") as refused:
        read_profile(str(path))
    assert rule in str(refused.value)
    assert "\n" not in str(refused.value)
    number, key = int(str(refused.value).split(":")[1]), rule.split(":", maxsplit=1)[0]
    begins = "[batch]" if key == "batch" else f"{key.partition('.')[2]} ="
    assert path.read_text(encoding="utf-8").splitlines()[number - 1].startswith(begins)


@pytest.mark.parametrize(
    ("profile", "size", "rule"),
    [
        ("mine", "1000", "envs_per_batch=1000: must be 1, or from 2 to 64: [batch] has sizes = [2, 4, 64]"),
        ("mine", "0", "envs_per_batch=0: must be at least 1"),
        (
            "open-fridge",
            "8",
            "envs_per_batch=8: must be 1: the profile has no table [batch], with sizes and step_ms; `rl",
        ),
    ],
)
def test_a_size_that_nobody_knows_is_refused(profile: str, size: str, rule: str, tmp_path: Path) -> None:
    """In one line that names the sizes that are known, or says how to get some."""
    name = str(write(tmp_path)) if profile == "mine" else profile
    with pytest.raises(ValueError, match="envs_per_batch") as refused:
        load_scenario(f"emulated/{name}", "homogeneous", {"envs_per_batch": size})
    assert rule in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_profile_may_have_batches_by_default(tmp_path: Path) -> None:
    """`collect.envs_per_batch` is the scenario's default, as `num_envs` is; without it environments step alone."""
    path = write(tmp_path)
    assert load_scenario(f"emulated/{path}", "homogeneous", {}).envs_per_batch == 1  # type: ignore[attr-defined]
    path.write_text(path.read_text().replace("[collect]", "[collect]\nenvs_per_batch = 4"))
    assert load_scenario(f"emulated/{path}", "homogeneous", {}).envs_per_batch == 4  # type: ignore[attr-defined]
    assert read_profile(str(path)).document["batch"] == {"sizes": [2, 4, 64], "step_ms": [10, 12, 72], "sigma": 0.5}
    assert "batch" not in read_profile("open-fridge").document
