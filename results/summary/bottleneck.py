"""Which stage bounds a system, from where the time of its ranks went.

A rank that does one thing after the other has one timeline: what takes most of it bounds the run. Where collecting and
learning go on side by side a rank has two, the learner's and the sampler's. If the learner hardly ever waits for
experience, its own timeline says what bounds the run; if it does wait, the sampler's says it, in which the time that
the sampler is held up is what the learner spends with other ranks, as far as it spends any.

With one learner for all ranks, the others only wait for its iterations to end: their timelines are left out. Where the
policy acts in the environment workers, waiting for them is waiting for simulators and for inference, in the shares in
which the environments' own time went.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

STAGES = {
    "simulator": ("simulate", "reset"),
    "inference": ("infer",),
    "learner": ("learn", "wait:learner"),
    "communication": ("communicate",),
    "stragglers": ("wait:straggler",),
}
"""Spans that show that a stage bounds a rank that does one thing after the other."""
WHAT = {
    "simulator": "waiting for environments",
    "inference": "inferring actions",
    "learner": "learning",
    "communication": "communicating with other ranks",
    "stragglers": "waiting for slower ranks",
}
NAMES = {"simulator": "the simulator", "learner": "the learner"}
"""Of stages that are not called by their names alone."""
CONCURRENT = frozenset({"OneAhead", "Continuous"})
"""Overlaps in which a rank has two timelines; `wait:rollout` says so of systems that do not tell."""
STARVED = 0.1
"""A learner that waits for experience for more than this share of its time is bound by the sampler."""

Shares = Mapping[str, float]


class Bottleneck(BaseModel):
    """What bounds a run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    stage: str
    """One of `STAGES`."""
    share: float
    """Of the time of the ranks, or of the thread that the sentence names, that shows it."""
    sentence: str


def find_bottleneck(
    time_shares: Shares,
    env_time_shares: Shares | None = None,
    *,
    system: Mapping[str, Any] | None = None,
    gpus: int = 1,
) -> Bottleneck | None:
    """The stage that takes most of the time that counts; None where most of it is in no stage, or none was metered.

    Args:
        time_shares: of the ranks' timelines, by span, from 0 to 1; see `results.records.schema.Figures`.
        env_time_shares: of the environments' time.
        system: the system as a run's configuration has it; its choices say which timelines there are.
        gpus: ranks.
    """
    concurrent = _kind(system, "overlap") in CONCURRENT or "wait:rollout" in time_shares
    num_timelines = 2 if concurrent else 1
    num_idle = gpus - 1 if _kind(system, "average") == "Central" else 0
    # Of the timelines of ranks that work: those of the others are all waiting for the learner.
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
    """Which variant of a choice a system has; None where it does not tell."""
    chosen = (system or {}).get(choice)
    kind = chosen.get("kind") if isinstance(chosen, dict) else None
    return kind if isinstance(kind, str) else None


def _split_waiting(shares: Shares, of_envs: Shares) -> dict[str, float]:
    """Of the time in which workers are waited for that act themselves, the share of inference is inference."""
    waiting, total = of_envs.get("wait:inference", 0.0), sum(of_envs.values())
    inferring = shares.get("simulate", 0.0) * waiting / total if total else 0.0
    return {
        **shares,
        "simulate": shares.get("simulate", 0.0) - inferring,
        "infer": shares.get("infer", 0.0) + inferring,
    }


def _of_two_timelines(shares: Shares, *, in_workers: bool) -> Bottleneck | None:
    """From shares of a learner's, or of its sampler's, own time."""
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
    sentence = f"bound by {NAMES.get(stage, stage)}: {what} takes {_percent(share)} of {whose}{said}"
    return Bottleneck(stage=stage, share=share, sentence=sentence)


def _percent(share: float) -> str:
    return "less than 1%" if share < 0.005 else f"{100 * share:.0f}%"
