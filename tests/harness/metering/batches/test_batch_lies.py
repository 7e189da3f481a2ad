from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv

from rlbench.harness.contract.device import Seat
from rlbench.harness.contract.envs import InBatches, make_counted_batch
from rlbench.harness.metering.batches.counted_batch import CountedBatch
from rlbench.harness.metering.meter_file import MeterFile, meter_path
from tests.harness.metering.batches.vector_scenarios import RandomScenario, meter, seats_of


@dataclass
class Scripted:
    """A scenario whose three environments give what it says; the answers of a step are changed by `lie`."""

    mode: Any = AutoresetMode.NEXT_STEP
    lie: Callable[[dict[str, Any]], object] = lambda _: None
    ends: tuple[bool, ...] = (False, False, False)
    num: int = 3
    metadata: dict[str, Any] | None = None
    after_reset: Callable[[Any], Any] = lambda observation: observation
    takes: type = list
    seeds: list[Any] = field(default_factory=list)
    observation_space: Any = field(default_factory=lambda: Box(-1.0, 1.0, (2,), np.float32))
    action_space: Any = field(default_factory=lambda: Discrete(2))
    envs_per_batch: int = 3

    def make_envs(self, seats: Sequence[Seat]) -> VectorEnv[Any, Any, Any]:
        """A `ScriptedEnvs`."""
        assert len(seats) == 3
        return ScriptedEnvs(self)


class ScriptedEnvs(VectorEnv[Any, Any, Any]):
    """Steps through the script."""

    def __init__(self, script: Scripted) -> None:
        self.script, self.num_envs = script, script.num
        self.metadata = {"autoreset_mode": script.mode} if script.metadata is None else script.metadata
        self.single_observation_space = Box(-1.0, 1.0, (2,), np.float32)
        self.single_action_space = Discrete(2)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Says how it was called."""
        self.script.seeds.append(seed)
        if seed is not None and not isinstance(seed, self.script.takes):
            raise TypeError(f"a seed of type {type(seed)}")
        observation = np.zeros((3, 2), np.float32)
        return (observation if options is None else self.script.after_reset(observation)), {}

    def step(self, actions: Any) -> Any:
        """An answer, changed."""
        del actions
        answer = {
            "observation": np.zeros((3, 2), np.float32),
            "rewards": np.zeros(3),
            "terminated": np.array(self.script.ends),
            "truncated": np.zeros(3, np.bool_),
            "info": {},
            "whole": (),
        }
        self.script.lie(answer)
        *parts, whole = answer.values()
        return tuple(parts) if whole == () else whole


def scripted(folder: Path, script: Scripted) -> CountedBatch:
    """Environments 6, 7 and 8 of a run."""
    path, _ = meter(folder / "run", 5)
    return make_counted_batch(script, seats_of(3), folder / "run", path)


def into(name: str, value: Any) -> Callable[[dict[str, Any]], object]:
    """Sets a part of an answer, or of the info."""
    return lambda answer: answer.update({name: value}) if name in answer else answer["info"].update({name: value})


ANSWERS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "nan": (into("rewards", np.array([0, np.nan, 0])), r"environment 7 gave the reward nan: it must be finite"),
    "huge": (
        into("rewards", np.array([0, 0, 1e39])),
        r"environment 8 gave the reward 1e\+39: it must be a number that",
    ),
    "column": (into("rewards", np.zeros((3, 1))), r"environments 6 to 8 gave the rewards .*: it must be an array of 3"),
    "texts": (into("rewards", np.array(["a", "b", "c"])), r"environments 6 to 8 gave the rewards"),
    "ragged": (into("rewards", [[1], [1, 2], 0]), r"environments 6 to 8 gave the rewards"),
    "complex": (into("rewards", np.zeros(3, complex)), r"environments 6 to 8 gave the rewards"),
    "ints": (into("terminated", np.zeros(3, int)), r"environments 6 to 8 gave terminated .*an array of 3 bool"),
    "few flags": (into("truncated", np.zeros(2, bool)), r"environments 6 to 8 gave truncated .*an array of 3 bool"),
    "shape": (into("observation", np.zeros((3, 3), np.float32)), r"gave an observation of shape \(3, 3\).*be \(3, 2\)"),
    "dtype": (into("observation", np.zeros((3, 2), int)), r"environments 6 to 8 gave an observation of dtype 'int64'"),
    "infinite": (
        into("observation", np.array([[0, 0], [0, 0], [0, np.inf]], np.float32)),
        r"environment 8 gave an observation with inf: it must be finite",
    ),
    "too large": (
        into("observation", np.array([[0, 0], [1e300, 0], [0, 0]])),
        r"environment 7 gave an observation with inf: it must be finite",
    ),
    "frames": (
        into("num_frames", np.array([1, -2, 1])),
        r"environment 7 gave num_frames = .*-2.*a whole number from 0",
    ),
    "part of a frame": (into("num_frames", np.array([0.5, 1, 1])), r"environment 6 gave num_frames = .*0\.5"),
    "frames of one": (into("num_frames", 4), r"environments 6 to 8 gave num_frames = 4: it must be an array of 3"),
    "mask": (
        lambda answer: answer["info"].update(num_frames=np.ones(3, int), _num_frames=np.ones(3, int)),
        r"environments 6 to 8 gave _num_frames = .*an array of 3 bool",
    ),
    "raw": (into("raw_reward", np.array([0, 0, np.inf])), r"environment 8 gave the raw_reward inf: it must be finite"),
    "raw text": (into("raw_reward", np.array([0, "x", 0], object)), r"environment 7 gave the raw_reward 'x' \(str\)"),
    "four parts": (into("whole", (0, 0, 0, 0)), r"environments 6 to 8 step gave \(0, 0, 0, 0\) \(tuple\)"),
    "nothing": (into("whole", None), r"environments 6 to 8 step gave None"),
    "final": (
        into("final_obs", np.zeros((3, 2))),
        r"environment 6 gave final_obs .*left out, since autoreset_mode is N",
    ),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_answers_that_break_a_rule_are_refused(case: str, tmp_path: Path) -> None:
    """One line names the environment, or those of the batch, what it gave and the rule; the step has counted."""
    lie, message = ANSWERS[case]
    batch = scripted(tmp_path, Scripted(lie=lie))
    batch.reset()
    with pytest.raises(ValueError, match=message) as raised:
        batch.step(np.zeros(3, int))
    assert "\n" not in str(raised.value)
    assert MeterFile(meter_path(tmp_path / "run", 1), writable=False).total("env_steps") == 3


ONE_ENDS = (False, True, False)


@pytest.mark.parametrize("name", ["success", "spl"])
@pytest.mark.parametrize("value", [1.5, -0.1])
def test_fractions_beyond_1_are_refused(name: str, value: float, tmp_path: Path) -> None:
    """What an episode's success and SPL may not be is refused where an episode ends, and not looked at elsewhere."""
    batch = scripted(tmp_path, Scripted(ends=ONE_ENDS, lie=into(name, np.array([7.0, value, 7.0]))))
    batch.reset()
    with pytest.raises(ValueError, match=rf"environment 7 gave {name} = .*{value}.*a number from 0 to 1"):
        batch.step(np.zeros(3, int))


@pytest.mark.parametrize("name", ["terminated", "rewards"])
def test_a_step_that_should_only_reset_does_only_that(name: str, tmp_path: Path) -> None:
    """An environment that says NEXT_STEP and then ends, or rewards, the step after an end is refused."""
    script = Scripted(ends=ONE_ENDS)
    batch = scripted(tmp_path, script)
    batch.reset()
    assert batch.step(np.zeros(3, int)).counts.all()
    script.lie = into(name, np.array([0, 1, 0], np.bool_ if name == "terminated" else np.float64))
    with pytest.raises(
        ValueError, match=r"environment 7 gave (an end True|a reward of 1\.0): .*0 and no end in the step"
    ):
        batch.step(np.zeros(3, int))


SAME_STEP_LIES = {
    "none": ({}, "environment 7 gave final_obs None"),
    "of another": (
        {"final_obs": np.zeros((3, 2), np.float32), "_final_obs": np.array([True, False, True])},
        "environment 7 gave final_obs None",
    ),
    "of more": (
        {"final_obs": np.zeros((3, 2), np.float32), "_final_obs": np.array([False, True, True])},
        "environment 8 gave final_obs .*left out where no episode ended",
    ),
    "of another shape": (
        {"final_obs": np.array([None, np.zeros(3, np.float32), None], object), "_final_obs": np.array(ONE_ENDS)},
        r"environment 7 gave an observation of shape \(3,\) \(tuple\): it must be \(2,\)",
    ),
    "not finite": (
        {"final_obs": np.full((3, 2), np.nan, np.float32), "_final_obs": np.array(ONE_ENDS)},
        "environment 7 gave an observation with nan: it must be finite",
    ),
}


@pytest.mark.parametrize("case", SAME_STEP_LIES)
def test_without_last_observations_a_reset_in_the_step_is_refused(case: str, tmp_path: Path) -> None:
    """An environment that says SAME_STEP gives the last observation of each episode that ended, and of no other."""
    info, message = SAME_STEP_LIES[case]
    script = Scripted(AutoresetMode.SAME_STEP, lambda answer: answer["info"].update(info), ONE_ENDS)
    batch = scripted(tmp_path, script)
    batch.reset()
    with pytest.raises(ValueError, match=message):
        batch.step(np.zeros(3, int))


def test_a_reset_of_some_changes_no_others(tmp_path: Path) -> None:
    """An environment that says DISABLED and resets more than the mask says is refused."""
    script = Scripted(AutoresetMode.DISABLED, ends=ONE_ENDS, after_reset=lambda observation: observation + np.eye(3, 2))
    batch = scripted(tmp_path, script)
    batch.reset()
    with pytest.raises(ValueError, match=r"environment 6 gave an observation after a reset of others"):
        batch.step(np.zeros(3, int))


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (Scripted(num=4), "make_envs gave 4 environments: it must give 3, one for each seat"),
        (Scripted(metadata={}), r'make_envs gave metadata\["autoreset_mode"\] = None.*: it must be AutoresetMode'),
        (Scripted("Sometimes"), r"autoreset_mode.* = 'Sometimes'"),
        (
            Scripted(action_space=Discrete(3)),
            r"gave single_action_space Discrete\(2\).*: the scenario states Discrete\(3",
        ),
        (Scripted(observation_space=Discrete(3)), "gave single_observation_space Box"),
    ],
)
def test_batches_that_are_not_the_scenarios_are_refused(script: Scripted, message: str, tmp_path: Path) -> None:
    """The number of environments, their spaces and their mode are looked at before the first reset."""
    with pytest.raises(ValueError, match=message):
        scripted(tmp_path, script)


@pytest.mark.parametrize(
    ("takes", "num_calls", "kept"), [(list, 1, [70, 81, 2**31 + 92]), (np.ndarray, 2, [70, 81, 92]), (int, 3, 70)]
)
def test_seeds_come_in_a_form_that_the_environments_take(
    takes: type, num_calls: int, kept: Any, tmp_path: Path
) -> None:
    """A list of the seats' seeds, or their low 31 bits in an array, or the first alone; a later reset has none."""
    script = Scripted(AutoresetMode.SAME_STEP.value, takes=takes)
    batch = scripted(tmp_path, script)
    batch.reset()
    assert len(script.seeds) == num_calls
    assert np.array_equal(script.seeds[-1], kept)
    batch.reset()
    assert script.seeds[num_calls:] == [None]


def test_scenarios_in_batches_are_told_from_others() -> None:
    """By their members."""
    assert isinstance(Scripted(), InBatches)
    assert not isinstance(RandomScenario(3, AutoresetMode.DISABLED), InBatches)
    assert not isinstance(gymnasium.Env(), InBatches)
