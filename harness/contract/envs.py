"""The environments that systems get: made by the scenario, counted by the harness."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from rlbench.harness.contract.pools import PoolLike
from rlbench.harness.metering.counted import CountedEnv, episodes_path, shown
from rlbench.harness.metering.meter_file import Block, MeterFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    import gymnasium

    from rlbench.harness.contract.device import Seat
    from rlbench.harness.metering.batches.counted_agents import CountedAgents
    from rlbench.harness.metering.batches.counted_batch import CountedBatch
    from rlbench.harness.metering.batches.counted_pool import CountedPool
    from rlbench.harness.metering.blocks import Blocks
    from rlbench.harness.metering.still import StillRows


class MakesEnvs(Protocol):
    """A scenario, or a wrapper of one."""

    def make_env(self, seat: Seat) -> gymnasium.Env[Any, Any]:
        """Makes one environment."""


@runtime_checkable
class InParts(Protocol):
    """What a scenario may have whose environments differ: in their games, maps or scenes."""

    def part(self, global_index: int, seed: int) -> str:
        """The part of the scenario that environment or agent `global_index` of a run has; its seed is `seed` (`Seat`).

        The record says what each part was learned from; environments with the same text are of the same part.
        """


@runtime_checkable
class InBatches(Protocol):
    """What a scenario may have whose environments are stepped in batches, each by one call.

    It has `make_env` as well; both must make the same environments for the same seats.
    """

    @property
    def envs_per_batch(self) -> int:
        """B, environments of a batch; with 0 or 1, `make_env` makes each environment by itself."""

    def make_envs(self, seats: Sequence[Seat]) -> gymnasium.vector.VectorEnv[Any, Any, Any] | PoolLike:
        """Makes the environments of B neighbouring seats as one, in the process that will step them.

        Its spaces are the scenario's, batched; any `AutoresetMode` will do that `metadata["autoreset_mode"]` names.
        `reset` is first called with a seed for each environment, as `SyncVectorEnv` takes them. Where that raises a
        TypeError or ValueError, or gymnasium's error, it is called with an array of their low 31 bits, int32,
        and then with the first of these alone. A later reset is for the environments in `options["reset_mask"]`, if
        those whose episodes have ended must be told to begin another.

        The infos, arrays of B with their masks, may hold what those of a single environment may (`Scenario.make_env`).
        Where the step resets an environment whose episode has ended, they must hold the last observation in `final_obs`
        and may hold the infos of the ended episode in `final_info`.

        All arrays may be tensors, of PyTorch or JAX, on a GPU or not. They are copied to host memory as whole arrays,
        those of the infos only if they are read; actions and `reset_mask` are then given as tensors, on the device of
        the last observation.

        Instead of a vector environment it may be a pool, whose environments have the seeds of the seats from the start.
        """


@runtime_checkable
class InPools(InBatches, Protocol):
    """What a scenario may have whose batches are pools: environments that act by themselves, for which one answers."""

    @property
    def envs_per_recv(self) -> int:
        """M, environments of one answer of `PoolLike.recv`, known before there is a pool; it divides B. 0: all B."""


class Batched(Protocol):
    """As much of a scenario `InBatches` as counting takes."""

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """That of one environment."""

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        """That of one environment."""

    def make_envs(self, seats: Sequence[Seat]) -> gymnasium.vector.VectorEnv[Any, Any, Any] | PoolLike:
        """Makes the environments."""


def envs_per_batch(scenario: MakesEnvs) -> int:
    """How many environments of a scenario are stepped in one call; 1 where each is stepped by itself."""
    return max(1, getattr(scenario, "envs_per_batch", 1))


def envs_per_recv(scenario: MakesEnvs) -> int:
    """M, where environments of a scenario are in pools that answer for M of them at a time, and not for all; else 0."""
    num: int = getattr(scenario, "envs_per_recv", 0)
    return 0 if num == envs_per_batch(scenario) else num


def env_seeds(seed: int, rank: int, num_envs: int) -> list[int]:
    """The seeds of the first `num_envs` environments of a rank, of a run with a seed."""
    from numpy.random import SeedSequence

    seeds: list[int] = SeedSequence([seed, rank]).generate_state(2 + num_envs).tolist()
    return seeds[2:]


def make_counted_env(scenario: MakesEnvs, seat: Seat, folder: Path | str, meter: Path) -> CountedEnv:
    """Makes environment `seat.index` of a rank, with its counters. Call it in the process that will step it.

    Raises ValueError if its spaces, where it has them, are not what the scenario states.
    """
    file = MeterFile(meter, writable=True)
    env = scenario.make_env(seat)
    for name in ("observation_space", "action_space"):
        given, stated = getattr(env, name, None), getattr(scenario, name, None)
        if given is not None and stated is not None and given != stated:
            who = f"environment {seat.global_index} has"
            raise ValueError(f"{who} {name} {shown(given)}: the scenario states {shown(stated)}")
    counted = Block(file, 1 + seat.index), _open_episodes(folder, seat), seat.global_index, seat.seed
    if not file.still:
        return CountedEnv(env, *counted)
    from rlbench.harness.metering.still import StillEnv

    return StillEnv(env, *counted, _marks_of(folder, [seat])[0])


def make_counted_batch(scenario: Batched, seats: Sequence[Seat], folder: Path | str, meter: Path) -> CountedBatch:
    """Makes the environments of neighbouring seats of a rank, with their counters, as one `CountedBatch`.

    Call it in the process that will step them. Raises ValueError if they are not what the scenario states.
    """
    from rlbench.harness.metering.batches.counted_batch import CountedBatch
    from rlbench.harness.metering.batches.pool_envs import WholePool, check_pool
    from rlbench.harness.metering.batches.tensors import OnHost
    from rlbench.harness.metering.batches.vector_envs import check_batch

    first, spaces = seats[0], (scenario.observation_space, scenario.action_space)
    file = MeterFile(meter, writable=True)
    blocks = _blocks_of(seats, file)
    envs = scenario.make_envs(seats)
    if isinstance(envs, PoolLike):
        check_pool(envs, len(seats), len(seats), *spaces)
        envs = WholePool(envs)
    else:
        envs = OnHost(envs)
    check_batch(envs, len(seats), *spaces)
    seeds = [seat.seed for seat in seats]
    still = _still(scenario, seats, folder) if file.still else None
    return CountedBatch(envs, blocks, _open_episodes(folder, first), first.global_index, seeds, still)


def make_counted_agents(scenario: Batched, seats: Sequence[Seat], folder: Path | str, meter: Path) -> CountedAgents:
    """Makes the environment of the agents that have neighbouring seats of a rank, with the counters of each of them.

    Call it in the process that will step it. Raises ValueError if it is not what the scenario states.
    """
    from rlbench.harness.metering.batches.agent_rows import check_agents
    from rlbench.harness.metering.batches.counted_agents import CountedAgents

    first, spaces = seats[0], (scenario.observation_space, scenario.action_space)
    file = MeterFile(meter, writable=True)
    blocks = _blocks_of(seats, file)
    env: Any = scenario.make_envs(seats)
    check_agents(env, len(seats), *spaces)
    still = _still(scenario, seats, folder) if file.still else None
    return CountedAgents(env, spaces, blocks, _open_episodes(folder, first), first.global_index, first.seed, still)


def make_counted_pool(
    scenario: Batched, seats: Sequence[Seat], folder: Path | str, meter: Path, of_recv: int
) -> CountedPool:
    """Makes the environments of neighbouring seats of a rank, with their counters, as a pool that answers for M.

    Call it in the process that will step them. Raises ValueError if they are not what the scenario states.
    """
    from rlbench.harness.metering.batches.counted_pool import CountedPool
    from rlbench.harness.metering.batches.pool_envs import check_pool

    first, file = seats[0], MeterFile(meter, writable=True)
    blocks = _blocks_of(seats, file)
    envs = scenario.make_envs(seats)
    if not isinstance(envs, PoolLike):
        kind = type(envs).__name__
        problem = f"make_envs gave a {kind}: it must give a pool, since the scenario states envs_per_recv"
        raise ValueError(problem)  # noqa: TRY004  what a scenario gives
    check_pool(envs, len(seats), of_recv, scenario.observation_space, scenario.action_space)
    still = _still(scenario, seats, folder) if file.still else None
    return CountedPool(envs, of_recv, blocks, _open_episodes(folder, first), first.global_index, still)


def _blocks_of(seats: Sequence[Seat], file: MeterFile) -> Blocks:
    from rlbench.harness.metering.blocks import Blocks

    first = seats[0].index
    assert [seat.index for seat in seats] == list(range(first, first + len(seats))), "seats are neighbours"
    return Blocks(file, 1 + first, len(seats))


def _still(scenario: Batched, seats: Sequence[Seat], folder: Path | str) -> StillRows:
    """The actions of environments that one call steps."""
    from rlbench.harness.metering.still import StillRows

    return StillRows(scenario.action_space, seats[0].seed, _marks_of(folder, seats))


def _marks_of(folder: Path | str, seats: Sequence[Seat]) -> Any:
    from rlbench.harness.metering.still import marks_path, open_marks

    first = seats[0]
    marks = open_marks(marks_path(Path(folder), first.place.rank), first.num_envs)
    return marks[first.index : first.index + len(seats)]


def _open_episodes(folder: Path | str, seat: Seat) -> int:
    path = episodes_path(Path(folder), seat.place.rank)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
