from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbench.harness.metering import meter_file
from rlbench.harness.metering.meter_file import SPANS
from rlbench.harness.timelines import timelines
from rlbench.harness.timelines.chain import OWN, SECOND, STAGES, Chain, Wait, gains
from rlbench.harness.timelines.timelines import Spans

Row = dict[str, Any]
WORK = 10.0
"""Seconds between the moments of most tests."""


def lane(rank: int, environment: int, *pieces: tuple[str, float, float]) -> Iterator[Row]:
    """Spans of a thread or an environment: kind, begin, end."""
    for kind, begin, end in pieces:
        yield {"rank": rank, "environment": environment, "begin_s": float(begin), "end_s": float(end), "kind": kind}


def steps(rank: int, environment: int, *ends: tuple[float, float]) -> Iterator[Row]:
    """Steps of an environment: begin, end."""
    return lane(rank, environment, *(("simulate", *each) for each in ends))


def table(*lanes: Iterator[Row]) -> Spans:
    """All of them."""
    return Spans.of([row for each in lanes for row in each])


def found(spans: Spans, moments: Mapping[int, Sequence[float]] | None = None, **said: Any) -> dict[str, float]:
    """The gains; of one iteration of rank 0 from 0 to `WORK` unless told otherwise."""
    return gains(spans, moments or {0: (0.0, WORK)}, **said)


def expected(whole_s: float = WORK, **on_the_chain: float) -> Any:
    """The gains where stages have so many seconds of the chain: those seconds become shorter by a factor of 1.1."""
    assert on_the_chain.keys() <= {*STAGES, "other"}
    assert sum(on_the_chain.values()) == pytest.approx(whole_s)
    return pytest.approx({stage: whole_s / (whole_s - on_the_chain.get(stage, 0.0) / 11) for stage in STAGES})


def test_a_slow_rank_is_what_the_others_wait_for() -> None:
    """By hand: rank 0 waits 3 of 10 s for rank 1, whose environment takes 5 s where that of rank 0 takes 2 s."""
    learning = ("learn", 6.5, 9.5), ("communicate", 9.5, 10)
    spans = table(
        lane(0, OWN, ("infer", 0, 1), ("simulate", 1, 3), ("wait:straggler", 3, 6.5), *learning),
        steps(0, 0, (1, 3)),
        lane(1, OWN, ("infer", 0, 1), ("simulate", 1, 6), ("wait:straggler", 6, 6.5), *learning),
        steps(1, 0, (1, 6)),
    )
    both = {0: (0.0, WORK), 1: (0.0, WORK)}
    assert found(spans, both) == expected(simulator=5, inference=1, learner=3, communication=1)


def test_the_rank_that_comes_last_to_an_all_reduce_holds_it_up() -> None:
    """By hand: rank 1 comes last to the first one, rank 0 to the second; each takes 1 s from then on."""
    spans = table(
        lane(0, OWN, ("learn", 0, 3), ("communicate", 3, 5), ("learn", 5, 9), ("communicate", 9, 10)),
        lane(1, OWN, ("learn", 0, 4), ("communicate", 4, 5), ("learn", 5, 7), ("communicate", 7, 10)),
    )
    both = {0: (0.0, WORK), 1: (0.0, WORK)}
    assert found(spans, both) == expected(learner=8, communication=2)
    assert found(spans, both, in_step=False) == expected(2 * WORK, learner=3 + 4 + 4 + 2, communication=3 + 4)


def test_ranks_that_meet_at_no_time_at_all() -> None:
    """On a clock that does not move while ranks talk, the last one has meetings without length, one after the other."""
    spans = table(
        lane(0, OWN, ("learn", 0, 4), ("communicate", 4, 10), ("communicate", 10, 10)),
        lane(1, OWN, ("learn", 0, 10), ("communicate", 10, 10), ("communicate", 10, 10)),
        lane(2, OWN, ("learn", 0, 9), ("communicate", 9, 10), ("communicate", 10, 10)),
    )
    assert found(spans, dict.fromkeys(range(3), (0.0, WORK))) == expected(learner=10)


def test_the_slowest_environment_ends_a_wait() -> None:
    """By hand: of two environments the second replies last, after 5 s; its reply and its action take 0.5 s each."""
    spans = table(
        lane(0, OWN, ("infer", 0, 1), ("simulate", 1, 7), ("learn", 7, 10)),
        steps(0, 0, (1.2, 3)),
        steps(0, 1, (1.5, 6.5)),
    )
    assert found(spans) == expected(simulator=5, inference=1, scheduling=1, learner=3)


def test_a_reset_belongs_to_its_step() -> None:
    """By hand: the environment steps for 3 s, then resets for 2 s before it replies."""
    spans = table(
        lane(0, OWN, ("infer", 0, 1), ("simulate", 1, 6), ("learn", 6, 10)),
        lane(0, 0, ("simulate", 1, 4), ("reset", 4, 6)),
    )
    assert found(spans) == expected(simulator=5, inference=1, learner=4)


def test_a_wait_that_no_reply_ends_is_the_simulators() -> None:
    """The spans of environments may be missing."""
    spans = table(lane(0, OWN, ("infer", 0, 1), ("simulate", 1, 8), ("learn", 8, 10)))
    assert found(spans) == expected(simulator=7, inference=1, learner=2)


SAMPLING = ("infer", 0, 1), ("simulate", 1, 4), ("infer", 4, 5), ("simulate", 5, 8), ("infer", 8, 9)
STEPS = (1.0, 4.0), (5.0, 8.0)


def test_a_starved_learner_waits_for_the_sampler() -> None:
    """By hand: the last batch is there at 8 s, when the sampler has inferred twice and waited for two steps of 3 s."""
    spans = table(
        lane(0, OWN, ("wait:rollout", 0, 3), ("learn", 3, 4), ("wait:rollout", 4, 8), ("learn", 8, 10)),
        lane(0, SECOND, *SAMPLING),
        steps(0, 0, *STEPS),
    )
    assert found(spans) == expected(simulator=6, inference=2, learner=2)


def test_a_learner_that_hardly_waits_is_the_next_to_bound_it() -> None:
    """By hand: the chain has 8 s of the sampler, but the learner works 9.8 of 10 s: no more than 2 % can be won."""
    spans = table(
        lane(0, OWN, ("learn", 0, 3.9), ("wait:rollout", 3.9, 4), ("learn", 4, 7.9), ("wait:rollout", 7.9, 8)),
        lane(0, OWN, ("learn", 8, 10)),
        lane(0, SECOND, *SAMPLING),
        steps(0, 0, *STEPS),
    )
    won = found(spans)
    assert won["simulator"] == pytest.approx(10 / 9.8)
    assert won["inference"] == pytest.approx(10 / (10 - 2 / 11))
    assert won["learner"] == pytest.approx(10 / (10 - 2 / 11))


def test_a_starved_sampler_is_not_on_the_chain() -> None:
    """By hand: the learner never waits; what the sampler does, or waits for, helps nobody."""
    spans = table(
        lane(0, OWN, ("learn", 0, 4), ("schedule", 4, 4.5), ("learn", 4.5, 10)),
        lane(0, SECOND, ("infer", 0, 1), ("wait:learner", 1, 4), ("infer", 4, 5), ("wait:learner", 5, 10)),
    )
    assert found(spans) == expected(learner=9.5, scheduling=0.5)


def test_threads_that_wait_for_each_other_in_turn() -> None:
    """By hand: the sampler begins when the learner has learned for 2 s, and the learner waits for its 5 s of work.

    The sampler waits again before the learner has noticed, which takes 0.5 s.
    """
    spans = table(
        lane(0, OWN, ("learn", 0, 3), ("wait:rollout", 3, 7.5), ("learn", 7.5, 10)),
        lane(0, SECOND, ("wait:learner", -1, 2), ("infer", 2, 7), ("wait:learner", 7, 11)),
    )
    assert found(spans) == expected(learner=2.5 + 2, inference=5, other=0.5)


def test_a_rank_with_one_thread_waits_for_no_other() -> None:
    """What it has waited for has no span: the time is `other`."""
    spans = table(
        lane(0, OWN, ("infer", 0, 4), ("wait:learner", 4, 5), ("wait:rollout", 5, 6), ("learn", 6, 10)),
    )
    assert found(spans) == expected(inference=4, learner=4, other=2)


@st.composite
def _runs(draw: st.DrawFn) -> tuple[Spans, dict[int, list[float]]]:
    """Spans and moments on a coarse grid, so that many coincide, in lanes of up to three ranks."""
    moments, lanes = {}, []
    for rank in range(draw(st.integers(1, 3))):
        moments[rank] = sorted(map(float, draw(st.sets(st.integers(0, 14), min_size=2, max_size=4))))
        for environment in [OWN, SECOND, 0, 1, 2]:
            kinds = SPANS if environment < 0 else ("simulate", "reset")
            at, pieces = 0, []
            for kind, idle, length in draw(_PIECES):
                begin, at = at + idle, at + idle + length
                pieces.append((kinds[kind % len(kinds)], begin, at))
            lanes.append(lane(rank, environment, *pieces))
    return table(*lanes), moments


_PIECES = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 1), st.integers(0, 3)), max_size=8)


@given(run=_runs(), in_step=st.booleans())
@settings(max_examples=200, deadline=None, derandomize=True)
def test_a_walk_through_any_spans_ends(run: tuple[Spans, dict[int, list[float]]], *, in_step: bool) -> None:
    """Each step goes back in time, or to where the walk has not been at that moment: no gain is below 1."""
    spans, moments = run
    assert all(gain >= 1 for gain in gains(spans, moments, in_step=in_step).values())


def test_a_worker_steps_its_environments_in_turn() -> None:
    """By hand: environments 0 and 1 share a worker, so the step of 1 begins when that of 0 is over, at 4 s.

    An inference for 2 and 3, which share another worker, has ended just before; it is not what 1 has waited for.
    """
    spans = table(
        lane(0, OWN, ("infer", 0, 1), ("simulate", 1, 2), ("infer", 2, 3), ("simulate", 3, 8), ("learn", 8, 10)),
        steps(0, 0, (1, 4)),
        steps(0, 1, (4, 8)),
        steps(0, 2, (1, 2)),
        steps(0, 3, (3, 7)),
    )
    assert found(spans) == expected(simulator=7, inference=1, learner=2)


def test_environments_that_act_for_themselves_infer_between_steps() -> None:
    """By hand: three steps of 2 s with 1 s between them; the first of them follows the learning before."""
    spans = table(
        lane(0, OWN, ("learn", -1, 0), ("schedule", 0, 0.5), ("simulate", 0.5, 8.5), ("learn", 8.5, 10)),
        steps(0, 0, (-5, -2), (0.5, 2.5), (3.5, 5.5), (6.5, 8.5)),
    )
    assert found(spans) == expected(simulator=6, inference=2, scheduling=0.5, learner=1.5)


def test_an_environment_waits_for_whoever_is_inferred_for_before() -> None:
    """By hand: the second environment replies at 3 s, when the thread infers for the first until 4 s.

    In the next inference it is one of those acted for. From 3 to 7 s it waits for inference, which would have been
    there sooner if either were shorter; what the thread waited for at 2 s is nothing to it.
    """
    spans = table(
        lane(0, OWN, ("infer", 0, 1), ("simulate", 1, 2), ("infer", 2, 4), ("infer", 4, 7), ("simulate", 7, 9)),
        lane(0, OWN, ("learn", 9, 10)),
        steps(0, 0, (1, 2)),
        steps(0, 1, (1, 3), (7, 9)),
    )
    assert found(spans) == expected(simulator=2 + 2, inference=1 + 4, learner=1)


def test_all_environments_make_up_a_rollout_that_leaves_some_stepping() -> None:
    """By hand: the wait ends with a step of the first, while the second steps on; each counts for half of the 8 s.

    The first steps for 1 + 3 s and waits for inference for 4, the second steps for 7 s. The third was done before the
    last inference, and nobody waits for it any more.
    """
    spans = table(
        lane(0, OWN, ("infer", 0, 1), ("simulate", 1, 2), ("infer", 2, 5), ("simulate", 5, 8), ("learn", 8, 10)),
        steps(0, 0, (1, 2), (5, 8)),
        steps(0, 1, (1, 9)),
        steps(0, 2, (1, 1.5)),
    )
    assert found(spans) == expected(simulator=4 / 2 + 7 / 2, inference=4 / 2 + 1 / 2, learner=2)


def test_one_learner_acts_for_the_environments_of_all() -> None:
    """By hand: the wait of rank 0 ends with a step of rank 1."""
    spans = table(
        lane(0, OWN, ("infer", 0, 1), ("simulate", 1, 6), ("learn", 6, 10)),
        steps(0, 0, (1, 3)),
        lane(1, OWN, ("wait:learner", 0, 10)),
        steps(1, 0, (1, 6)),
    )
    assert found(spans) == expected(simulator=5, inference=1, learner=4)


def test_iterations_count_whose_spans_are_all_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where as many spans are kept as there is room for, what was before the first of them is not known."""
    monkeypatch.setattr(timelines, "SPAN_CAPACITY", 4)
    own = lane(0, OWN, ("infer", 3, 6), ("learn", 6, 7), ("infer", 7, 9), ("learn", 9, 10))
    assert found(table(own), {0: (0.0, 5.0, 7.0, 10.0)}) == expected(5, inference=1 + 2, learner=1 + 1)
    own = lane(0, OWN, ("infer", 8, 8.5), ("infer", 8.5, 9), ("learn", 9, 9.5), ("learn", 9.5, 10))
    assert found(table(own), {0: (0.0, 5.0, 7.0, 10.0)}) == {}


def test_fewer_spans_are_kept_of_many_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are more than 64 environments, all are there since fewer spans of each."""
    monkeypatch.setattr(meter_file, "MOST_ENV_SPANS", 2 * 64)
    few, many = steps(0, 0, (3, 4), (5, 6)), steps(0, 127, (1, 2))
    assert table(few).kept_since_s == 3
    few = steps(0, 0, (3, 4))
    assert table(lane(0, OWN, ("infer", 0, 1)), few, many).kept_since_s == 3
    assert table(lane(0, OWN, ("infer", 0, 1)), steps(0, 0, (3, 4))).kept_since_s == -math.inf


@pytest.mark.parametrize(
    "pieces", [[("infer", 0.0, 10.0)], [("other", 0.0, 6.0), ("learn", 6.0, 10.0)], [("learn", 6.0, 10.0)]]
)
def test_spans_that_do_not_tell(pieces: list[tuple[str, float, float]]) -> None:
    """Without learning there is no chain; where most of it has no name, or no span, nothing is said of the rest."""
    assert found(table(lane(0, OWN, *pieces))) == {}
    assert found(table(steps(0, 0, (0, 10)))) == {}


def test_the_path_goes_from_wait_to_wait() -> None:
    """By hand: rank 0 waits for rank 1, which waits for its environment 1, which had waited for its first action."""
    spans = table(
        lane(0, OWN, ("infer", 0, 1), ("learn", 1, 5), ("communicate", 5, 9)),
        lane(1, OWN, ("infer", 0, 1), ("simulate", 1, 6), ("learn", 6, 8), ("communicate", 8, 8.5)),
        steps(1, 0, (1.5, 3)),
        steps(1, 1, (1.5, 5.5)),
    )
    assert list(Chain(spans, in_step=True).path(0, 9)) == [
        Wait(0, OWN, 9, for_rank=1, for_environment=OWN, done_s=8),
        Wait(1, OWN, 6, for_rank=1, for_environment=1, done_s=5.5),
        Wait(1, 1, 1.5, for_rank=1, for_environment=OWN, done_s=1),
    ]


def test_ranks_that_go_by_themselves_have_a_path_each() -> None:
    """Ranks that do not go in step never wait for each other."""
    spans = table(
        lane(0, OWN, ("simulate", 0, 5), ("learn", 5, 8), ("communicate", 8, 9)),
        lane(1, OWN, ("simulate", 0, 6), ("learn", 6, 9), ("communicate", 9, 10)),
        steps(0, 0, (0, 4)),
        steps(1, 0, (0, 3)),
    )
    assert list(Chain(spans, in_step=False).path(1, 10)) == [Wait(0, OWN, 5, 0, 0, 4), Wait(1, OWN, 6, 1, 0, 3)]


def test_a_path_ends_where_it_was_asked_to() -> None:
    """What was done before the earlier moment is not on it."""
    spans = table(lane(0, OWN, ("simulate", 0, 5), ("learn", 5, 8)), steps(0, 0, (0, 4)))
    assert list(Chain(spans, in_step=True).path(4.5, 8)) == []
    assert list(Chain(table(), in_step=True).path(0, 8)) == []


def test_each_wait_has_what_it_was_for() -> None:
    """By hand: waits for environments, for another rank, and of two threads for each other; others are not told."""
    spans = table(
        lane(0, OWN, ("wait:rollout", 0, 4), ("learn", 4, 6), ("communicate", 6, 9)),
        lane(0, SECOND, ("infer", 0, 1), ("simulate", 1, 4), ("wait:learner", 4, 6), ("infer", 6, 10)),
        steps(0, 0, (1.5, 2)),
        steps(0, 1, (1.5, 3.5)),
        lane(1, OWN, ("learn", 0, 8), ("communicate", 8, 9)),
    )
    chain = Chain(spans, in_step=True)
    waits = [
        Wait(0, OWN, 4, for_rank=0, for_environment=SECOND, done_s=4),
        Wait(0, SECOND, 4, for_rank=0, for_environment=1, done_s=3.5),
        Wait(0, SECOND, 6, for_rank=0, for_environment=OWN, done_s=6),
        Wait(0, OWN, 9, for_rank=1, for_environment=OWN, done_s=8),
    ]
    assert sorted(chain.waits(0, 10)) == sorted(waits)
    assert list(chain.waits(4, 6)) == [waits[2]]
