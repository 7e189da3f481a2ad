from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbench.harness.contract.envs import make_counted_batch, make_counted_env
from rlbench.harness.metering.batches.counted_batch import CountedBatch
from rlbench.harness.metering.batches.steps import BatchStep
from rlbench.harness.metering.counted import EPISODE, episodes_path
from tests.harness.metering.batches.vector_scenarios import ACTIONS, RandomScenario, meter, seats_of

MODES = list(AutoresetMode)
COUNTERS = ("env_steps", "frames", "episodes")


def flat(observation: Any) -> list[Any]:
    """The numbers of an observation of `vector_scenarios`."""
    number, bits = observation["b"]
    return [*observation["x"].tolist(), int(number), *bits.tolist()]


def rows_of(observation: Any) -> list[list[Any]]:
    """The same of a batched one, by environment."""
    numbers, bits = observation["b"]
    return [flat({"x": x, "b": (n, b)}) for x, n, b in zip(observation["x"], numbers, bits, strict=True)]


def records(folder: Path) -> list[tuple[Any, ...]]:
    """Episode records without their times, by environment."""
    found = EPISODE.iter_unpack(episodes_path(folder, 1).read_bytes())
    return sorted(((env, *rest) for env, _, *rest in found), key=lambda record: record[0])


def played_in_batch(batch: CountedBatch, actions: np.ndarray[Any, Any]) -> list[list[Any]]:
    """What each environment was told, [B][...]: observations, and of each env step all that followed it."""
    story: list[list[Any]] = [[row] for row in rows_of(batch.reset())]
    taken = np.zeros(len(story), int)
    for _ in range(actions.shape[1]):
        step: BatchStep = batch.step(actions[np.arange(len(story)), taken])
        now, final = rows_of(step.observation), rows_of(step.final) if step.ended.any() else None
        assert (step.final is None) == (not step.ended.any())
        assert not step.ended[~step.counts].any()
        assert (step.ended == (step.terminated | step.truncated)).all()
        for i, own in enumerate(story):
            if not step.counts[i]:
                assert step.rewards[i] == 0
                own[-1] = now[i]  # in place of the last observation, which was not to be acted on
                continue
            taken[i] += 1
            own.append((float(step.rewards[i]), bool(step.terminated[i]), bool(step.truncated[i])))
            if step.ended[i]:
                assert final is not None
                own.append((final[i], *map(repr, step.episodes[i].tolist())))
            own.append(now[i])
    for i in np.flatnonzero(step.ended):
        story[i].pop()  # to act on next, if the next call does not reset it
    return story


def played_alone(env: Any, actions: Sequence[int]) -> list[Any]:
    """The same of one environment, whose episodes are begun at once."""
    story: list[Any] = [flat(env.reset())]
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(action)
        story.append((reward, terminated, truncated))
        if terminated or truncated:
            story.append((flat(observation), *map(repr, info["episode"])))
            observation = env.reset()
        story.append(flat(observation))
    return story


@settings(max_examples=25, deadline=None)
@given(
    mode=st.sampled_from(MODES),
    is_native=st.booleans(),
    num=st.integers(1, 5),
    most_steps=st.sampled_from([1, 2, 5]),
    num_calls=st.integers(1, 15),
    seed=st.integers(0, 99),
)
def test_a_batch_counts_and_tells_what_single_environments_do(
    mode: AutoresetMode, is_native: bool, num: int, most_steps: int, num_calls: int, seed: int
) -> None:
    """With the same seeds and actions, whoever resets: observations, rewards, ends, counters and records are equal."""
    scenario = RandomScenario(most_steps, mode, is_native)
    actions = np.random.default_rng(seed).integers(0, ACTIONS.n, (num, num_calls))
    with tempfile.TemporaryDirectory() as name:
        together, apart = Path(name) / "together", Path(name) / "apart"
        path, file = meter(together, num + 2)
        batch = make_counted_batch(scenario, seats_of(num), together, path)
        story = played_in_batch(batch, actions)
        batch.close()
        single_path, singles = meter(apart, num + 2)
        for i, seat in enumerate(seats_of(num)):
            env = make_counted_env(scenario, seat, apart, single_path)
            alone = played_alone(env, actions[i, : file.count(2 + i, "env_steps")].tolist())
            env.close()
            assert story[i] == alone[: len(story[i])]
            assert len(story[i]) >= len(alone) - 1
        for index in range(num + 4):
            assert [file.count(index, of) for of in COUNTERS] == [singles.count(index, of) for of in COUNTERS]
            assert (file.count(index, "pid") > 0) == (singles.count(index, "pid") > 0)
        assert repr(records(together)) == repr(records(apart))


@pytest.mark.parametrize("mode", MODES)
def test_spans_and_seconds(mode: AutoresetMode, tmp_path: Path) -> None:
    """Each environment simulates, or is reset, for as long as the call; the shares add up to the time of the calls."""
    path, file = meter(tmp_path / "run", 6)
    begin = time.perf_counter()
    batch = make_counted_batch(RandomScenario(3, mode), seats_of(4), tmp_path / "run", path)
    batch.reset()
    steps = [batch.step(np.zeros(4, int)) for _ in range(20)]
    batch.used(0.5, 4.0)
    batch.close()
    took = time.perf_counter() - begin
    resets_each = {
        AutoresetMode.NEXT_STEP: [sum(not step.counts[i] for step in steps) for i in range(4)],
        AutoresetMode.SAME_STEP: [0] * 4,
        AutoresetMode.DISABLED: [sum(step.ended[i] for step in steps) for i in range(4)],
    }[mode]
    total = 0.0
    for i in range(4):
        spans = file.spans(2 + i)
        kinds = [kind for *_, kind in spans]
        assert (kinds.count("simulate"), kinds.count("reset")) == (
            file.count(2 + i, "env_steps"),
            1 + resets_each[i],
        )
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
        for kind in ("simulate", "reset"):
            seconds = sum(end - begin for begin, end, of in spans if of == kind)
            assert file.seconds(2 + i, kind) == pytest.approx(seconds)
        ours = mode == AutoresetMode.DISABLED  # what passes before a reset is no wait for an action
        gaps = sum(b[0] - a[1] for a, b in itertools.pairwise(spans) if not ours or b[2] == "simulate")
        late = took if ours else 0.0  # the others may be reset after its last span
        assert gaps - 1e-9 <= file.seconds(2 + i, "wait:inference") <= gaps + late + 1e-9
        assert file.seconds(2 + i, "step_s_squared") <= file.seconds(2 + i, "step_s") ** 2
        assert file.cpu_seconds(2 + i, "wait:inference") == (0.125, 0.0)
        assert file.cpu_seconds(2 + i, "simulate") == (1.0, 0.0)
        total += file.seconds(2 + i, "step_s") + file.seconds(2 + i, "reset_s")
    calls = {span for i in range(4) for span in ((begin, end) for begin, end, _ in file.spans(2 + i))}
    assert total == pytest.approx(sum(end - begin for begin, end in calls))
    assert total < took
