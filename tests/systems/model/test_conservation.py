from __future__ import annotations

import re

import numpy as np
import pytest

from rlbench.harness.contract.budget import Limits
from rlbench.harness.contract.prediction import Prediction
from rlbench.systems.choices.average import Central
from tests.systems.model.mixes import COVERED, POSSIBLE, Mix, is_covered, name_of
from tests.systems.model.runs import load, predicted, scenario_of

NOT_COVERED = [mix for mix in POSSIBLE if not is_covered(mix)]


def assert_conserved(system: str, num_ranks: int, prediction: Prediction) -> None:
    """Every env step is learned, discarded or in flight: in all, and where each rank learns its own, of each rank."""
    steps = prediction.of_envs["env_steps"].sum(1).astype(np.int64)
    accounted = sum(prediction.of_ranks[name] for name in ("learned", "discarded", "in_flight"))
    assert steps.sum() == accounted.sum()  # type: ignore[union-attr]  # there are three
    assert (steps > 0).all()
    if not isinstance(load(system).average, Central):
        assert (steps == accounted).all()
    of_envs = np.concatenate([[*fates.totals, fates.in_flight] for fates in prediction.fates], axis=1)
    assert (of_envs.sum(0) == prediction.of_envs["env_steps"].ravel()).all()
    assert of_envs.sum(1).tolist() == [
        prediction.of_ranks[name].sum() for name in ("learned", "discarded", "in_flight")
    ]
    for name in ("learned", "reused", "discarded", "lag_sum"):
        of_rows = [sum(row[name] for row in prediction.rows if row["rank"] == rank) for rank in range(num_ranks)]
        assert of_rows == prediction.of_ranks[name].tolist()


def assert_reused(system: str, prediction: Prediction) -> None:
    """Every sample is learned in all epochs; a rank that fills with stale ones has as many samples every time.

    Of its first rollout nothing is left to fill with.
    """
    loaded = load(system)
    scenario = loaded.check(scenario_of())
    target = loaded.rollout.target(scenario.num_envs, loaded.rollout.steps(scenario.rollout_steps))
    fills = getattr(loaded.preempt, "fill_stale", False)
    for row in prediction.rows:
        if not fills:
            assert row["reused"] == (scenario.learn.epochs - 1) * row["learned"]
        elif row["iteration"] > 0:
            assert row["reused"] == scenario.learn.epochs * target - row["learned"]


def assert_time_is_spent(system: str, prediction: Prediction) -> None:
    """The spans of each timeline sum to the time of every iteration, and no GPU is busy for longer than that."""
    ended: dict[int, float] = {}
    for row in prediction.rows:
        took = row["end_s"] - row["begin_s"]
        assert row["begin_s"] == pytest.approx(ended.get(row["rank"], 0.0), abs=1e-9)
        ended[row["rank"]] = row["end_s"]
        lanes = ["span/", "sampler/"] if "sampler/other" in row else ["span/"]
        assert (len(lanes) == 2) == load(system).overlap.is_concurrent or row["rank"] > 0
        for lane in lanes:
            spans = {name: row[name] for name in row if name.startswith(lane)}
            assert min(spans.values()) > -1e-9, spans
            assert sum(spans.values()) == pytest.approx(took, abs=1e-6), spans
    for rank, end_s in ended.items():
        # What is reserved counts when it is reserved: at most an inference, or a mini-batch, is still to be done.
        assert sum(row["gpu_busy_s"] for row in prediction.rows if row["rank"] == rank) <= end_s + 0.1


@pytest.mark.parametrize("num_ranks", [1, 3])
@pytest.mark.parametrize("mix", COVERED, ids=":".join)
def test_every_mix_keeps_count(mix: Mix, num_ranks: int) -> None:
    """Of every mix of choices that the model covers: steps, samples and seconds are all accounted for."""
    system = name_of(mix)
    prediction = predicted(system, num_ranks)
    assert {row["rank"] for row in prediction.rows} == set(range(num_ranks))
    assert_conserved(system, num_ranks, prediction)
    assert_reused(system, prediction)
    assert_time_is_spent(system, prediction)


@pytest.mark.parametrize("system", ["sync", "ddppo", "nover", "ver", "htsrl", "gossip", "easgd", "downpour", "appo"])
def test_every_system_keeps_count(system: str) -> None:
    """The systems as they come, heterogeneous, on four ranks."""
    prediction = predicted(system, 4, scenario=scenario_of(workload="heterogeneous"), limits=Limits(iterations=5))
    assert_conserved(system, 4, prediction)
    assert_time_is_spent(system, prediction)


def test_as_many_iterations_as_the_limit_says() -> None:
    """Every iteration of every rank is a row, in order, and none is left out."""
    prediction = predicted("ver", 3, limits=Limits(iterations=6))
    assert [(row["rank"], row["iteration"]) for row in prediction.rows] == [
        (rank, iteration) for rank in range(3) for iteration in range(6)
    ]


def test_episodes_are_those_of_the_draws() -> None:
    """An environment's episodes and steps are what its draws say, whichever system plays them."""
    prediction = predicted("ver", 2)
    scenario = load("ver").check(scenario_of())
    times = scenario.times([int(seed) for seed in np.random.SeedSequence([0, 1]).generate_state(6)[2:]])  # type: ignore[attr-defined]
    _, ends = times.draw(range(4))
    for env, (steps, episodes) in enumerate(
        zip(prediction.of_envs["env_steps"][1], prediction.of_envs["episodes"][1], strict=True)
    ):
        assert 0 < steps <= ends.shape[1]
        assert episodes == ends[env, : int(steps)].sum()


@pytest.mark.parametrize("mix", NOT_COVERED[::5], ids=":".join)
def test_what_is_not_covered_is_refused(mix: Mix) -> None:
    """A mix that works but has no model is refused in one line that names the mixes that have one."""
    with pytest.raises(ValueError, match=r"^predict: sync on emulated/open-fridge: the model has ") as refused:
        predicted(name_of(mix))
    message = str(refused.value)
    assert "\n" not in message
    named = dict(re.findall(r"(\w+)=(\w+)", message))
    assert named in (
        {"rollout": "trajectories", "overlap": "continuous"},
        {"overlap": "oneahead", "preempt": "never"},
    )


def test_both_kinds_of_refusal_happen() -> None:
    """There are mixes for each reason: neither is said in vain."""
    assert len(COVERED) + len(NOT_COVERED) == len(POSSIBLE)
    assert len(COVERED) == 133
    overlaps = {mix[2] for mix in NOT_COVERED}
    assert overlaps == {"alternate", "oneahead"}
