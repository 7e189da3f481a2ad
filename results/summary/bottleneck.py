"""Finds the stage that bounds a system: by what more of it would give, where a run's record says that.

The record of a predicted run has it from the model, that of a measured run from the chain of its spans. Where spans are
missing, as those of most libraries are, the stage is found from shares of time, and the sentence says so.

A rank that does one thing after another has one timeline: the stage that takes most of it bounds the run. A rank that
collects and learns concurrently has two timelines, the learner's and the sampler's. If the learner hardly ever waits
for experience, its timeline shows the bottleneck. Otherwise the sampler's does; there, the time for which the sampler
waits for the learner counts as waiting for other ranks, as far as the learner spends time on them.

With one learner for all ranks, the other ranks only wait for its iterations to end: their timelines are left out. Where
environment workers run the policy, waiting for them is waiting for the simulator and for inference, in proportion to
the shares of the environments' time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from rlbench.results.records.units import StepUnit, rate

STAGES = {
    "simulator": ("simulate", "reset"),
    "inference": ("infer",),
    "scheduling": ("schedule",),
    "learner": ("learn", "wait:learner"),
    "communication": ("communicate",),
    "stragglers": ("wait:straggler",),
}
"""For each stage, the spans that count for it on a rank that does one thing after another."""
WHAT = {
    "simulator": "waiting for environments",
    "inference": "inferring actions",
    "scheduling": "choosing who acts, sending actions and filing replies",
    "learner": "learning",
    "communication": "communicating with other ranks",
    "stragglers": "waiting for slower ranks",
}
NAMES = {"simulator": "the simulator", "learner": "the learner"}
"""Names of stages in a sentence, where they take an article."""
CONCURRENT = frozenset({"OneAhead", "Continuous"})
"""Overlaps with two timelines per rank; spans of `wait:rollout` show the same for systems that name no overlap."""
STARVED = 0.1
"""A learner that waits for experience for more than this share of its time is bound by the sampler."""

LEAST_GAIN = 1.01
"""Where 10 % more of a stage gives less, no single stage bounds the run."""
CLOSE = 0.5
"""A second stage is named where it would give at least this share of what the first would."""

Shares = Mapping[str, float]


class Bottleneck(BaseModel):
    """The stage that bounds a run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    stage: str
    """One of `STAGES`."""
    share: float
    """The share of 10 % more of the stage that comes out as samples/s; by shares of time, that of the ranks' time, or
    of that of the thread that the sentence names."""
    sentence: str


def what_would_help(gains: Mapping[str, float], *, predicted: bool, unit: StepUnit = "env steps") -> Bottleneck | None:
    """The stage of which 10 % more would help the most; None if no stage would help.

    Args:
        gains: how many times as many samples/s that would give, by stage; see `results.records.schema.Figures`.
        predicted: whether a model says so; else the chain of a run's spans does.
        unit: what the samples are.
    """
    stage = max(gains, key=gains.__getitem__, default=None)
    if stage not in STAGES or gains[stage] < LEAST_GAIN:
        return None
    gain = gains[stage] - 1
    by = "the model" if predicted else "the chain of its spans"
    what = f"10% faster, it would give {100 * gain:.1f}% more {rate(unit)}{_runner_up(gains, stage)}, by {by}"
    sentence = f"bound by {NAMES.get(stage, stage)}: {what}"
    return Bottleneck(stage=stage, share=min(1.0, gain / 0.1), sentence=sentence)


def _runner_up(gains: Mapping[str, float], first: str) -> str:
    """What the second stage would give, where that is not far less: then no stage bounds the run by itself."""
    others = {stage: gain - 1 for stage, gain in gains.items() if stage in STAGES and stage != first}
    second = max(others, key=others.__getitem__, default=None)
    if second is None or others[second] < CLOSE * (gains[first] - 1):
        return ""
    return f" ({NAMES.get(second, second)}: {100 * others[second]:.1f}%)"


def find_bottleneck(
    time_shares: Shares,
    env_time_shares: Shares | None = None,
    *,
    system: Mapping[str, Any] | None = None,
    gpus: int = 1,
) -> Bottleneck | None:
    """The stage that takes most of the time that counts; None if no stage took time, or `other` took more than each.

    Args:
        time_shares: shares of the ranks' timelines, by span, from 0 to 1; see `results.records.schema.Figures`.
        env_time_shares: shares of the environments' time.
        system: the system in the run's configuration; its choices say which timelines there are.
        gpus: number of ranks.
    """
    concurrent = _kind(system, "overlap") in CONCURRENT or "wait:rollout" in time_shares
    num_timelines = 2 if concurrent else 1
    num_idle = gpus - 1 if _kind(system, "average") == "Central" else 0
    # Shares of the timelines of the ranks that work; the other timelines consist of waiting for the learner.
    shares = {span: share * (num_timelines + num_idle) / num_timelines for span, share in time_shares.items()}
    shares["wait:learner"] = max(0.0, shares.get("wait:learner", 0.0) - num_idle / num_timelines)
    in_workers = _kind(system, "collect") == "ActorSide"
    if in_workers:
        shares = _split_waiting(shares, env_time_shares or {})
    if concurrent:
        return _of_two_timelines({span: min(1.0, 2 * share) for span, share in shares.items()}, in_workers=in_workers)
    stages = {stage: sum(shares.get(span, 0.0) for span in spans) for stage, spans in STAGES.items()}
    if max(stages.values()) < shares.get("other", 0.0):
        return None
    return _largest(stages, "the rank's time" if gpus == 1 else "the ranks' time", in_workers=in_workers)


def _kind(system: Mapping[str, Any] | None, choice: str) -> str | None:
    """The variant of a choice that a system has; None if its configuration does not say."""
    chosen = (system or {}).get(choice)
    kind = chosen.get("kind") if isinstance(chosen, dict) else None
    return kind if isinstance(kind, str) else None


def _split_waiting(shares: Shares, of_envs: Shares) -> dict[str, float]:
    """Splits the time spent waiting for workers that run the policy into simulating and inferring."""
    waiting, total = of_envs.get("wait:inference", 0.0), sum(of_envs.values())
    inferring = shares.get("simulate", 0.0) * waiting / total if total else 0.0
    return {
        **shares,
        "simulate": shares.get("simulate", 0.0) - inferring,
        "infer": shares.get("infer", 0.0) + inferring,
    }


def _of_two_timelines(shares: Shares, *, in_workers: bool) -> Bottleneck | None:
    """The bottleneck of ranks with two timelines; shares are of the learner's time, or of the sampler's."""
    hungry = shares.get("wait:rollout", 0.0)
    stragglers, communication = shares.get("wait:straggler", 0.0), shares.get("communicate", 0.0)
    if hungry <= STARVED:
        stages = {"learner": shares.get("learn", 0.0), "communication": communication, "stragglers": stragglers}
        said = f", and it waits for experience for {_percent(hungry)} of it"
        return _largest(stages, "the learner's time", said)
    held_up = shares["wait:learner"]
    stragglers = min(stragglers, held_up)
    communication = min(communication, held_up - stragglers)
    stages = {
        "simulator": shares.get("simulate", 0.0) + shares.get("reset", 0.0),
        "inference": shares.get("infer", 0.0),
        "scheduling": shares.get("schedule", 0.0),
        "learner": held_up - stragglers - communication,
        "communication": communication,
        "stragglers": stragglers,
    }
    said = f", while the learner waits for experience for {_percent(hungry)} of its own"
    return _largest(stages, "the sampler's time", said, in_workers=in_workers, of_sampler=True)


def _largest(
    stages: Shares, whose: str, said: str = "", *, in_workers: bool = False, of_sampler: bool = False
) -> Bottleneck | None:
    stage = max(stages, key=stages.__getitem__)
    share = stages[stage]
    if not share:
        return None
    what = WHAT[stage]
    if stage == "inference" and in_workers:
        what += " in the environment workers"
    elif stage == "learner" and of_sampler:
        what = "waiting for the learner"
    sentence = f"bound by {NAMES.get(stage, stage)}, by shares of time: {what} takes {_percent(share)} of {whose}{said}"
    return Bottleneck(stage=stage, share=share, sentence=sentence)


def _percent(share: float) -> str:
    return "less than 1%" if share < 0.005 else f"{100 * share:.0f}%"
