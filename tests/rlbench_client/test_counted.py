from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import signal
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import rlbench_client
from rlbench_client.counters import SUFFIX
from rlbench_client.vectorised import VectorCounting
from tests.rlbench_client.counting_env import LENGTHS, CountingEnv
from tests.rlbench_client.reading import counters, read

__all__ = ["counters"]


def play(env: Any, num_steps: int) -> None:
    """Steps with resets where episodes end."""
    env.reset()
    for _ in range(num_steps):
        *_, terminated, truncated, _ = env.step(0)
        if terminated or truncated:
            env.reset()


def test_counts_are_those_of_the_environment(counters: Path) -> None:
    """Env steps, frames and episodes are counted to the step; each episode has its own return, length and frames."""
    own = CountingEnv()
    env = rlbench_client.count(own)
    play(env, 100)
    (change,) = read(counters)
    assert change.counts["env_steps"] == own.num_steps == 100
    assert change.counts["frames"] == 400
    assert change.counts["episodes"] == own.num_episodes == len(change.episodes)
    lengths = [int(length) for _, _, length, *_ in change.episodes]
    assert lengths == [LENGTHS[(1 + number) % 4] for number in range(len(lengths))]
    assert [gain for _, gain, *_ in change.episodes] == [2.0 * length for length in lengths]
    assert [frames for _, _, _, frames, *_ in change.episodes] == [4 * length for length in lengths]
    assert change.seconds["step_s"] > 0
    assert change.seconds["reset_s"] > 0


def test_nothing_is_counted_outside_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the variable an environment is returned as it is, and reports are no error."""
    monkeypatch.delenv("RLBENCH_COUNTERS", raising=False)
    env = CountingEnv()
    assert rlbench_client.count(env) is env
    rlbench_client.learned(-1)
    rlbench_client.iteration()
    with rlbench_client.span("learn"):
        pass


def test_a_file_is_made_by_who_steps(counters: Path) -> None:
    """An environment that is made and not stepped leaves no file; one that is counted already is not counted twice."""
    env = rlbench_client.count(CountingEnv())
    assert read(counters) == []
    assert rlbench_client.count(env) is env
    wrapped = gymnasium.wrappers.TimeLimit(env, 1000)
    assert rlbench_client.count(wrapped) is wrapped
    play(wrapped, 7)
    assert [change.counts["env_steps"] for change in read(counters)] == [7]


def test_wrappers_are_accepted_in_place_of_environments(counters: Path) -> None:  # noqa: ARG001  it sets the variable
    """A wrapper of a gymnasium environment is one, and what is none is passed through."""
    assert isinstance(rlbench_client.count(CountingEnv()), gymnasium.Env)

    class Duck:
        speed = 3

        def reset(self, *, seed: int | None = None) -> tuple[int, dict[str, Any]]:  # noqa: ARG002
            return 0, {}

        def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
            return action, 1.0, False, True, {}

    duck = rlbench_client.count(Duck(), frames_per_step=2)
    play(duck, 3)
    assert duck.speed == 3
    assert [change.counts["frames"] for change in read(Path(os.environ["RLBENCH_COUNTERS"]))] == [6]


def test_forks_and_copies_count_for_themselves(counters: Path) -> None:
    """An environment that is stepped, then forked, copied and pickled, is counted once in each place."""
    env = rlbench_client.count(CountingEnv())
    play(env, 10)
    child = multiprocessing.get_context("fork").Process(target=play, args=(env, 20))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    play(copy.deepcopy(env), 3)
    play(pickle.loads(pickle.dumps(env)), 4)  # noqa: S301  it is our own
    play(env, 5)
    steps = sorted(change.counts["env_steps"] for change in read(counters))
    assert steps == [3, 4, 15, 20]


def _play_and_die(counters: Path) -> None:
    os.environ["RLBENCH_COUNTERS"] = str(counters)
    env = rlbench_client.count(CountingEnv())
    play(env, 1000)
    rlbench_client.learned(640)
    os.kill(os.getpid(), signal.SIGKILL)


def test_what_a_killed_process_counted_stays(counters: Path) -> None:
    """SIGKILL loses nothing that was counted before it."""
    child = multiprocessing.get_context("spawn").Process(target=_play_and_die, args=(counters,))
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    changes = read(counters)
    assert sum(change.counts["env_steps"] for change in changes) == 1000
    assert sum(change.counts["learned"] for change in changes) == 640


@pytest.mark.parametrize("mode", list(gymnasium.vector.AutoresetMode))
def test_a_vector_counts_what_its_environments_do(counters: Path, mode: gymnasium.vector.AutoresetMode) -> None:
    """A vector counts exactly the env steps, frames and episodes of its environments, however it resets them."""
    owns: list[CountingEnv] = []

    def make(first: int) -> CountingEnv:
        owns.append(CountingEnv(first))
        return owns[-1]

    vector: Any = gymnasium.vector.SyncVectorEnv([lambda i=i: make(i) for i in range(3)], autoreset_mode=mode)  # type: ignore[misc]
    env = rlbench_client.count(vector)
    assert isinstance(env, VectorCounting)
    env.reset()
    ended = np.zeros(3, bool)
    for _ in range(50):
        if mode == gymnasium.vector.AutoresetMode.DISABLED and ended.any():
            env.reset(options={"reset_mask": ended})
        *_, terminated, truncated, _ = env.step(np.zeros(3, np.int64))
        ended = terminated | truncated
    (change,) = read(counters)
    assert change.counts["env_steps"] == sum(own.num_steps for own in owns)
    assert change.counts["frames"] == 4 * change.counts["env_steps"]
    assert change.counts["episodes"] == sum(own.num_episodes for own in owns) == len(change.episodes)
    assert {(gain, length) for _, gain, length, *_ in change.episodes} == {(2.0 * each, each) for each in LENGTHS}


def test_environments_of_a_vector_in_processes_are_counted(counters: Path) -> None:
    """`AsyncVectorEnv` around counted environments: a file for each, none for the vector."""
    vector = gymnasium.vector.AsyncVectorEnv([lambda: rlbench_client.count(CountingEnv())] * 2)
    vector.reset()
    for _ in range(20):
        vector.step(np.zeros(2, np.int64))
    vector.close()
    changes = read(counters)
    assert len(changes) == 2
    resets = sum(change.counts["episodes"] for change in changes)  # an env step less for each: it resets instead
    assert sum(change.counts["env_steps"] for change in changes) in range(40 - resets, 40 - resets + 3)


def test_the_client_imports_the_standard_library_alone() -> None:
    """Importing it loads neither gymnasium nor numpy, nor anything of rlbench."""
    import subprocess

    code = "import sys, rlbench_client; print(sorted({'gymnasium', 'numpy', 'harness', 'torch'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_files_have_their_suffix_once_they_are_whole(counters: Path) -> None:
    """What a reader looks for appears by a rename: no file without a header is ever seen."""
    play(rlbench_client.count(CountingEnv()), 1)
    (path,) = counters.iterdir()
    assert path.suffix == SUFFIX
    assert path.name.startswith(f"{os.getpid()}-")


class TellingEnv(CountingEnv):
    """Says of each step what it was told to."""

    def __init__(self, told: dict[str, Any]) -> None:
        super().__init__()
        self._told = told

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated, truncated, info | self._told


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"num_frames": 2**62}, r"num_frames = 4\.?6.*: must be a whole number to"),
    ({"num_frames": -1}, "num_frames = -1"),
    ({"num_frames": 1.5}, r"num_frames = 1\.5"),
    ({"success": 5.0}, r"success = (np\.float64\()?5\.0\)?: must be from 0 to 1"),
    ({"spl": -0.1}, r"spl = (np\.float64\()?-0\.1\)?: must be from 0 to 1"),
]


@pytest.mark.parametrize(("told", "problem"), REFUSED)
def test_what_cannot_be_counted_is_refused(counters: Path, told: dict[str, Any], problem: str) -> None:
    """At the step that says it, in the trainer's own process; the env step is counted."""
    env = rlbench_client.count(TellingEnv(told))
    with pytest.raises(ValueError, match=problem):
        play(env, 10)
    (change,) = read(counters)
    assert change.counts["env_steps"] >= 1
    assert change.counts["episodes"] == 0


@pytest.mark.parametrize(("told", "problem"), REFUSED)
def test_what_cannot_be_counted_of_a_vector_is_refused(counters: Path, told: dict[str, Any], problem: str) -> None:
    """At the call that says it, or that ends an episode."""
    del counters
    env = rlbench_client.count(gymnasium.vector.SyncVectorEnv([lambda: TellingEnv(told)] * 2))

    def play_all() -> None:
        env.reset()
        for _ in range(10):
            env.step(np.zeros(2, np.int64))

    with pytest.raises(ValueError, match=problem):
        play_all()
