"""From a system's five choices to its model, and from the model to what a run would have left.

    crews (`loops.py`) --update by update, the earliest first--> sites (`fleet.py`: samplers, environments, GPUs)
       |  talks (`talks.py`: all-reduce, gossip, server)               |  times (the scenario's draws)
       └--> ledger (rows, counters) <----------------------------------┘

One process and one thread: nothing blocks. Letters: R ranks, N environments of a rank.
"""

from __future__ import annotations

import heapq
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from rlbench.harness.contract.agents import agents_per_env
from rlbench.harness.contract.envs import envs_per_batch, envs_per_recv
from rlbench.harness.contract.prediction import Prediction, Timed
from rlbench.harness.metering.fates import Fates
from rlbench.systems.choices.average import Central, Gossip
from rlbench.systems.choices.overlap import Alternate, OneAhead
from rlbench.systems.choices.preempt import Never, Optimal, Threshold
from rlbench.systems.choices.rollout import Trajectories
from rlbench.systems.model.crew import Crew, RunModel
from rlbench.systems.model.fleet import Fleet
from rlbench.systems.model.ledger import NO_SAMPLER, Ledger, Places, counters_of
from rlbench.systems.model.loops import alternate, continuous, one_ahead
from rlbench.systems.model.setup import make_fleet_state, make_rules, seeds_of
from rlbench.systems.model.state import FIXED, STREAM
from rlbench.systems.model.stragglers import MonitorModel, NeverMonitorModel, OptimalMonitor, ThresholdMonitor
from rlbench.systems.model.talks import AllReduceTalks, CentralTalks, GossipTalks, ServerTalks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rlbench.harness.contract.budget import Limits
    from rlbench.harness.contract.scenario import Scenario
    from rlbench.systems.choices.choices import Choices
    from rlbench.systems.model.crew import Talks


def predict(system: Choices, scenario: Scenario, num_ranks: int, seed: int, limits: Limits) -> Prediction:
    """Predicts a run on `num_ranks` emulated GPUs. Raises ValueError for a run that the model does not cover."""
    if reason := why_not(system, scenario, limits):
        raise ValueError(f"predict: {system.name} on {scenario.name}: {reason}")
    assert isinstance(scenario, Timed)
    is_central = isinstance(system.average, Central)
    rules = make_rules(system, scenario, num_ranks)
    fleet = Fleet(
        make_fleet_state(system, scenario, num_ranks, rules),
        rules,
        scenario.times(seeds_of(scenario, num_ranks, seed)),
    )
    run = RunModel(
        fleet=fleet,
        ledger=Ledger(
            places=_places(num_ranks, is_central=is_central),
            has_lane=system.overlap.is_concurrent,
            num_envs=fleet.state.envs.shape[1] * rules.of_batch,
        ),
        talks=_talks(system, scenario, num_ranks, seed),
        limits=limits,
        learn=scenario.learn,
        split=system.rollout.split,
        costs=scenario.gpu_costs,
    )
    _run_crews([(crew, _loop(system, crew)) for crew in _crews(run, num_ranks, is_central=is_central)])
    return _outcome(run, scenario, num_ranks, seed)


def why_not(system: Choices, scenario: Scenario, limits: Limits) -> str | None:
    """None if the model covers the run; else what it does not cover, and what it does."""
    if (agents := agents_per_env(scenario)) > 1:
        return f"a model steps environments with one agent, not with {agents}"
    if not isinstance(scenario, Timed):
        return "its times are not known; a profile states them: `rlbench profile` makes one, for --scenario emulated/…"
    is_stream, is_ahead = isinstance(system.rollout, Trajectories), _is_one_ahead(system)
    of_batch, batch = envs_per_batch(scenario), getattr(system.rollout, "batch", 0)
    rules = (
        (envs_per_recv(scenario), "a model has no pools that answer for some of their environments; use recv=0"),
        (
            limits.until is not None,
            f"--until {limits.until}: a model does not learn; use --iterations, --seconds or --env-steps",
        ),
        (
            is_stream != (system.overlap.is_concurrent and not is_ahead),
            "the model has rollout=trajectories with overlap=continuous alone",
        ),
        (
            is_ahead and not isinstance(system.preempt, Never),
            "the model has overlap=oneahead with preempt=never alone",
        ),
        (
            batch % of_batch,
            f"rollout.batch={batch}: the model learns from whole batches of environments; use a multiple of {of_batch}",
        ),
    )
    return next((why for breaks, why in rules if breaks), None)


def _is_one_ahead(system: Choices) -> bool:
    return isinstance(system.overlap, OneAhead)


def _places(num_ranks: int, *, is_central: bool) -> Places:
    ranks, zeros = np.arange(num_ranks), np.zeros(num_ranks, np.int64)
    if is_central:
        return Places(site=np.where(ranks == 0, 0, NO_SAMPLER), gpu_site=zeros, gpu=ranks)
    return Places(site=ranks, gpu_site=ranks, gpu=zeros)


def _talks(system: Choices, scenario: Scenario, num_ranks: int, seed: int) -> Talks:
    network, average = scenario.gpu_costs.network, system.average
    if isinstance(average, Central):
        return CentralTalks()
    if isinstance(average, Gossip):
        return GossipTalks(network, num_ranks, average, seed)
    if interval := getattr(average, "interval", 0):
        return ServerTalks(network, num_ranks, interval)
    return AllReduceTalks(network, num_ranks, scenario.learn)


def _crews(run: RunModel, num_ranks: int, *, is_central: bool) -> list[Crew]:
    ranks, nobody = np.arange(num_ranks), np.arange(0)
    if is_central:
        return [Crew(run=run, ranks=ranks[:1], sites=ranks[:1], followers=ranks[1:])]
    if run.talks.is_synchronous:
        return [Crew(run=run, ranks=ranks, sites=ranks, followers=nobody)]
    return [Crew(run=run, ranks=ranks[r : r + 1], sites=ranks[r : r + 1], followers=nobody) for r in range(num_ranks)]


def _loop(system: Choices, crew: Crew) -> Iterator[None]:
    preempt, overlap = system.preempt, system.overlap
    monitor: MonitorModel = NeverMonitorModel()
    if isinstance(preempt, Threshold) and preempt.p < 1:
        monitor = ThresholdMonitor()
    elif isinstance(preempt, Optimal):
        monitor = OptimalMonitor()
    fills_stale = isinstance(preempt, Optimal) and preempt.fill_stale
    if isinstance(overlap, Alternate):
        return alternate(crew, monitor, fills_stale=fills_stale)
    if isinstance(overlap, OneAhead):
        return one_ahead(crew, monitor, fills_stale=fills_stale)
    return continuous(crew, overlap.max_lag)


def _run_crews(crews: Sequence[tuple[Crew, Iterator[None]]]) -> None:
    """Resumes the crew that is earliest in time, until all have ended."""
    waiting = [(0.0, number) for number in range(len(crews))]
    while waiting:
        _, number = heapq.heappop(waiting)
        crew, loop = crews[number]
        with suppress(StopIteration):
            next(loop)
            heapq.heappush(waiting, (float(crew.at.max()), number))


def _outcome(run: RunModel, scenario: Scenario, num_ranks: int, seed: int) -> Prediction:
    """Lets every step that has begun end, and counts what is left."""
    run.fleet.drain()
    state, rules, counts = run.fleet.state, run.fleet.rules, run.ledger.counts
    unlearned = state.sites["num_arrived"]
    if rules.rollout == STREAM:
        unlearned = state.sites["num_waiting"] + state.envs["taken"].sum(1)
    in_flight = np.zeros(num_ranks, np.int64)
    in_flight[: len(unlearned)] = rules.of_batch * unlearned
    assert isinstance(scenario, Timed)
    return Prediction(
        fates=_fates(run),
        rows=sorted(run.ledger.rows, key=lambda row: (row["rank"], row["iteration"])),
        of_ranks={**counts, "in_flight": in_flight, "lag_max": run.ledger.lag_max},
        of_envs=counters_of(state, rules, scenario, seeds_of(scenario, num_ranks, seed), num_ranks),
    )


def _fates(run: RunModel) -> list[Fates]:
    """What became of the env steps of each site's environments."""
    state, rules, ledger = run.fleet.state, run.fleet.rules, run.ledger
    in_flight = state.envs["taken"] + state.envs["left"]
    if rules.rollout == STREAM:
        for site, (first, num_whole) in enumerate(state.sites[["whole_first", "num_whole"]].tolist()):
            waiting = state.whole[site, (first + np.arange(num_whole)) % state.whole.shape[1]]
            np.add.at(in_flight[site], waiting["env"], rules.num_steps - waiting["first"])
    in_flight = np.repeat(in_flight, rules.of_batch, axis=1)
    return [
        Fates(
            first_env=site * in_flight.shape[1],
            blocks=ledger.fates[site],
            num_whole=int(ledger.iterations[site] // ledger.per_block[site]),  # the site of rank 0, or of each rank
            cut=ledger.cut[site] if rules.rollout == FIXED and rules.of_batch == 1 else None,
            in_flight=in_flight[site],
        )
        for site in range(len(in_flight))
    ]
