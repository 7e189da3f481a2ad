from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rlbench.harness.contract.budget import Limits
from rlbench.harness.contract.traits import Traits
from rlbench.harness.machine.telemetry.readings import Readings
from rlbench.harness.metering.meter_file import KIND_OF, MAY_BE_UNREPORTED, SPANS, Block, MeterFile, meter_path
from rlbench.harness.plan.cells import Cell
from rlbench.harness.run.record import ReducedRun, measure

NUM_RANKS = 2


def make_series(
    folder: Path, rank: int, ends: Sequence[float], spent: dict[str, float], learned: int = 10, **further: float
) -> None:
    """Iterations of a rank that end at `ends` and all spend `spent` seconds, by column; all have `further` columns."""
    lanes = {name.partition("/")[0] for name in spent}
    columns = {f"{lane}/{kind}": spent.get(f"{lane}/{kind}", 0.0) for lane in lanes for kind in SPANS}
    rows = [
        {"rank": rank, "iteration": i, "begin_s": begin, "end_s": end, "learned": learned, **columns, **further}
        for i, (begin, end) in enumerate(zip([0.0, *ends[:-1]], ends, strict=True))
    ]
    pd.DataFrame(rows).to_json(folder / f"series-rank{rank}.jsonl", orient="records", lines=True)


def make_meter(folder: Path, rank: int, *, env_steps: int, learned: int, **counts: int) -> MeterFile:
    """The meter of a rank with one environment."""
    file = MeterFile.create(meter_path(folder, rank), num_envs=1)
    env = Block(file, 1)
    env.set("env_steps", env_steps)
    env.floats[env.word("step_s")] = 0.1 * env_steps
    for name, count in {"learned": learned, **counts}.items():
        Block(file, 0).set(name, count)
    return file


def measured(
    folder: Path, traits: Traits | None = None, lost: Sequence[int] = (), agents_per_env: int = 1
) -> ReducedRun:
    """What the record of the run in `folder` would hold; its window is the second half."""
    cell = Cell(
        system="sync",
        scenario="pointnav",
        workload="homogeneous",
        gpus=NUM_RANKS,
        seed=0,
        device="cpu",
        protocol="ddppo",
        limits=Limits(iterations=4),
        stall_s=60,
        time_limit_s=600,
    )
    telemetry = Readings([], 0)
    return measure(folder, cell, 1.0, telemetry, traits or Traits(), lost, agents_per_env=agents_per_env)


def test_both_timelines_of_a_rank_count(tmp_path: Path) -> None:
    """By hand: of 3 timelines x 2 s, the learner learns 1, the sampler infers 1.5 and waits 0.5, rank 1 learns 2."""
    two = {"span/learn": 0.5, "span/wait:rollout": 0.5, "sampler/infer": 0.75, "sampler/wait:learner": 0.25}
    make_series(tmp_path, 0, [1, 2, 3, 4], two)
    make_series(tmp_path, 1, [1, 2, 3, 4], {"span/learn": 1.0})
    for rank in range(NUM_RANKS):
        make_meter(tmp_path, rank, env_steps=40, learned=40)
    assert measured(tmp_path).figures.time_shares == pytest.approx(
        {"learn": 3 / 6, "wait:rollout": 1 / 6, "infer": 1.5 / 6, "wait:learner": 0.5 / 6}
    )


def test_the_chain_of_the_spans_in_the_window_counts(tmp_path: Path) -> None:
    """By hand: of the window, from 2 to 4 s, rank 0 waits 0.8 s for rank 1, which infers longer; both learn for 1 s."""
    meters = {rank: make_meter(tmp_path, rank, env_steps=40, learned=40) for rank in range(NUM_RANKS)}
    for rank, inferred_s in enumerate((2.2, 3.0)):
        make_series(tmp_path, rank, [1, 2, 3, 4], {"span/learn": 0.5})
        own = Block(meters[rank], 0)
        for kind, begin, end in (("learn", 0, 2), ("infer", 2, inferred_s), ("wait:straggler", inferred_s, 3)):
            own.put_span(KIND_OF[kind], begin, end)
        own.put_span(KIND_OF["learn"], 3, 4)
    gains = measured(tmp_path).figures.gains
    assert gains.pop("inference") == gains.pop("learner") == pytest.approx(2 / (2 - 1 / 11))
    assert set(gains.values()) == {1.0}
    for meter in meters.values():
        meter.close()


def test_waiting_for_a_core_is_a_share_of_the_ranks_time(tmp_path: Path) -> None:
    """By hand: in a window of 2 s two ranks waited 0.2 s and 0.6 s; without the column of one it is not read."""
    for rank, waited_s in enumerate((0.1, 0.3)):
        make_series(tmp_path, rank, [1, 2, 3, 4], {"span/learn": 1.0}, core_wait_s=waited_s)
        make_meter(tmp_path, rank, env_steps=40, learned=40)
    assert measured(tmp_path).figures.core_wait.value == pytest.approx(0.8 / 4)
    make_series(tmp_path, 1, [1, 2, 3, 4], {"span/learn": 1.0})
    reading = measured(tmp_path).figures.core_wait
    assert (reading.value, reading.source.startswith("not read: ")) == (None, True)


def test_where_ranks_drift_shares_are_cut_by_time(tmp_path: Path) -> None:
    """By hand: the window is 4 s to 8 s; the 6 s iteration of rank 1 that began at 1 s lies in it by half."""
    make_series(tmp_path, 0, [2, 4, 6, 8], {"span/learn": 2.0})
    make_series(tmp_path, 1, [1, 7, 8, 9, 10], {"span/infer": 1.0})
    for rank, learned in ((0, 40), (1, 50)):
        make_meter(tmp_path, rank, env_steps=learned, learned=learned)
    figures = measured(tmp_path, Traits(in_step=False)).figures
    assert figures.window is not None
    assert (figures.window.begin_s, figures.window.end_s) == (4, 8)
    assert figures.time_shares == pytest.approx({"learn": 4 / 8, "infer": (0.5 + 1) / 8})
    assert figures.steps_per_s == pytest.approx((20 + 5 + 10) / 4)


def test_the_time_of_a_lost_rank_ends_with_it(tmp_path: Path) -> None:
    """By hand: of the window from 4 s to 8 s rank 1 has seen 1 s, so the ranks had 5 s together."""
    make_series(tmp_path, 0, [2, 4, 6, 8], {"span/learn": 2.0})
    make_series(tmp_path, 1, [4, 5], {"span/infer": 1.0})
    make_meter(tmp_path, 0, env_steps=40, learned=40)
    make_meter(tmp_path, 1, env_steps=27, learned=20, discarded=3)
    result = measured(tmp_path, Traits(in_step=False, survives_lost_rank=True), lost=[1])
    assert result.figures.time_shares == pytest.approx({"learn": 4 / 5, "infer": 1 / 5})
    assert (result.counters.discarded, result.lost_samples, result.problem) == (3 + 4, {1: 4}, None)


def test_only_lost_ranks_are_forgiven(tmp_path: Path) -> None:
    """Env steps that a rank which was not lost cannot account for still break conservation."""
    for rank in range(NUM_RANKS):
        make_series(tmp_path, rank, [1, 2, 3, 4], {"span/learn": 1.0})
        make_meter(tmp_path, rank, env_steps=41, learned=40)
    assert "conservation broken: 82 env steps collected" in str(measured(tmp_path).problem)
    assert "conservation broken: 82 env steps collected" in str(measured(tmp_path, lost=[1]).problem)
    assert measured(tmp_path, lost=[0, 1]).problem is not None  # nobody went on: there is no window


def test_a_lost_rank_that_had_not_begun_lost_nothing(tmp_path: Path) -> None:
    """A rank that was killed before it had a meter is no error."""
    make_series(tmp_path, 0, [1, 2, 3, 4], {"span/learn": 1.0})
    make_meter(tmp_path, 0, env_steps=40, learned=40)
    result = measured(tmp_path, Traits(survives_lost_rank=True), lost=[1])
    assert (result.problem, result.lost_samples) == (None, {1: 0})


def test_the_lane_is_environment_minus_2_of_the_spans(tmp_path: Path) -> None:
    """`spans.parquet` has the rank as -1, its second thread as -2, and environments from 0."""
    make_series(tmp_path, 0, [1], {"span/learn": 1.0})
    file = make_meter(tmp_path, 0, env_steps=10, learned=10)
    for index, kind in ((0, "learn"), (1, "simulate"), (file.lane_index, "infer")):
        Block(file, index).put_span(KIND_OF[kind], 0.0, 0.5)
    measured(tmp_path)
    spans = pd.read_parquet(tmp_path / "spans.parquet")
    assert dict(zip(spans["environment"], spans["kind"], strict=True)) == {-1: "learn", 0: "simulate", -2: "infer"}


def test_environments_say_where_their_time_went(tmp_path: Path) -> None:
    """The time between an answer and the next action is a share beside simulating and resetting."""
    make_series(tmp_path, 0, [1], {"span/learn": 1.0})
    block = Block(make_meter(tmp_path, 0, env_steps=10, learned=10), 1)
    spent: dict[str, Any] = {"simulate": 3.0, "reset": 1.0, "wait:inference": 4.0}
    for kind, seconds in spent.items():
        block.put_span(KIND_OF[kind], 0.0, seconds)
    assert measured(tmp_path).figures.env_time_shares == {kind: seconds / 8 for kind, seconds in spent.items()}


def test_cpu_time_is_a_share_of_the_spans(tmp_path: Path) -> None:
    """Of both timelines of all ranks; environments say it of their steps, and how much they used beside each."""
    for rank in range(NUM_RANKS):
        make_series(tmp_path, rank, [1], {"span/learn": 1.0})
        file = make_meter(tmp_path, rank, env_steps=10, learned=10)
        for index, kind, used_s in ((0, "learn", 1.0), (file.lane_index, "learn", 0.5), (0, "infer", 0.0)):
            Block(file, index).put_span(KIND_OF[kind], 0.0, 2.0)
            Block(file, index).add_cpu(KIND_OF[kind], used_s, 2.0)
        Block(file, 1).add_cpu(KIND_OF["simulate"], 0.25, 0.0)
        Block(file, 1).add_cpu(KIND_OF["wait:inference"], 0.02, 0.0)
    figures = measured(tmp_path).figures
    assert figures.cpu_shares == pytest.approx({"learn": 0.375})
    assert figures.env_cpu_share == pytest.approx(0.25)
    assert figures.env_answer_s == pytest.approx(0.002)


def test_what_no_rank_reports_is_none(tmp_path: Path) -> None:
    """A counter is summed where a rank reports it; where none does it is None, and rates are of env steps collected."""
    for rank in range(NUM_RANKS):
        make_series(tmp_path, rank, (1.0, 2.0, 3.0, 4.0), {"span/other": 1.0}, learned=0, env_steps=25, discarded=0)
        meter = make_meter(tmp_path, rank, env_steps=100, learned=0)
        unreported = [name for name in MAY_BE_UNREPORTED if rank or name != "reused"]
        Block(meter, 0).set("unreported", sum(1 << MAY_BE_UNREPORTED.index(name) for name in unreported))
    found = measured(tmp_path)
    assert found.problem is None
    assert (found.counters.env_steps, found.counters.learned, found.counters.reused) == (200, None, 0)
    assert (found.figures.steps_counted, found.figures.lag) == ("collected", None)
    assert found.figures.steps_per_s == pytest.approx(50)
    series = pd.read_parquet(tmp_path / "series.parquet")
    assert (set(series["learned"]), set(series["learned_is_collected"])) == ({25}, {True})
    assert "discarded" not in series


def test_steps_that_took_no_time_have_no_spread(tmp_path: Path) -> None:
    """An env step may be counted without a time, by a clock that stands still or a trainer of somebody else's."""
    for rank in range(NUM_RANKS):
        make_series(tmp_path, rank, [1, 2, 3, 4], {"span/learn": 1.0})
        env = Block(make_meter(tmp_path, rank, env_steps=1, learned=1), 1)
        env.floats[env.word("step_s")] = 0.0
    found = measured(tmp_path)
    assert found.figures.env_step_s is not None
    assert (found.figures.env_step_s.mean, found.figures.env_step_s.cv) == (0.0, 0.0)
    assert found.counters.env_steps == NUM_RANKS


def test_agent_steps_are_counted_beside_env_steps(tmp_path: Path) -> None:
    """By hand: each rank has 2 environments of 2 agents, one of whom is away for half of the 20 env steps.

    So a rank has 30 + 30 agent steps in 40 env steps, of 2 frames each. In 4 s they learn 2 x 4 x 15 samples: 30 in a
    second, which are 20 env steps and 40 frames. An env step takes as long as its agents' shares together.
    """
    for rank in range(NUM_RANKS):
        make_series(tmp_path, rank, [1, 2, 3, 4], {"span/learn": 1.0}, learned=15)
        file = MeterFile.create(meter_path(tmp_path, rank), num_envs=4)
        Block(file, 0).set("learned", 60)
        for row, (steps, joint_steps) in enumerate(((20, 20), (10, 0)) * 2):
            own = Block(file, 1 + row)
            own.set("env_steps", steps)
            own.set("joint_steps", joint_steps)
            own.set("frames", 2 * joint_steps)
            own.floats[own.word("step_s")] = 0.3
            own.put_span(KIND_OF["simulate"], 0.0, 0.1)
    result = measured(tmp_path, agents_per_env=2)
    counters, figures = result.counters, result.figures
    assert (counters.env_steps, counters.agent_steps, counters.frames, counters.learned) == (80, 120, 160, 120)
    assert (figures.steps_per_s, figures.env_steps_per_s, figures.frames_per_s) == (30, 20, 40)
    assert figures.env_step_s is not None
    assert figures.env_step_s.mean == pytest.approx(0.6 / 20)
    assert result.problem is None
    spans = pd.read_parquet(tmp_path / "spans.parquet")
    assert sorted(spans["environment"]) == [0, 0, 1, 1]


def test_agent_steps_that_nobody_accounts_for_are_said(tmp_path: Path) -> None:
    """In the unit that they have."""
    for rank in range(NUM_RANKS):
        make_series(tmp_path, rank, [1, 2, 3, 4], {"span/learn": 1.0})
        file = MeterFile.create(meter_path(tmp_path, rank), num_envs=2)
        Block(file, 0).set("learned", 40)
        for row in range(2):
            Block(file, 1 + row).set("env_steps", 40)
        Block(file, 1).set("joint_steps", 40)
    told = "conservation broken: 160 agent steps collected, but 80 learned + 0 discarded + 0 in flight"
    assert measured(tmp_path, agents_per_env=2).problem == told
