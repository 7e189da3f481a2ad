from __future__ import annotations

from typing import Any

import pytest

from rlbench.results.summary.bottleneck import STAGES, Bottleneck, find_bottleneck, what_would_help


def bound(shares: dict[str, float], **said: Any) -> Bottleneck:
    """What bounds a run; there is something."""
    found = find_bottleneck(shares, **said)
    assert found is not None
    assert found.stage in STAGES
    return found


def choices(**kinds: str) -> dict[str, Any]:
    """A system's configuration with these variants."""
    return {"name": "mine", **{choice: {"kind": kind} for choice, kind in kinds.items()}}


APPO = choices(collect="DoubleBuffered", overlap="Continuous", average="Central")
HTSRL = choices(collect="Dynamic", overlap="OneAhead", average="AllReduce")


@pytest.mark.parametrize(
    ("shares", "stage", "share", "sentence"),
    [
        (
            {"simulate": 0.4, "reset": 0.1, "infer": 0.45, "learn": 0.05},
            "simulator",
            0.5,
            "bound by the simulator, by shares of time: waiting for environments takes 50% of the ranks' time",
        ),
        (
            {"simulate": 0.2, "infer": 0.48, "learn": 0.2, "communicate": 0.12},
            "inference",
            0.48,
            "bound by inference, by shares of time: inferring actions takes 48% of the ranks' time",
        ),
        (
            {"simulate": 0.1, "infer": 0.25, "learn": 0.3, "wait:learner": 0.05, "other": 0.3},
            "learner",
            0.35,
            "bound by the learner, by shares of time: learning takes 35% of the ranks' time",
        ),
        (
            {"simulate": 0.2, "learn": 0.3, "communicate": 0.5},
            "communication",
            0.5,
            "bound by communication, by shares of time: communicating with other ranks takes 50% of the ranks' time",
        ),
        (
            {"simulate": 0.3, "learn": 0.1, "wait:straggler": 0.51, "communicate": 0.09},
            "stragglers",
            0.51,
            "bound by stragglers, by shares of time: waiting for slower ranks takes 51% of the ranks' time",
        ),
    ],
)
def test_what_takes_most_of_one_timeline_bounds_it(
    shares: dict[str, float], stage: str, share: float, sentence: str
) -> None:
    """Of a rank that does one thing after the other, the spans of a stage are summed, and the largest sum wins."""
    found = bound(shares, gpus=8)
    assert (found.stage, found.sentence) == (stage, sentence)
    assert found.share == pytest.approx(share)


def test_one_rank_is_not_called_several() -> None:
    """On one GPU there is one rank."""
    assert bound({"infer": 1.0}, gpus=1).sentence.endswith("100% of the rank's time")


def test_a_busy_learner_bounds_what_goes_on_beside_it() -> None:
    """By hand: the learner learns 90 of its 100 s, the sampler infers 40 of its 100 s and waits for the learner 60."""
    shares = {"learn": 0.45, "wait:rollout": 0.05, "infer": 0.2, "wait:learner": 0.3}
    found = bound(shares, system=choices(overlap="Continuous", average="AllReduce"), gpus=4)
    assert found.stage == "learner"
    assert found.share == pytest.approx(0.9)
    said = "learning takes 90% of the learner's time, and it waits for experience for 10% of it"
    assert found.sentence == f"bound by the learner, by shares of time: {said}"


def test_a_learner_that_never_waits_has_a_timeline_all_the_same() -> None:
    """Without a second of `wait:rollout` the system's overlap says that half of all time is the sampler's."""
    shares = {"learn": 0.3, "wait:straggler": 0.2, "infer": 0.5}
    found = bound(shares, system=HTSRL, gpus=4)
    assert found.stage == "learner"
    assert found.share == pytest.approx(0.6)
    assert found.sentence.endswith("it waits for experience for less than 1% of it")
    assert bound(shares, gpus=4).stage == "inference"  # all that is known is one timeline


@pytest.mark.parametrize(
    ("spans", "stage", "sentence"),
    [
        (
            {"infer": 0.7, "simulate": 0.3},
            "inference",
            "bound by inference, by shares of time: inferring actions takes 70% of the sampler's time",
        ),
        (
            {"infer": 0.3, "simulate": 0.7},
            "simulator",
            "bound by the simulator, by shares of time: waiting for environments takes 70% of the sampler's time",
        ),
        (
            {"infer": 0.3, "simulate": 0.1, "wait:learner": 0.6},
            "learner",
            "bound by the learner, by shares of time: waiting for the learner takes 60% of the sampler's time",
        ),
    ],
)
def test_what_a_hungry_learner_waits_for(spans: dict[str, float], stage: str, sentence: str) -> None:
    """The learner waits for 60 of its 100 s: the sampler's time, of which `spans` are shares, says what for."""
    shares = {"learn": 0.2, "wait:rollout": 0.3, **{span: share / 2 for span, share in spans.items()}}
    found = bound(shares, gpus=1)  # `wait:rollout` says that there are two timelines
    assert found.stage == stage
    assert found.sentence == f"{sentence}, while the learner waits for experience for 60% of its own"


def test_ranks_that_only_follow_the_one_learner_do_not_count() -> None:
    """By hand: on 2 GPUs there are 3 timelines; the sampler infers 90 of 100 s, the learner waits 60, rank 1 waits."""
    shares = {"infer": 0.9 / 3, "simulate": 0.1 / 3, "learn": 0.4 / 3, "wait:rollout": 0.6 / 3, "wait:learner": 1 / 3}
    found = bound(shares, system=APPO, gpus=2)
    assert found.stage == "inference"
    assert found.share == pytest.approx(0.9)
    assert "90% of the sampler's time, while the learner waits for experience for 60% of its own" in found.sentence


def test_the_one_learner_of_many_ranks_can_bound_them() -> None:
    """By hand: on 8 GPUs there are 9 timelines, of which 7 wait; the learner learns 99 of 100 s, the sampler infers."""
    shares = {"learn": 0.99 / 9, "wait:rollout": 0.01 / 9, "infer": 1 / 9, "wait:learner": 7 / 9}
    found = bound(shares, system=APPO, gpus=8)
    assert found.stage == "learner"
    assert found.share == pytest.approx(0.99)


def test_one_learner_that_alternates_has_one_timeline() -> None:
    """By hand: on 4 GPUs rank 0 simulates 60 of 100 s and learns 40; the other three wait for it all the time."""
    shares = {"simulate": 0.6 / 4, "learn": 0.4 / 4, "wait:learner": 3 / 4}
    found = bound(shares, system=choices(overlap="Alternate", average="Central"), gpus=4)
    assert found.stage == "simulator"
    assert found.share == pytest.approx(0.6)


def test_a_sampler_is_held_up_by_what_the_learner_spends_with_other_ranks() -> None:
    """By hand: of 60 s in which the sampler is held up, 45 s are for slower ranks, 10 s communication, 5 s learning."""
    shares = {
        "learn": 0.125,
        "wait:rollout": 0.1,
        "wait:straggler": 0.225,
        "communicate": 0.05,
        "infer": 0.2,
        "wait:learner": 0.3,
    }
    found = bound(shares, system=HTSRL, gpus=4)
    assert found.stage == "stragglers"
    assert found.share == pytest.approx(0.45)
    busier = shares | {"wait:straggler": 0.35, "wait:rollout": 0.06, "learn": 0.04}  # 70 s, of which 10 s beside work
    assert bound(busier, system=HTSRL, gpus=4).share == pytest.approx(0.6)
    assert bound(shares | {"wait:straggler": 0.025}, system=HTSRL, gpus=4).share == pytest.approx(0.6 - 0.05 - 0.1)


def test_waiting_for_workers_that_infer_is_split() -> None:
    """By hand: the rank waits for workers 80 of 100 s; their environments wait for actions 3 of 4 s, so 60 s infer."""
    system = choices(collect="ActorSide", overlap="Alternate", average="AllReduce")
    of_envs = {"simulate": 0.2, "reset": 0.05, "wait:inference": 0.75}
    found = bound({"simulate": 0.8, "learn": 0.2}, env_time_shares=of_envs, system=system, gpus=2)
    assert found.stage == "inference"
    assert found.share == pytest.approx(0.6)
    said = "inferring actions in the environment workers takes 60% of the ranks' time"
    assert found.sentence == f"bound by inference, by shares of time: {said}"
    assert bound({"simulate": 0.8, "learn": 0.2}, env_time_shares=of_envs, gpus=2).stage == "simulator"
    assert bound({"simulate": 0.8, "learn": 0.2}, system=system, gpus=2).stage == "simulator"  # nobody knows better


@pytest.mark.parametrize("shares", [{}, {"other": 1.0}, {"other": 0.6, "learn": 0.4}, {"learn": 0.0}])
def test_nothing_bounds_what_was_not_metered(shares: dict[str, float]) -> None:
    """Where most of the time is in no stage there is no sentence, rather than one about the rest."""
    assert find_bottleneck(shares, gpus=2) is None


@pytest.mark.parametrize(
    ("gains", "stage", "share", "said"),
    [
        (
            {"simulator": 1.019, "learner": 1.097},
            "learner",
            0.97,
            "bound by the learner: 10% faster, it would give 9.7% more steps/s",
        ),
        (
            {"simulator": 1.035, "communication": 1.025, "learner": 1.019},
            "simulator",
            0.35,
            "bound by the simulator: 10% faster, it would give 3.5% more steps/s (communication: 2.5%)",
        ),
        (
            {"communication": 1.05},
            "communication",
            0.5,
            "bound by communication: 10% faster, it would give 5.0% more steps/s",
        ),
        ({"inference": 1.2}, "inference", 1.0, "bound by inference: 10% faster, it would give 20.0% more steps/s"),
    ],
)
def test_what_helps_the_most_bounds_a_run(gains: dict[str, float], stage: str, share: float, said: str) -> None:
    """By what more of it would give; the share is what comes out of 10 % more, at most all. Who says so is named."""
    for predicted, who in ((True, "the model"), (False, "the chain of its spans")):
        found = what_would_help(gains, predicted=predicted)
        assert found is not None
        assert found.stage == stage
        assert found.share == pytest.approx(share)
        assert found.sentence == f"{said}, by {who}"


@pytest.mark.parametrize("gains", [{}, {"simulator": 1.009, "learner": 0.99}, {"theirs": 2.0}])
def test_what_helps_nothing_bounds_nothing(gains: dict[str, float]) -> None:
    """Nor does a stage that only somebody else's record names."""
    assert what_would_help(gains, predicted=False) is None
