from __future__ import annotations

import io
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from rlbench.harness.contract.budget import Limits
from rlbench.harness.metering.live import STARTING, LiveMeters, Snapshot
from rlbench.harness.metering.meter_file import SPANS, Block, MeterFile, meter_path
from rlbench.harness.plan.cells import Cell
from rlbench.harness.run.progress import PLAIN_PERIOD_S, CellProgress, Display
from tests.descriptors import open_files

CELL = Cell(
    system="ddppo",
    system_settings={"preempt.p": "0.8"},
    scenario="pointnav",
    workload="homogeneous",
    gpus=2,
    seed=3,
    device="cpu",
    protocol="ddppo",
    limits=Limits(iterations=10),
    stall_s=60,
    time_limit_s=600,
)


class Clock:
    """Time that a test moves on."""

    def __init__(self) -> None:
        self.now_s = 1000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Replaces the monotonic clock."""
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: clock.now_s)
    return clock


def snapshot(iterations: int, env_steps: int) -> Snapshot:
    """Of a rank that learns all that it collects."""
    return Snapshot(phase="learn", iterations=iterations, learned=env_steps, env_steps=env_steps)


def test_live_meters_sum_over_the_ranks(tmp_path: Path) -> None:
    """Ranks that have not started yet count nothing; then counters are summed, and the slowest iteration is shown."""
    meters = LiveMeters(tmp_path, range(2))
    assert meters.read() == Snapshot(phase=STARTING, iterations=0, learned=0, env_steps=0)
    for rank in (0, 1):
        if rank:
            assert meters.read().phase == STARTING
        file = MeterFile.create(meter_path(tmp_path, rank), num_envs=2)
        block = Block(file, 0)
        block.add("iteration", 3 + rank)
        block.add("learned", 100)
        block.set_phase(3)
        for env in (0, 1):
            Block(file, 1 + env).add("env_steps", 60)
    assert meters.read() == Snapshot(phase="learn", iterations=3, learned=200, env_steps=240)


def test_a_lost_rank_does_not_hold_the_display_up(tmp_path: Path) -> None:
    """What it had counted stays; how far the run is, the others say. It is news once, with or without a meter."""
    for rank, iterations in ((0, 9), (1, 2)):
        file = MeterFile.create(meter_path(tmp_path, rank), num_envs=1)
        Block(file, 0).add("iteration", iterations)
        Block(file, 0).set_phase(SPANS.index("learn" if rank == 0 else "infer"))
        Block(file, 1).add("env_steps", 10)
    meters = LiveMeters(tmp_path, range(3))
    assert meters.read().phase == STARTING
    assert [meters.lose(rank) for rank in (1, 2, 1)] == [True, True, False]
    assert meters.read() == Snapshot(phase="learn", iterations=9, learned=0, env_steps=20)


def test_closed_meters_hold_no_file(tmp_path: Path) -> None:
    """Not even where somebody still holds them: a sweep has as many files open in its last cell as in its first."""
    paths = [str(meter_path(tmp_path, rank)) for rank in range(2)]
    for path in paths:
        MeterFile.create(Path(path), num_envs=1).close()
    meters = LiveMeters(tmp_path, range(2))
    assert not set(paths) & set(open_files())
    meters.read()
    assert set(paths) <= set(open_files())
    meters.close()
    assert not set(paths) & set(open_files())


def test_rates_begin_with_the_first_env_step(clock: Clock) -> None:
    """The time that processes take to start slows neither the rate so far nor the time left."""
    progress = CellProgress(CELL, "[1/4]")
    assert progress.line().endswith("no step yet, time left unknown")
    clock.now_s += 100
    progress.update(snapshot(0, 10))
    clock.now_s += 2
    progress.update(snapshot(1, 210))
    assert progress.steps_per_s == pytest.approx(100)
    assert progress.line() == (
        "[1/4] ddppo:preempt.p=0.8 pointnav homogeneous x2 seed 3: learn, iteration 1, 100 steps/s so far, 18 s left"
    )


def test_several_agents_have_both_rates(clock: Clock) -> None:
    """Agent steps and env steps, in a line and in the live display."""
    progress = CellProgress(CELL, "[1/4]")
    progress.update(replace(snapshot(0, 30), joint_steps=10))
    clock.now_s += 2
    progress.update(replace(snapshot(1, 630), joint_steps=210))
    assert progress.rates == "300 agent steps/s, 100 env steps/s"
    assert "iteration 1, 300 agent steps/s, 100 env steps/s so far, " in progress.line()


def test_rates_are_of_the_profiles_seconds(clock: Clock) -> None:
    """As in the table: at time scale 0.5 a second of the profile takes half a second."""
    progress = CellProgress(replace(CELL, scenario="emulated", scenario_settings={"time_scale": "0.5"}), "[1/4]")
    progress.update(snapshot(0, 10))
    clock.now_s += 2
    progress.update(snapshot(1, 210))
    assert progress.steps_per_s == pytest.approx(50)


@pytest.mark.parametrize(
    ("limits", "fraction"),
    [
        (Limits(iterations=8), 0.25),
        (Limits(seconds=8), 0.5),
        (Limits(env_steps=1000), 0.8),
        (Limits(iterations=8, seconds=8, env_steps=1000), 0.8),
        (Limits(env_steps=100), 1.0),
        (Limits(until="success>=0.9"), 0.0),
    ],
)
def test_fraction_is_that_of_the_nearest_limit(limits: Limits, fraction: float, clock: Clock) -> None:
    """How much of the budget is spent follows the limit that will end the run first."""
    progress = CellProgress(replace(CELL, limits=limits), "")
    progress.update(snapshot(0, 1))
    clock.now_s += 4
    progress.update(snapshot(2, 800))
    assert progress.fraction == pytest.approx(fraction)
    assert progress.time_left == (
        "time left unknown" if not fraction else f"{4 * (1 - fraction) / fraction:.0f} s left"
    )


def test_plain_lines_without_a_terminal(clock: Clock) -> None:
    """Where nobody watches, a line says when a cell begins, every 15 s how far it is, and how it ended."""
    out = io.StringIO()
    with Display(Console(file=out, width=200), num_cells=4) as display:
        display.begin(2, CELL)
        for _ in range(10):
            clock.now_s += PLAIN_PERIOD_S / 5
            display.update(snapshot(1, 50))
        display.end("failed", ": rank 1 [gone]")
    first, *middle, last = out.getvalue().splitlines()
    assert first == f"[2/4] {CELL.label}: starting"
    assert len(middle) == 2
    assert all("learn, iteration 1" in line for line in middle)
    assert last == f"[2/4] {CELL.label}: failed: rank 1 [gone]"
    assert "\x1b" not in out.getvalue()


def test_a_terminal_sees_cell_phase_rate_and_time_left(clock: Clock) -> None:
    """In a terminal the same is shown in place, and goes when the sweep ends; what has ended stays."""
    out = io.StringIO()
    with Display(Console(file=out, width=120, force_terminal=True), num_cells=4) as display:
        display.begin(1, CELL)
        display.update(snapshot(0, 10))
        clock.now_s += 1
        display.update(snapshot(1, 110))
        assert display._live is not None
        display._live.refresh()
        shown = out.getvalue()
        for text in ("[1/4] ddppo:preempt.p=0.8", "learn, iteration 1", "100 steps/s, 110 env steps", "9 s left"):
            assert text in shown
        display.end("finished", ", 100 steps/s")
    assert f"{CELL.label}: finished, 100 steps/s" in out.getvalue()
