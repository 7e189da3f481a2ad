"""Every system, and ablations of them, with real workers on 1 to 3 ranks: env steps are conserved to the sample.

The ranks of one device are started once and run all systems in turn, each in a folder and a process group of its own,
with workers of its own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeGuard

import pytest

from rlbench.harness.contract.traits import Traits
from rlbench.harness.machine.telemetry.readings import Readings
from rlbench.harness.plan.cells import Cell
from rlbench.harness.run.learned_from import Account, add_up, learned_from, parts_of
from rlbench.harness.run.record import _read
from rlbench.results.records.schema import LearnedFrom
from tests.lanes import deep
from tests.systems.engine.cells import make_cell, profile, run_in_turn
from tests.systems.engine.ranks import Run
from tests.systems.model.virtual_engine import run_virtually

NUM_ENVS, NUM_STEPS, NUM_ITERATIONS = 4, 16, 4
STREAM = "rollout.num_steps=8:rollout.batch=32"
SYSTEMS = (
    f"impala:{STREAM}",  # first, so that all workers are forked from a server that has torch already
    f"appo:{STREAM}",
    f"appo:{STREAM}:average=allreduce",
    "sync",
    "ddppo",
    "ddppo:preempt=optimal",
    "nover",
    "nover:preempt.fill_stale=true",
    "ver",
    "ver:preempt=threshold",
    "ver:overlap=oneahead",
    "ver:average=gossip",
    "htsrl",
    "htsrl:rollout=variable",
    "gossip",
    "easgd:average.seconds=60",
    "downpour:average.seconds=60",
)
Device = tuple[str, int]
DEVICES: tuple[Device, ...] = (("cpu", 1), ("emulated", 2), ("emulated", 3))
CELLS = [
    pytest.param(device, system, marks=[deep] * ((place + number) % 3 > 0), id=f"{device[0]}-{device[1]}-{system}")
    for place, device in enumerate(DEVICES)
    for number, system in enumerate(SYSTEMS)
]
"""In both lanes each system on one device; in the deep one each on all."""
PLANNING = ("ddppo:preempt=optimal", "nover", "nover:preempt.fill_stale=true", "ver", "ver:overlap=oneahead")
"""Those whose ranks plan together."""
TAKING_ALL = ("sync", "ddppo", "nover", "gossip", "easgd", "downpour", "htsrl")
"""Rollouts of as many steps of each environment, unless their settings say otherwise."""
ONE_LEARNER = SYSTEMS[:2]
"""Rank 0 learns from the environments of all ranks."""
FILLING = ("nover:preempt.fill_stale=true", "ver", "ver:overlap=oneahead", "ver:average=gossip")
STEP_MS = 4.0
SEED = 26
"""With it, the environments of rank 0 are slower than those of ranks 1 and 2 by far."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What all systems left on one device."""

    runs: Mapping[str, Run]
    num_ranks: int

    def count(self, system: str, name: str) -> int:
        """A counter of all ranks; of all their environments if it is theirs."""
        meters = [self.runs[system].meter(number) for number in range(self.num_ranks)]
        return sum(meter.total(name) if name == "env_steps" else meter.count(0, name) for meter in meters)

    def learned_from(self, system: str) -> tuple[Account, LearnedFrom]:
        """What the record would say of it."""
        folder = self.runs[system].folder
        cell = Cell.from_json((folder / "cell.json").read_text())
        _, scenario = cell.load()
        parts, warnings = parts_of(scenario, cell)
        assert not warnings
        meters = {rank: self.runs[system].meter(rank) for rank in range(self.num_ranks)}
        left = replace(_read(folder, cell, 1.0, meters, Readings([], 0), Traits(), ()), parts=parts)
        account = add_up(left)
        assert account is not None
        found = learned_from(account, left)
        assert found is not None
        return account, found

    def iterations(self, system: str) -> list[list[dict[str, Any]]]:
        """The time series, iteration after iteration: a row of each rank."""
        rows = [self.runs[system].rows(number) for number in range(self.num_ranks)]
        return [list(of_ranks) for of_ranks in zip(*rows, strict=True)]


@pytest.fixture(scope="module")
def ran_on(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Device], Ran]:
    """All systems that are asked for on a device; environments and ranks differ in speed, so stragglers are cut."""
    cells_here = [item.callspec.params for item in request.session.items if _is_cell(item, request.path)]

    @functools.cache
    def run(device: Device) -> Ran:
        name, num_ranks = device
        asked = {params["system"] for params in cells_here if params["device"] == device}
        folder = tmp_path_factory.mktemp("ran")
        scenario = profile(folder, spread=1.0, step_ms=STEP_MS if num_ranks > 1 else 1.0)
        fields = {"device": name, "gpus": num_ranks, "workload": "heterogeneous", "seed": SEED}
        cells = {
            system: make_cell(system, scenario, iterations=NUM_ITERATIONS, **fields)
            for system in SYSTEMS
            if system in asked
        }
        return Ran(run_in_turn(folder, cells, num_ranks), num_ranks)

    return run


def _is_cell(item: pytest.Item, path: Path) -> TypeGuard[pytest.Function]:
    return isinstance(item, pytest.Function) and item.path == path and "device" in item.callspec.params


def cells(systems: Sequence[str]) -> pytest.MarkDecorator:
    """Some systems on each device."""
    return pytest.mark.parametrize(("device", "system"), [cell for cell in CELLS if cell.values[1] in systems])


@cells(SYSTEMS)
def test_every_step_is_learned_discarded_or_in_flight(
    ran_on: Callable[[Device], Ran], device: Device, system: str
) -> None:
    """Env steps counted in the wrappers = learned + discarded + in flight, to the sample."""
    ran = ran_on(device)
    accounted = {name: ran.count(system, name) for name in ("learned", "discarded", "in_flight")}
    assert ran.count(system, "env_steps") == sum(accounted.values())
    assert accounted["learned"] > 0
    assert accounted["discarded"] == 0  # nobody is too slow, and nothing that was preempted is thrown away


@cells(SYSTEMS)
def test_every_environment_accounts_for_its_steps(ran_on: Callable[[Device], Ran], device: Device, system: str) -> None:
    """So does each environment by itself, and the ranks' counters are the sums of those of their environments.

    With one learner, rank 0 accounts for all of them. What a rollout of T steps of each lacks when it is cut is counted
    too.
    """
    run, num_ranks = ran_on(device).runs[system], ran_on(device).num_ranks
    collected = [run.meter(rank).count(1 + env, "env_steps") for rank in range(num_ranks) for env in range(NUM_ENVS)]
    learners = 1 if system in ONE_LEARNER else num_ranks
    num_envs = len(collected) // learners
    for rank in range(learners):
        fates, meter = run.fates(rank), run.meter(rank)
        assert fates is not None
        learned, discarded = fates.totals
        assert (fates.first_env, fates.num_whole) == (rank * num_envs, len(run.rows(rank)))
        assert (learned + discarded + fates.in_flight).tolist() == collected[rank * num_envs :][:num_envs]
        sums = {"learned": learned.sum(), "discarded": discarded.sum(), "in_flight": fates.in_flight.sum()}
        assert sums == {name: meter.count(0, name) for name in sums}
        if fates.cut is not None:
            assert (learned + fates.cut == NUM_STEPS * fates.num_whole).all()
        assert (fates.cut is not None) == (system.startswith(TAKING_ALL) and "variable" not in system)
    assert all(run.fates(rank) is None for rank in range(learners, num_ranks))


@cells(SYSTEMS)
def test_every_length_of_episodes_accounts_for_its_steps(
    ran_on: Callable[[Device], Ran], device: Device, system: str
) -> None:
    """What was collected in episodes of each length was learned or discarded or is in flight, and so of each part."""
    ran = ran_on(device)
    account, found = ran.learned_from(system)
    for rows in (found.parts, found.lengths):
        assert all(row.started == row.learned + row.discarded + row.in_flight for row in rows)
        sums = [sum(getattr(row, name) for row in rows) for name in ("started", "learned", "discarded", "in_flight")]
        assert sums == [ran.count(system, name) for name in ("env_steps", "learned", "discarded", "in_flight")]
    assert found.lengths[-1].name == "not ended"
    assert (found.environments, account.problem) == (NUM_ENVS * ran.num_ranks, None)


@cells(SYSTEMS)
def test_every_sample_is_reused_once_an_epoch(ran_on: Callable[[Device], Ran], device: Device, system: str) -> None:
    """Beside its first use a sample is learned from in every further epoch, and stale fill makes up what is missing."""
    ran = ran_on(device)
    epochs = 1 if system.startswith(("appo", "impala")) else 2
    reused = ran.count(system, "reused") - (epochs - 1) * ran.count(system, "learned")
    if system not in FILLING:
        assert reused == 0
        return
    rows = [row for number in range(ran.num_ranks) for row in ran.runs[system].rows(number)]
    short = [NUM_ENVS * NUM_STEPS - row["learned"] for row in rows]
    assert reused == epochs * sum(short)


@cells(PLANNING)
def test_nobody_is_cut_before_anything_is_known(ran_on: Callable[[Device], Ran], device: Device, system: str) -> None:
    """Optimal preemption plans by the times of earlier rollouts: in the first iteration all learn a whole one."""
    ran = ran_on(device)
    assert [row["learned"] for row in ran.iterations(system)[0]] == [NUM_ENVS * NUM_STEPS] * ran.num_ranks


@pytest.mark.parametrize("num_ranks", [3, pytest.param(2, marks=deep)])
@pytest.mark.parametrize("system", PLANNING)
def test_stragglers_are_cut(system: str, num_ranks: int, tmp_path: Path) -> None:
    """Optimal preemption cuts rollouts of rank 0, the slowest, and more than others'; times are the profile's."""
    scenario = profile(tmp_path, spread=1.0, step_ms=STEP_MS)
    fields = {"device": "emulated", "gpus": num_ranks, "workload": "heterogeneous", "seed": SEED}
    run = run_virtually(tmp_path / "run", make_cell(system, scenario, iterations=NUM_ITERATIONS, **fields))
    slowest, *others = ([row["learned"] for row in run.rows(rank)] for rank in range(num_ranks))
    assert slowest[-1] < min(rank[-1] for rank in others) <= NUM_ENVS * NUM_STEPS


@cells([name for name in PLANNING if "oneahead" not in name])
def test_the_series_holds_plan_and_outcome_of_preemption(
    ran_on: Callable[[Device], Ran], device: Device, system: str
) -> None:
    """All ranks have the same planned and realised S and time in their series, and S is what they learned."""
    ran = ran_on(device)
    names = ("preempt/planned_steps", "preempt/steps", "preempt/planned_s", "preempt/collect_s")
    most = NUM_ENVS * NUM_STEPS * ran.num_ranks
    for number, rows in enumerate(ran.iterations(system)):
        planned, realised, planned_s, collect_s = (rows[0][name] for name in names)
        assert len({repr([row[name] for name in names]) for row in rows}) == 1
        learned = sum(row["learned"] for row in rows)
        assert planned <= realised
        assert planned == int(planned)
        assert learned <= realised <= learned + NUM_ENVS * ran.num_ranks  # in the end some steps are for the next one
        assert collect_s > 0
        if number == 0:
            assert planned == most  # nothing is known yet
            assert math.isnan(planned_s)
        else:
            assert planned_s > 0
