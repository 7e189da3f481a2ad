"""Ranks that die while others go on, or may not: with real processes, of a system that needs no other rank."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest

from rlbench.harness.contract.traits import Traits
from rlbench.harness.processes.outcome import LOST_FILE, LostRank, Outcome, read_lost
from rlbench.results.records.parts import read_parts
from rlbench.results.records.store import read_runs
from tests.harness.run.drifting_system import PROGRAM, STEPS, install_drifters
from tests.harness.runs import END_LIMIT_S, RunningSweep, install_faulty, wait_until
from tests.lanes import deep

NUM_RANKS, NUM_ENVS = 3, 2
OPTIONS = ("--device", "cpu", "--until", "return>=1", "--gpus", str(NUM_RANKS))


@dataclass(frozen=True, kw_only=True, slots=True)
class Lost:
    """What a run left that lost rank 1 to a signal, and rank 2 to an exception, and one that lost all."""

    survived: dict[str, Any]
    said_at_once: str
    """What had been printed while the run went on."""
    programs_left: int
    """Of the three that the ranks had started, while the run went on without rank 1."""
    steps_of_lost: int
    """Env steps of rank 1 that it had not learned when it was killed."""
    all_lost: dict[str, Any]
    exit_code: int
    left: list[psutil.Process]
    files: list[Path]
    stdout: str


def install(folder: Path) -> None:
    """Installs `faulty` and `drifters` for a sweep in `folder`."""
    install_faulty(folder / "site")
    install_drifters(folder / "site")


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lost]:
    """Runs two cells: in the first ranks 1 and 2 are lost and rank 0 ends well, in the second all ranks are lost."""
    base = tmp_path_factory.mktemp("lost")
    install(base)
    scenarios = "faulty/patient:tag=a,faulty/patient:tag=b"
    with RunningSweep(base, *OPTIONS, "--systems", "drifters", "--scenario", scenarios) as sweep:
        folder = sweep.wait_collecting(1, NUM_RANKS)
        meters = sweep.meters(1, NUM_RANKS)
        wait_until(lambda: meters[1].count(0, "learned") > 0, "rank 1 learns")
        sweep.ranks()[1].kill()
        wait_until(lambda: "rank 1 was killed" in sweep.stderr, "it is said")
        before = [meters[rank].count(0, "iteration") for rank in (0, 2)]
        wait_until(
            lambda: all(meters[rank].count(0, "iteration") > count for rank, count in zip((0, 2), before, strict=True)),
            "the others go on",
        )
        programs_left = len(sweep.of_program(PROGRAM))
        steps_of_lost = meters[1].total("env_steps") - meters[1].count(0, "learned")
        (base / "raise-on-rank-2").touch()
        wait_until(lambda: len(read_lost(folder)) == 2, "rank 2 raises")
        said_at_once = sweep.stderr
        (base / "raise-on-rank-2").unlink()  # before the next cell has such a rank
        sweep.release("a")
        survived = sweep.wait_published(1)
        sweep.wait_collecting(2, NUM_RANKS)
        for rank in sweep.ranks().values():
            rank.kill()
        exit_code = sweep.end()
        yield Lost(
            survived=survived,
            said_at_once=said_at_once,
            programs_left=programs_left,
            steps_of_lost=steps_of_lost,
            all_lost=sweep.runs(2)[0],
            exit_code=exit_code,
            left=sweep.processes(),
            files=sweep.files_left(),
            stdout=sweep.stdout,
        )


def of_ranks(record: dict[str, Any]) -> list[str]:
    """The warnings that are about ranks; others may be about files of neighbours in /dev/shm."""
    return [warning for warning in record["warnings"] if warning.startswith("rank ")]


def test_a_run_that_survives_a_lost_rank_is_finished_and_says_so(lost: Lost) -> None:
    """The record names every lost rank, how it ended, the iteration, and the env steps that went with it."""
    assert (lost.survived["status"], lost.survived["reason"]) == ("finished", None)
    first, second, *_ = of_ranks(lost.survived)
    series = pd.read_parquet(lost.survived["path"] / "series.parquet")
    last = series.groupby("rank")["iteration"].max()
    assert first in {  # a row of the series is written before the iteration counts
        f"rank 1 was killed by SIGKILL in iteration {iteration}; the others went on; {lost.steps_of_lost} env steps "
        "that it had collected and not learned count as discarded"
        for iteration in (last[1], last[1] + 1)
    }
    assert second.startswith(
        f"rank 2 raised RuntimeError: rank 2 was told to in iteration {last[2] + 1}; the others went on; "
    )
    assert "RuntimeError: rank 2 was told to" in (lost.survived["path"] / "stderr.txt").read_text()
    # The table says once, with the range of the numbers, what several runs say.
    said = r"warning: rank 1 was killed by SIGKILL in iteration [\d to]+; the others went on; [\d to]+ env steps that"
    assert re.search(said, lost.stdout)


def test_a_loss_is_said_while_the_run_goes_on(lost: Lost) -> None:
    """Who watches the sweep hears of a lost rank at once, and once."""
    assert lost.said_at_once.count("warning: rank 1 was killed by SIGKILL in iteration") == 1
    assert "finished" not in lost.said_at_once


def test_what_a_lost_rank_leaves_is_killed_at_once(lost: Lost) -> None:
    """The program that the lost rank had started is gone while those of the others run."""
    assert lost.programs_left == NUM_RANKS - 1


def test_env_steps_of_lost_ranks_are_conserved_as_discarded(lost: Lost) -> None:
    """Collected = learned + discarded + in flight holds to the sample, though two ranks never said what they had."""
    counters = lost.survived["counters"]
    assert counters["env_steps"] == counters["learned"] + counters["discarded"] + counters["in_flight"]
    assert counters["discarded"] >= lost.steps_of_lost > 0
    assert counters["in_flight"] == STEPS * NUM_ENVS  # of rank 0 alone


def test_parts_of_ranks_that_drift_apart_can_be_read(lost: Lost) -> None:
    """The series says that ranks did not go in step, and which were lost; a rate comes of it nevertheless."""
    series = pd.read_parquet(lost.survived["path"] / "series.parquet")
    assert not series["in_step"].any()
    assert series.groupby("rank")["lost"].agg(["min", "max"]).to_numpy().tolist() == [[False] * 2] + [[True] * 2] * 2
    parts = read_parts(lost.survived["path"])
    assert len(parts) == (series["rank"] == 0).sum()
    assert sum(part.learned for part in parts) == series["learned"].sum()
    cut_short = lost.survived["counters"]["learned"] - series["learned"].sum()
    assert cut_short in {0, STEPS * NUM_ENVS, 2 * STEPS * NUM_ENVS}, "of the iterations in which two ranks were lost"
    (run,) = (run for run in read_runs(lost.survived["path"]))
    assert run.record.figures.steps_per_s
    assert sum(run.record.figures.time_shares.values()) == pytest.approx(1, abs=0.05)


def test_a_run_that_loses_all_ranks_fails(lost: Lost) -> None:
    """When no rank goes on, the run has failed, and one of the killed is named."""
    assert lost.all_lost["status"] == "failed"
    assert lost.all_lost["reason"].startswith("rank ")
    assert "was killed by SIGKILL" in lost.all_lost["reason"]
    assert lost.exit_code == 1


def test_nothing_is_left_of_lost_ranks(lost: Lost) -> None:
    """No process and no temporary file outlives the sweep."""
    assert (lost.left, lost.files) == ([], [])


@deep
def test_the_same_kill_ends_a_run_that_does_not_say_it_survives(tmp_path: Path) -> None:
    """Without the trait the run fails at once, with the rank named, and nothing of it goes on.

    In both lanes systems without the trait are killed by `test_faults.py`.
    """
    options = ("--systems", "drifters:survives_lost_rank=false", "--scenario", "faulty/patient:tag=c")
    install(tmp_path)
    with RunningSweep(tmp_path, *OPTIONS, *options) as sweep:
        sweep.wait_collecting(1, NUM_RANKS)
        outlived_s = sweep.kill(sweep.ranks()[1], 1, signal.SIGKILL)
        record = sweep.wait_published(1)
    assert outlived_s < END_LIMIT_S
    assert record["status"] == "failed"
    assert record["reason"].startswith("rank 1 was killed by SIGKILL")
    assert of_ranks(record) == []


def test_traits_are_those_of_the_system_or_the_defaults(tmp_path: Path) -> None:
    """A system need not have the attributes; what is written for the keeper is read back."""
    assert Traits.of(object()) == Traits(in_step=True, survives_lost_rank=False)
    Traits(in_step=False).leave(tmp_path)
    assert Traits.read(tmp_path) == Traits(in_step=False)


def test_an_outcome_and_its_lost_ranks_are_read_back(tmp_path: Path) -> None:
    """What the keeper leaves is what the runner gets; half a line of a killed keeper is not a lost rank."""
    assert (Outcome.read(tmp_path), read_lost(tmp_path)) == (None, ())
    lost = LostRank(rank=3, how="was killed by SIGKILL", iteration=7)
    lost.leave(tmp_path)
    with (tmp_path / LOST_FILE).open("a") as file:
        file.write('{"rank": 1, "how": "was')
    assert read_lost(tmp_path) == (lost,)
    assert str(lost) == "rank 3 was killed by SIGKILL in iteration 7; the others went on"
    outcome = Outcome("finished", lost=(lost,))
    outcome.leave(tmp_path)
    assert Outcome.read(tmp_path) == outcome
