"""The entry points `gym`, `mujoco`, `dm_control` and `minigrid`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec

from rlbench.results.reading.names import known_variants
from rlbench.scenarios.gym.named import moved, names_code
from rlbench.scenarios.gym.scenario import GymScenario

MUJOCO = (
    *("HalfCheetah", "Ant", "Hopper", "Humanoid", "HumanoidStandup", "InvertedDoublePendulum", "InvertedPendulum"),
    *("Pusher", "Reacher", "Swimmer", "Walker2d"),
)
"""Gymnasium's tasks on MuJoCo, of version 5; the default first."""
DEFAULT_CONTROL = "cheetah-run"
CONTROL = re.compile(r"dm_control/(?!compatibility)([a-z]\w*-\w+)-v0")
"""An id of the Control Suite, which shimmy registers: domain and task; others are `gym/dm_control/…`."""
DEFAULT_GRID = "DoorKey-8x8"
GRID = re.compile(r"MiniGrid-(.+?)(-v0)?")
"""An id; the version is named where it is not 0."""


class _OfGymnasium:
    """What the families have in common."""

    about: str
    variants: tuple[str, ...]
    draws = True

    def names_code(self, variant: str, settings: Mapping[str, str]) -> bool:
        """Whether a scenario names code of the user's; see `harness.contract.scenario.ScenarioFamily`."""
        return names_code(variant, settings)

    def moved(
        self, variant: str, settings: Mapping[str, str], move: Callable[[str], str]
    ) -> tuple[str, dict[str, str]]:
        """The variant and the settings, with the paths of files moved; see `harness.contract.extras.NamesFiles`."""
        return moved(variant, settings, move)


class GymFamily(_OfGymnasium):
    """`gym/<id>`, `gym/<module>:<id>`, `gym/<file>.py:<class>`."""

    about = "any Gymnasium environment: gym/CartPole-v1, gym/PACKAGE:ID, gym/./FILE.py:CLASS"
    variants: tuple[str, ...] = ()

    def unavailable(self) -> str | None:
        """None: rlbench needs Gymnasium itself."""
        return None

    def make(self, variant: str, workload: str) -> GymScenario:
        """Makes the scenario of an id; `gym` alone has its ids from `ids`."""
        return GymScenario(
            name=f"gym/{variant}" if variant else "gym", workload=workload, ids=(variant,) if variant else ()
        )


class MujocoFamily(_OfGymnasium):
    """`mujoco/ant` is `gym/Ant-v5`."""

    about = "control on MuJoCo, Gymnasium's tasks of version 5: mujoco/ant is gym/Ant-v5"
    variants = tuple(name.lower() for name in MUJOCO)

    def unavailable(self) -> str | None:
        """None, or the command that installs MuJoCo."""
        return None if find_spec("mujoco") else "mujoco is not installed; pip install 'gymnasium[mujoco]'"

    def make(self, variant: str, workload: str) -> GymScenario:
        """Makes the scenario of a task."""
        variant = variant or self.variants[0]
        if variant not in self.variants:
            raise ValueError(f"mujoco/{variant}: unknown task; {known_variants(variant, self.variants)}")
        task = MUJOCO[self.variants.index(variant)]
        return GymScenario(name=f"mujoco/{variant}", workload=workload, ids=(f"{task}-v5",))


class DmControlFamily(_OfGymnasium):
    """`dm_control/cheetah-run` is `gym/dm_control/cheetah-run-v0`."""

    about = "the DeepMind Control Suite by shimmy: dm_control/cheetah-run is gym/dm_control/cheetah-run-v0"

    @property
    def variants(self) -> tuple[str, ...]:  # type: ignore[override]  # it is read, never set
        """The suite's tasks, the default first; () without shimmy or dm-control."""
        return _controls() if self.unavailable() is None else ()

    def unavailable(self) -> str | None:
        """None, or the command that installs both."""
        missing = [package for package in ("shimmy", "dm_control") if not find_spec(package)]
        return f"{missing[0]} is not installed; pip install 'shimmy[dm-control]'" if missing else None

    def make(self, variant: str, workload: str) -> GymScenario:
        """Makes the scenario of a task."""
        if reason := self.unavailable():
            raise ValueError(f"dm_control: {reason}")
        variant = variant or DEFAULT_CONTROL
        if variant not in self.variants:
            raise ValueError(f"dm_control/{variant}: unknown task; {known_variants(variant, self.variants)}")
        return GymScenario(name=f"dm_control/{variant}", workload=workload, ids=(f"dm_control/{variant}-v0",))


class MinigridFamily(_OfGymnasium):
    """`minigrid/DoorKey-8x8` is `gym/MiniGrid-DoorKey-8x8-v0:without=mission`: no policy reads the mission's text."""

    about = "grid worlds of Minigrid, without the mission's text: minigrid/DoorKey-8x8 is MiniGrid-DoorKey-8x8-v0"

    @property
    def variants(self) -> tuple[str, ...]:  # type: ignore[override]  # it is read, never set
        """What minigrid registers, the default first; () without minigrid."""
        return _grids() if self.unavailable() is None else ()

    def unavailable(self) -> str | None:
        """None, or the command that installs Minigrid."""
        return None if find_spec("minigrid") else "minigrid is not installed; pip install minigrid"

    def make(self, variant: str, workload: str) -> GymScenario:
        """Makes the scenario of a grid world."""
        if reason := self.unavailable():
            raise ValueError(f"minigrid: {reason}")
        variant = variant or DEFAULT_GRID
        if variant not in self.variants:
            raise ValueError(f"minigrid/{variant}: unknown grid world; {known_variants(variant, self.variants)}")
        version = "" if re.search(r"-v\d+$", variant) else "-v0"
        name = f"MiniGrid-{variant}{version}"
        return GymScenario(name=f"minigrid/{variant}", workload=workload, ids=(name,), without=("mission",))


@cache
def _controls() -> tuple[str, ...]:
    import gymnasium
    import shimmy  # noqa: F401  it registers them

    found = [match[1] for name in gymnasium.registry if (match := CONTROL.fullmatch(name))]
    return (DEFAULT_CONTROL, *sorted(set(found) - {DEFAULT_CONTROL}))


@cache
def _grids() -> tuple[str, ...]:
    import gymnasium
    import minigrid  # noqa: F401  it registers them

    found = [match[1] for name in gymnasium.registry if (match := GRID.fullmatch(name))]
    return (DEFAULT_GRID, *sorted(set(found) - {DEFAULT_GRID}))


GYM, MUJOCO_FAMILY, DM_CONTROL, MINIGRID = GymFamily(), MujocoFamily(), DmControlFamily(), MinigridFamily()
