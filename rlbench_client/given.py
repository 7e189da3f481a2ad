"""The run's own environments, for a trainer that makes them by a function or by a gymnasium id.

Under a protocol of still work they apply actions of a list instead of the trainer's, as those of rlbench's own systems
do, and begin with their seats' seeds (`rlbench.harness.metering.still`).

`rlbench_client/ids.py` has the ids: a trainer that takes one needs no line of our code. Each environment takes a seat
of its rank at its first reset, by creating a file that only one process can create; so an environment that is made only
to look at its spaces takes none.
"""

from __future__ import annotations

import os
import site
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlbench_client.counters import FOLDER_VARIABLE, folder

if TYPE_CHECKING:
    from rlbench.harness.contract.device import Seat
    from rlbench.harness.contract.scenario import Scenario
    from rlbench.harness.plan.cells import Cell

RUN_VARIABLE = "RLBENCH_RUN"
"""Environment variable that names the working folder of the run, which holds its cell."""
PACKAGES_VARIABLE = "RLBENCH_PACKAGES"
"""Environment variable with rlbench's version of Python and the folders of its packages, with `os.pathsep` between."""
STILL_VARIABLE = "RLBENCH_STILL"
"""Environment variable that is there where work is to be still."""
MOST_ENVS = 65_536


def make_env(*, box: bool = False) -> Any:
    """An environment of the run's scenario, with gymnasium's interface, counted.

    Call it in the process that steps it. Its spaces are the scenario's. Raises RuntimeError where there is no run,
    ImportError where this Python has no rlbench, ValueError where `box` cannot be.

    Args:
        box: gives observations as one `Box` instead: the only entry if that is a `Box`, or all numbers end to end, of
            `Discrete` and `MultiDiscrete` one-hot. An image beside other entries is refused.
    """
    from rlbench_client.counted import count

    if RUN_VARIABLE not in os.environ or folder() is None:
        raise RuntimeError(
            f"rlbench_client.make_env: {RUN_VARIABLE} is not set; `rlbench run` sets it for its trainers"
        )
    _find_packages()
    try:
        from rlbench.harness.plan import registry
        from rlbench.harness.plan.cells import Cell
    except ImportError as error:
        raise ImportError(
            f"rlbench_client.make_env: {sys.executable} cannot import rlbench, which makes the environment ({error}); "
            "install it there, or wrap an environment of your own with rlbench_client.count"
        ) from None
    cell = Cell.from_json((Path(os.environ[RUN_VARIABLE]) / "cell.json").read_text(encoding="utf-8"))
    scenario = registry.load_scenario(cell.scenario, cell.workload, cell.scenario_settings)
    return count(_kind(box)(cell, scenario))


def _find_packages() -> None:
    """Lets this process find what environments need among rlbench's packages, behind its own.

    A trainer's virtual environment has its library, but neither the user's simulators nor the user's own package.
    """
    version, *folders = os.environ.get(PACKAGES_VARIABLE, "").split(os.pathsep)
    if version == python_version():
        for path in folders:
            if path not in sys.path:
                site.addsitedir(path)


def python_version() -> str:
    """The version for which packages are built: `3.11`."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _take_seat(cell: Cell, scenario: Scenario) -> tuple[int, Seat]:
    """Which environment of this rank it is, and its seat; those beyond the scenario's number start again at index 0."""
    from numpy.random import SeedSequence

    from rlbench.harness.contract.device import Place, Seat
    from rlbench.harness.devices.kinds import make_device

    rank, num_ranks, local_rank = (int(os.environ.get(name, least)) for name, least in _PLACE)
    place = Place(rank=rank, num_ranks=num_ranks, local_rank=local_rank)
    number = next(number for number in range(MOST_ENVS) if _is_taken_by_us(rank, number))
    return number, Seat(
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
    """The class of environments; made here, because this module does not import gymnasium."""
    import gymnasium

    class ScenarioEnv(gymnasium.Env[Any, Any]):
        """An environment of a scenario, made at its first reset."""

        def __init__(self, cell: Cell, scenario: Scenario) -> None:
            self._cell, self._scenario = cell, scenario
            self._env: gymnasium.Env[Any, Any] | None = None
            self.observation_space = _box_of(scenario.observation_space) if box else scenario.observation_space
            self.action_space = scenario.action_space

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            """Begins an episode; the first one has the seat's seed unless `seed` is given."""
            super().reset(seed=seed)
            if self._env is None:
                number, seat = _take_seat(self._cell, self._scenario)
                self._env = self._scenario.make_env(seat)
                self._begin(number, seat)
                seed = seat.seed if seed is None else seed
            observation, info = self._env.reset(seed=seed, options=options)
            return self._shown(observation), info

        def step(self, action: Any) -> Any:
            """Applies one action."""
            assert self._env is not None, "reset comes before the first step"
            observation, *rest = self._env.step(_taken(self.action_space, action))
            return (self._shown(observation), *rest)

        def close(self) -> None:
            """Closes what the first reset made."""
            if self._env is not None:
                self._env.close()

        def _begin(self, number: int, seat: Seat) -> None:
            """What there is to do once the environment has its seat."""

        def _shown(self, observation: Any) -> Any:
            return _joined(self._scenario.observation_space, observation) if box else observation

    return _still_kind(ScenarioEnv) if STILL_VARIABLE in os.environ else ScenarioEnv


def _still_kind(base: Any) -> Any:
    """The class of environments that do still work."""
    from rlbench.harness.metering.still import StillSteps, marks_path, open_marks

    class StillScenarioEnv(StillSteps, base):  # type: ignore[misc]  # `base` is a class
        """Does what depends on its seat and its number of steps alone."""

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            """Begins an episode; the first one has the seat's seed, whatever the trainer gives."""
            del seed
            return super().reset(options=options)

        def _begin(self, number: int, seat: Seat) -> None:
            """What those beyond the scenario's number do is not marked, because others have their rows."""
            marks = open_marks(marks_path(Path(os.environ[RUN_VARIABLE]), seat.place.rank), seat.num_envs)
            self.hold(self.action_space, seat.seed, marks[number] if number < seat.num_envs else marks[0].copy())

        def _did(self, steps: int, reward: Any, *, terminated: Any, truncated: Any) -> None:
            """Takes them as Python's numbers, whatever the simulator has."""
            super()._did(steps, float(reward), terminated=bool(terminated), truncated=bool(truncated))

    return StillScenarioEnv


def _taken(space: Any, action: Any) -> Any:
    """An action as the scenario has it, of the type that its space says; trainers give other types of numbers."""
    import numpy as np
    from gymnasium.spaces import Dict, Discrete, Tuple

    if isinstance(space, Discrete):
        return int(action)
    return action if isinstance(space, (Dict, Tuple)) else np.asarray(action, dtype=space.dtype)


def _joined(space: Any, observation: Any) -> Any:
    """An observation as `_box_of` its space has it."""
    from gymnasium.spaces import Box

    from rlbench_client.flat import leaves_of, vector_of

    leaves = leaves_of(space)
    is_one = len(leaves) == 1 and isinstance(leaves[0].space, Box)
    return leaves[0].read(observation) if is_one else vector_of(leaves, observation)


def _box_of(space: Any) -> Any:
    """One box for all leaves. Raises ValueError when there are several and one is no vector."""
    from gymnasium.spaces import Box

    from rlbench_client.flat import leaves_of, vector_space, why_no_vector

    leaves = leaves_of(space)
    if len(leaves) == 1 and isinstance(leaves[0].space, Box):
        return leaves[0].space
    if images := [leaf.key for leaf in leaves if len(leaf.space.shape or ()) > 1 and isinstance(leaf.space, Box)]:
        entries = ", ".join(leaf.key for leaf in leaves)
        raise ValueError(f"box=True: {', '.join(images)} of {entries} is no vector; take the observations as they are")
    for leaf in leaves:
        if reason := why_no_vector(leaf):
            raise ValueError(f"box=True: {leaf.key}: {reason}, is {type(leaf.space).__name__}")
    return vector_space(leaves)
