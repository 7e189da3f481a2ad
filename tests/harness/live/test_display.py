from __future__ import annotations

import io
import time
from dataclasses import replace

import pytest
from rich.console import Console

from rlbench.harness.contract.budget import Limits
from rlbench.harness.live import view
from rlbench.harness.live.cell_progress import CellProgress
from rlbench.harness.live.display import PLAIN_PERIOD_S, Display
from rlbench.harness.live.expected import Expected
from rlbench.harness.metering.live import PREPARING, Snapshot
from rlbench.harness.plan.cells import Cell

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


def test_rates_begin_with_the_first_env_step(clock: Clock) -> None:
    """The time that processes take to start slows neither the rate so far nor the time left."""
    progress = CellProgress(CELL, 1)
    clock.now_s += 100
    assert view.line(progress.state, 4) == f"[1/4] {CELL.label}: {PREPARING}, for 1 min 40 s"
    progress.update(snapshot(0, 10))
    clock.now_s += 2
    progress.update(snapshot(1, 210))
    assert progress.state.steps_per_s == pytest.approx(100)
    assert view.line(progress.state, 4) == (
        "[1/4] ddppo:preempt.p=0.8 pointnav homogeneous x2 seed 3: learn, iteration 1, 100 steps/s so far, "
        "210 env steps, 18 s left"
    )


def test_several_agents_have_both_rates(clock: Clock) -> None:
    """Agent steps and env steps, in a line and in the live display."""
    progress = CellProgress(CELL, 1)
    progress.update(replace(snapshot(0, 30), joint_steps=10))
    clock.now_s += 2
    progress.update(replace(snapshot(1, 630), joint_steps=210))
    assert view.rates(progress.state) == "300 agent steps/s, 100 env steps/s"
    assert "iteration 1, 300 agent steps/s, 100 env steps/s so far, 630 agent steps, " in view.line(progress.state, 4)


def test_rates_are_of_the_profiles_seconds(clock: Clock) -> None:
    """As in the table: at time scale 0.5 a second of the profile takes half a second."""
    progress = CellProgress(replace(CELL, scenario="emulated", scenario_settings={"time_scale": "0.5"}), 1)
    progress.update(snapshot(0, 10))
    clock.now_s += 2
    progress.update(snapshot(1, 210))
    assert progress.state.steps_per_s == pytest.approx(50)


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
    progress = CellProgress(replace(CELL, limits=limits), 1)
    progress.update(snapshot(0, 1))
    clock.now_s += 4
    progress.update(snapshot(2, 800))
    state = progress.state
    assert state.fraction == pytest.approx(fraction)
    said = {0.0: "time left unknown", 1.0: "about to end"}
    assert view.cell_left(state) == said.get(fraction, f"{4 * (1 - fraction) / (fraction or 1):.0f} s left")


def test_no_iteration_is_named_before_one_has_ended() -> None:
    """`first rollout` is all that is said of it."""
    progress = CellProgress(CELL, 1)
    progress.update(Snapshot(phase="first rollout", iterations=0, learned=0, env_steps=10))
    assert view.doing(progress.state) == "first rollout"
    progress.update(snapshot(1, 20))
    assert view.doing(progress.state) == "learn, iteration 1"


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
    assert first == f"[2/4] {CELL.label}: {PREPARING}"
    assert len(middle) == 2
    assert all("learn, iteration 1" in line and line.endswith("; sweep: 0 of 4 cells") for line in middle)
    assert last == f"[2/4] {CELL.label}: failed: rank 1 [gone]"
    assert "\x1b" not in out.getvalue()


def test_a_dumb_terminal_gets_plain_lines_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot rewrite a line."""
    monkeypatch.setenv("TERM", "dumb")
    out = io.StringIO()
    with Display(Console(file=out, force_terminal=True), num_cells=1) as display:
        display.begin(1, CELL)
        display.update(snapshot(0, 10))
    assert " ".join(out.getvalue().split()) == f"[1/1] {CELL.label}: {PREPARING}"


@pytest.mark.parametrize("kind", ["xterm", "dumb"])
def test_a_terminal_gets_whole_words(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said of a cell that has ended is broken between words, not by the terminal inside a figure."""
    monkeypatch.setenv("TERM", kind)
    out = io.StringIO()
    with Display(Console(file=out, width=80, force_terminal=True), num_cells=1) as display:
        display.begin(1, CELL)
        display.end("finished", ", 12,345,678 steps/s (starting took 1.0 s, ending 0.3 s)")
    (said,) = out.getvalue().split(f"seed {CELL.seed}: finished")[1:]
    assert " ".join(said.split()).startswith(", 12,345,678 steps/s (starting took 1.0 s, ending 0.3 s)")
    assert all(len(line.rstrip()) <= 80 for line in said.splitlines())


def test_a_terminal_sees_the_bar_of_the_sweep_above_that_of_the_cell(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are shown in place, and go when the sweep ends; what has ended stays. No line is broken at 80 columns."""
    monkeypatch.setenv("TERM", "xterm")
    out, expected = io.StringIO(), [Expected(seconds=20.0, how="")] * 4
    with Display(Console(file=out, width=80, force_terminal=True), 4, expected, finished=[3]) as display:
        display.begin(1, CELL)
        clock.now_s += 5
        display.update(snapshot(0, 10))
        assert "1 of 4 cells; about 55 s left" in out.getvalue()
        clock.now_s += 1
        display.update(snapshot(1, 110))
        shown = out.getvalue()
        sweep, cell, label, done = (
            shown.rindex(text)
            for text in (
                "1 of 4 cells",
                "[1/4] learn, iteration 1; 9 s left",
                "ddppo:preempt.p=0.8",
                "100 steps/s so far",
            )
        )
        assert sweep < cell < label < done
        display.end("failed", ": it broke")
        assert "2 of 4 cells, 1 failed; about 40 s left" in view.about_sweep(display.state)
        assert (display.state.num_ended, display.state.num_failed) == (2, 1)
    assert f"{CELL.label}: failed: it broke" in out.getvalue()


def test_the_state_is_what_others_read(clock: Clock) -> None:
    """Cells that have ended, those that did not finish, and the running one."""
    with Display(Console(file=io.StringIO()), num_cells=2) as display:
        display.begin(1, CELL)
        clock.now_s += 3
        display.update(snapshot(2, 60))
        (cell,) = display.state.running
        assert (cell.number, cell.label, cell.iterations, cell.elapsed_s) == (1, CELL.label, 2, 3.0)
        display.end("finished", "")
        assert (display.state.running, display.state.num_ended, display.state.num_failed) == ((), 1, 0)


def test_the_time_left_of_jobs_is_told_when_the_first_runs(clock: Clock) -> None:
    """By the plan, by what jobs took, and by how many have run at a time; how long they wait before is Slurm's."""
    out, expected = io.StringIO(), [Expected(seconds=100.0, how="")] * 5
    with Display(Console(file=out, width=200), 5, expected) as display:
        assert view.about_sweep(display.state) == "0 of 5 cells; starting"
        display.update_jobs({}, 5)
        assert view.about_sweep(display.state) == "0 of 5 cells; 0 running, 5 waiting"
        clock.now_s += PLAIN_PERIOD_S
        display.update_jobs({1: (CELL, snapshot(0, 0)), 2: (CELL, snapshot(0, 0))}, 5)
        assert view.about_sweep(display.state) == "0 of 5 cells; 2 running, 3 waiting; about 5 min 00 s left"
        assert out.getvalue().splitlines()[-1] == view.about_sweep(display.state)
        display.note_end(1, "finished", 50.0)
        clock.now_s += 10
        display.update_jobs({2: (CELL, snapshot(0, 0))}, 4)
        assert view.about_sweep(display.state) == "1 of 5 cells; 1 running, 3 waiting; about 1 min 40 s left"


def test_a_job_that_was_requeued_begins_anew(clock: Clock) -> None:
    """Its rate and its time are of the run that is under way."""
    with Display(Console(file=io.StringIO()), 1) as display:
        display.update_jobs({1: (CELL, snapshot(0, 10))}, 1)
        clock.now_s += 100
        display.update_jobs({1: (CELL, snapshot(5, 500))}, 1)
        display.update_jobs({1: (CELL, snapshot(0, 0))}, 1)
        clock.now_s += 5
        display.update_jobs({1: (CELL, snapshot(0, 0))}, 1)
        (cell,) = display.state.running
        assert (cell.elapsed_s, cell.steps_per_s) == (5.0, 0.0)


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_no_line_is_as_wide_as_the_terminal(width: int, clock: Clock) -> None:
    """Whatever is in a label or a phase."""
    progress = CellProgress(replace(CELL, scenario="pointnav" * 20), 1)
    progress.update(replace(snapshot(3, 10**9), phase="a\nphase " * 30))
    clock.now_s += 1000
    with Display(Console(file=io.StringIO()), num_cells=10**5) as display:
        state = display.state.model_copy(update={"running": (progress.state,)})
    console = Console(file=io.StringIO(), width=300)
    lines = console.render_lines(view.view(state, width), pad=False)
    assert all(sum(segment.cell_length for segment in line) < width for line in lines)


def test_a_label_keeps_its_gpus_and_its_seed() -> None:
    """They tell cells apart; the settings in its middle give way."""
    short = view.shortened(f"{CELL.typed_system} {'x' * 100} homogeneous x2 seed 3", 60)
    assert len(short) == 60
    assert short.startswith(CELL.typed_system)
    assert short.endswith(" homogeneous x2 seed 3")
