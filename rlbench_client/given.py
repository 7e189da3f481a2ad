"""The run's own environments, for a trainer that makes them by a function or by a gymnasium id.

`rlbench_client/ids.py` has the ids: a trainer that takes one needs no line of our code. Each environment takes a seat
of its rank at its first reset, by creating a file that only one process can create; so an environment that is made only
to look at its spaces takes none.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlbench_client.counters import FOLDER_VARIABLE, folder

if TYPE_CHECKING:
    from harness.contract.device import Seat
    from harness.contract.scenario import Scenario
    from harness.plan.cells import Cell

RUN_VARIABLE = "RLBENCH_RUN"
"""Environment variable that names the working folder of the run, which holds its cell."""
MOST_ENVS = 65_536


def make_env(*, box: bool = False) -> Any:
    """An environment of the run's scenario, with gymnasium's interface, counted.

    Call it in the process that steps it. Its actions are `Discrete`, its observations a `Dict` of `Box` entries. Raises
    RuntimeError where there is no run, ImportError where this Python has no rlbench.

    Args:
        box: gives observations as one `Box` instead: the only entry, or all vectors end to end.
    """
    from rlbench_client.counted import count

    if RUN_VARIABLE not in os.environ or folder() is None:
        raise RuntimeError(
            f"rlbench_client.make_env: {RUN_VARIABLE} is not set; `rlbench run` sets it for its trainers"
        )
    try:
        from harness.plan import registry
        from harness.plan.cells import Cell
    except ImportError as error:
        raise ImportError(
            f"rlbench_client.make_env: {sys.executable} cannot import rlbench, which makes the environment ({error}); "
            "install it there, or wrap an environment of your own with rlbench_client.count"
        ) from None
    cell = Cell.from_json((Path(os.environ[RUN_VARIABLE]) / "cell.json").read_text(encoding="utf-8"))
    scenario = registry.load_scenario(cell.scenario, cell.workload, cell.scenario_settings)
    return count(_kind(box)(cell, scenario))


def _take_seat(cell: Cell, scenario: Scenario) -> Seat:
    """The next free seat of this rank; environments beyond the scenario's number start again at index 0."""
    from numpy.random import SeedSequence

    from harness.contract.device import Place, Seat
    from harness.devices.kinds import make_device

    rank, num_ranks, local_rank = (int(os.environ.get(name, least)) for name, least in _PLACE)
    place = Place(rank=rank, num_ranks=num_ranks, local_rank=local_rank)
    number = next(number for number in range(MOST_ENVS) if _is_taken_by_us(rank, number))
    return Seat(
        place=place,
        index=number % scenario.num_envs,
        num_envs=scenario.num_envs,
        seed=int(SeedSequence([cell.seed, rank]).generate_state(3 + number)[-1]),  # as `Context.env_seed`
        device=make_device(cell.device, place, scenario, Path(os.environ[RUN_VARIABLE])),
    )


_PLACE = (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"))


def _is_taken_by_us(rank: int, number: int) -> bool:
    try:
        os.close(os.open(Path(os.environ[FOLDER_VARIABLE]) / f"seat-{rank}-{number}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _kind(box: bool) -> Any:
    """Makes the class of environments here, because this module does not import gymnasium."""
    import gymnasium
    import numpy as np

    class ScenarioEnv(gymnasium.Env[Any, Any]):
        """An environment of a scenario, made at its first reset."""

        def __init__(self, cell: Cell, scenario: Scenario) -> None:
            self._cell, self._scenario = cell, scenario
            self._env: gymnasium.Env[Any, Any] | None = None
            self.observation_space = _box_of(scenario.observation_space) if box else scenario.observation_space
            self.action_space = gymnasium.spaces.Discrete(scenario.num_actions)

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            """Begins an episode; the first one has the seat's seed unless `seed` is given."""
            super().reset(seed=seed)
            if self._env is None:
                seat = _take_seat(self._cell, self._scenario)
                self._env = self._scenario.make_env(seat)
                seed = seat.seed if seed is None else seed
            observation, info = self._env.reset(seed=seed, options=options)
            return self._shown(observation), info

        def step(self, action: Any) -> Any:
            """Applies one action."""
            assert self._env is not None, "reset comes before the first step"
            observation, *rest = self._env.step(int(action))
            return (self._shown(observation), *rest)

        def close(self) -> None:
            """Closes what the first reset made."""
            if self._env is not None:
                self._env.close()

        def _shown(self, observation: Any) -> Any:
            if not box:
                return observation
            values = [observation[name] for name in self._scenario.observation_space.spaces]
            return values[0] if len(values) == 1 else np.concatenate(values).astype(np.float32)

    return ScenarioEnv


def _box_of(space: Any) -> Any:
    """One box for all entries. Raises ValueError when there are several and one is not a vector."""
    import gymnasium
    import numpy as np

    entries = space.spaces
    if len(entries) == 1:
        return next(iter(entries.values()))
    if several := [name for name, entry in entries.items() if len(entry.shape) != 1]:
        raise ValueError(f"box=True: {', '.join(several)} of {', '.join(entries)} is no vector; take the dict")
    low, high = (np.concatenate([getattr(entry, end) for entry in entries.values()]) for end in ("low", "high"))
    return gymnasium.spaces.Box(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)
