from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from rlbench.harness.contract.budget import Limits
from rlbench.harness.machine.telemetry.readings import Readings
from rlbench.harness.metering.fates import DISCARDED, LEARNED, FateFile, Fates, read_fates
from rlbench.harness.plan.cells import Cell
from rlbench.harness.plan.registry import load_scenario
from rlbench.harness.run.figures import Clock, RunOutput
from rlbench.harness.run.learned_from import LONGEST_PART, MOST_PARTS, add_up, learned_from, parts_of, rows_of
from rlbench.results.records.schema import EnvFates

NUM_ENVS = 2
CELL = Cell(
    system="sync",
    scenario="pointnav",
    workload="homogeneous",
    gpus=2,
    seed=0,
    device="cpu",
    protocol="ddppo",
    limits=Limits(iterations=4),
    stall_s=60,
    time_limit_s=600,
)


@dataclass(frozen=True, slots=True)
class Counted:
    """A rank's meter, as far as it is looked at: env steps of each environment, and milliseconds of each."""

    env_steps: Sequence[int]
    step_ms: Sequence[float]
    num_envs: int = NUM_ENVS

    def count(self, index: int, name: str) -> int:
        """Env steps of an environment; nothing else."""
        return self.env_steps[index - 1] if name == "env_steps" and index else 0

    def seconds(self, index: int, name: str) -> float:
        """Seconds of its steps. Of its resets those of the whole batch, which are longest in the first environment."""
        of_batch = {"step_s": self.step_ms[index - 1], "reset": 9.0 / index}
        return self.env_steps[index - 1] * of_batch.get(name, 0.0) / 1e3

    @property
    def lane_index(self) -> int:
        """The block after the environments'."""
        return 1 + self.num_envs

    def cpu_seconds(self, index: int, kind: str) -> tuple[float, float]:
        """Nothing has computed."""
        return 0.0 * (index + len(kind)), 0.0

    def is_reported(self, name: str) -> bool:
        """All is."""
        return bool(name)

    def total(self, name: str) -> int:
        """Env steps of the rank."""
        return sum(self.count(1 + env, name) for env in range(self.num_envs))


def fates_of(
    path: Path, first_env: int, learned: Sequence[tuple[int, int]], *, in_flight: Sequence[int] = (0, 0)
) -> Fates:
    """What a rank left that learned so often: pairs of an environment and the length of the episode that ended, or 0.

    Of environment 1 the first env step was discarded.
    """
    file = FateFile(path, NUM_ENVS, first_env, 0)
    file.settle(DISCARDED, np.array([1]), np.array([0]))
    for env, length in learned:
        file.settle(LEARNED, np.array([env]), np.array([length]))
        file.end_iteration()
    file.leave(np.array(in_flight))
    fates = read_fates(path)
    assert fates is not None
    return fates


def left_by(
    fates: Sequence[Fates],
    env_steps: Sequence[Sequence[int]],
    *,
    lengths: Sequence[tuple[int, int]] = (),
    lost: int = -1,
) -> RunOutput:
    """What the ranks left that collected so many env steps; `lengths` are environments and lengths of episodes."""
    return RunOutput(
        cell=CELL,
        clock=Clock(zero_s=0.0, time_scale=1.0),
        meters={rank: Counted(steps, (1.0, 2.0)) for rank, steps in enumerate(env_steps)},
        rows=[],
        episodes=[{"environment": env, "length": length} for env, length in lengths],
        spans=[],
        telemetry=Readings([], 0),
        in_step=True,
        lost=[lost] if lost >= 0 else [],
        fates=fates,
        parts=["a", "b", "a", "a"],
    )


def two_ranks(folder: Path, *, lost: int = -1) -> RunOutput:
    """By hand, of four environments; episodes that have ended are environment 0's of 2 steps and 3's of 4."""
    ranks = [
        fates_of(folder / "0", 0, [(0, 0), (0, 2), (0, 0), (1, 0)], in_flight=(0, 1)),
        fates_of(folder / "1", 2, [(0, 0), (1, 0)], in_flight=(0, 2)),
    ]
    return left_by(ranks, [(3, 3), (1, 4)], lengths=[(3, 4), (0, 2)], lost=lost)


def counts(row: EnvFates) -> tuple[int, ...]:
    """Started, learned, discarded, in flight."""
    return row.started, row.learned, row.discarded, row.in_flight


def test_environments_parts_and_lengths_are_added_up(tmp_path: Path) -> None:
    """By hand: part b is environment 1 alone; environment 3's episode ended with a step that is in flight."""
    left = two_ranks(tmp_path)
    account = add_up(left)
    assert account is not None
    assert account.problem is None
    rows = [
        [row[name] for name in ("rank", "part", "started", "learned", "discarded")] for row in rows_of(account, left)
    ]
    assert rows == [[0, "a", 3, 3, 0], [0, "b", 3, 1, 1], [1, "a", 1, 1, 0], [1, "a", 4, 1, 1]]
    found = learned_from(account, left)
    assert found is not None
    assert {row.name: (row.environments, *counts(row)) for row in found.parts} == {
        "a": (3, 8, 5, 1, 2),
        "b": (1, 3, 1, 1, 1),
    }
    assert {row.name: counts(row) for row in found.lengths} == {
        "2 to 3": (2, 2, 0, 0),
        "4 to 7": (4, 1, 1, 2),
        "not ended": (5, 3, 1, 1),
    }
    assert (found.environments, found.cut) == (4, None)
    assert (found.shares.least, found.shares.most, found.shares.even) == (1 / 6, 3 / 6, 1 / 4)
    assert found.shares.distance == pytest.approx(1 / 4)
    assert found.shares.p is None, "two iterations of one rank"
    assert found.kept is not None
    assert (found.kept.least, found.kept.most, found.kept.even) == (1 / 2, 1, 6 / 8)


def test_what_a_lost_rank_had_is_discarded(tmp_path: Path) -> None:
    """It is in no share, and by length as by part what it had in flight counts as discarded."""
    left = two_ranks(tmp_path, lost=1)
    account = add_up(left)
    assert account is not None
    found = learned_from(account, left)
    assert found is not None
    assert [row["discarded"] for row in rows_of(account, left)] == [0, 1, 0, 3]
    assert {row.name: counts(row) for row in found.lengths}["4 to 7"] == (4, 1, 3, 0)
    for rows in (found.parts, found.lengths):
        assert [sum(each) for each in zip(*map(counts, rows), strict=True)] == [11, 6, 4, 1]
    assert (found.shares.least, found.shares.even) == (1 / 4, 1 / 2)


def test_a_lost_rank_that_never_learned_is_no_gap(tmp_path: Path) -> None:
    """Without it, all that the others report is there; of one that was not lost, nothing is."""
    left = replace(two_ranks(tmp_path, lost=1), fates=two_ranks(tmp_path).fates[:1])
    account = add_up(left)
    assert account is not None
    assert [row["discarded"] for row in rows_of(account, left)] == [0, 1, 1, 4]
    assert learned_from(account, left) is not None
    assert add_up(replace(left, lost=())) is None
    assert add_up(replace(left, fates=())) is None


def test_an_environment_that_does_not_add_up_is_a_problem(tmp_path: Path) -> None:
    """One env step too many is named with its environment, though the sums of ranks and runs may be right."""
    left = two_ranks(tmp_path)
    account = add_up(replace(left, meters={**left.meters, 1: Counted((2, 3), (1.0, 1.0))}))
    assert account is not None
    assert account.problem == (
        "conservation broken: environment 2 collected 2 env steps, but 1 learned + 0 discarded + 0 in flight"
    )


def test_fast_environments_that_are_favoured_are_seen(tmp_path: Path) -> None:
    """By hand: of each rank the environment that takes 1 ms has three quarters of 8 iterations, without a chance.

    Resets count with each environment's share of the time (`reset_s`), not with the spans of the whole batch.
    """
    learned = [(0, 0), (0, 0), (1, 0), (0, 0)] * 8
    ranks = [fates_of(tmp_path / str(rank), 2 * rank, learned) for rank in range(2)]
    left = left_by(ranks, [(24, 9), (24, 9)])
    account = add_up(left)
    assert account is not None
    found = learned_from(account, left)
    assert found is not None
    assert found.fast_favoured == pytest.approx(1.0)
    assert (found.shares.least, found.shares.most) == (1 / 8, 3 / 8)
    assert found.shares.p is not None


def test_agents_of_an_environment_are_told_apart(tmp_path: Path) -> None:
    """Each is a row, with its environment's number in the run; what is not accounted for names both."""
    left = replace(two_ranks(tmp_path), agents_per_env=2)
    account = add_up(left)
    assert account is not None
    named = [(row["rank"], row["environment"], row["agent"]) for row in rows_of(account, left)]
    assert named == [(0, 0, 0), (0, 0, 1), (1, 1, 0), (1, 1, 1)]
    account = add_up(replace(left_by(left.fates, [(3, 3), (2, 4)]), agents_per_env=2))
    assert account is not None
    told = "conservation broken: environment 1, agent 0 collected 2 agent steps, but 1 learned + 0 discarded"
    assert str(account.problem).startswith(told)


@pytest.mark.parametrize(
    ("scenario", "workload", "first"),
    [
        ("pointnav", "homogeneous", "2x2 rooms"),
        ("emulated/open-fridge", "homogeneous", "the median"),
        ("vizdoom", "heterogeneous", "basic 160x120"),
        ("atari", "heterogeneous", "breakout"),
    ],
)
def test_scenarios_name_their_parts(scenario: str, workload: str, first: str) -> None:
    """Every environment of every rank has one; in the heterogeneous workload they differ."""
    cell = replace(CELL, scenario=scenario, workload=workload)
    parts, warnings = parts_of(load_scenario(scenario, workload, {}), cell)
    assert (parts[0], warnings) == (first, [])
    assert (len(set(parts)) > 1) == (workload == "heterogeneous")


def test_emulated_scenes_are_parts_by_their_speed() -> None:
    """A scene that is at least half and less than once as slow as the median one is of that part, by its seed."""
    scenario = load_scenario("emulated/open-fridge", "heterogeneous", {})
    parts, _ = parts_of(scenario, replace(CELL, scenario="emulated/open-fridge", workload="heterogeneous", gpus=8))
    assert {"0.5 to 1 x the median", "1 to 2 x the median"} <= set(parts)


class Odd:
    """A scenario whose parts are too many, too long, or raise."""

    num_envs = NUM_ENVS

    def part(self, global_index: int, seed: int) -> str:
        """A long text; of the last environment there is none."""
        assert seed > 0
        if global_index == 3:
            raise KeyError("scene 3")
        return f"{global_index}\x1b" * 100


def test_whatever_a_scenario_says_of_its_parts_is_recorded() -> None:
    """What `part` raises is a warning, and the rest of the record does not miss it; texts are short and shown."""
    parts, (warning,) = parts_of(Odd(), CELL)  # type: ignore[arg-type]  # as much as is asked
    assert parts == []
    assert warning.endswith("is not known: KeyError: 'scene 3'")
    parts, warnings = parts_of(Odd(), replace(CELL, gpus=1))  # type: ignore[arg-type]
    assert (warnings, parts[0][:10], len(parts[0])) == ([], "0\\x1b0\\x1b", LONGEST_PART)


def test_too_many_parts_are_in_the_file_alone(tmp_path: Path) -> None:
    """A record does not grow with the scenes of a data set."""
    size = MOST_PARTS + 2
    fates = [
        Fates(
            first_env=0,
            blocks=np.ones((1, 2, size), np.int64),
            num_whole=1,
            cut=None,
            in_flight=np.zeros(size, np.int64),
        )
    ]
    meters = {0: Counted([2] * size, [1.0] * size, size)}
    names = [str(number) for number in range(size)]
    left = replace(two_ranks(tmp_path), cell=replace(CELL, gpus=1), fates=fates, meters=meters, parts=names)
    account = add_up(left)
    assert account is not None
    found = learned_from(account, left)
    assert found is not None
    assert (found.parts, found.lengths) == ([], [])
    assert [row["part"] for row in rows_of(account, left)] == names
