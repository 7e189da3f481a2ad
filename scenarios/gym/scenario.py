"""The scenario of Gymnasium environments: its settings, and what each environment of a run is made from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import gymnasium
import numpy as np

from rlbench.harness.contract.device import Seat
from rlbench.harness.contract.pools import PoolLike
from rlbench.harness.contract.settings import TYPICAL_GPU_COSTS, GpuCosts, LearnSettings
from rlbench.scenarios.gym import making, named
from rlbench.scenarios.gym.arguments import ends, is_range, within
from rlbench.scenarios.gym.pools import Unclipped, clips, make_pool
from rlbench.scenarios.gym.published import published
from rlbench.scenarios.gym.spaces import leaves
from rlbench.scenarios.gym.vectors import Way, check_native, make_together


@dataclass(frozen=True, kw_only=True, slots=True)
class GymScenario:
    """Gymnasium environments; satisfies `harness.contract.scenario.Scenario`.

    Heterogeneous: by a range of one of the constructor's arguments, or by several ids with equal spaces.
    """

    FREE: ClassVar[tuple[str, ...]] = ("kwargs",)

    name: str
    workload: str = "homogeneous"
    vector: Way = "none"
    """How environments are stepped: `none`, each in a worker of its own; or in batches: `sync`, one after the other;
    `process`, each in a process; `native`, by the vector environment that their id registers; `envpool`, by the
    environments that EnvPool has under that id."""
    batch: int = 0
    """Environments of a batch; 0: half of those of a rank, so that two batches take turns, or all if that is odd."""
    recv: int = 0
    """Environments of a batch of `vector=envpool` that answer at a time, each acting by itself; 0: all together. It
    has as many threads, unless `kwargs.num_threads` says it."""
    num_envs: int = 8
    """Environments of one rank; by default as published for the kind of environment, as are the next four."""
    rollout_steps: int = 128
    """T: steps of each environment in one rollout."""
    learn: LearnSettings = field(default_factory=LearnSettings)
    normalize_observations: bool = False
    """Policies see observations less their running mean, in units of their running deviation."""
    policy: str = "auto"
    """Network of `systems/learn`."""
    gpu_costs: GpuCosts = TYPICAL_GPU_COSTS
    """Times of an emulated GPU; environments run on the CPU."""
    preload: tuple[str, ...] = ("rlbench.scenarios.gym.making",)
    """Modules an environment worker needs; of what is installed, where the environments are."""
    ids: tuple[str, ...] = ()
    """Environment i of the run is of id i modulo their number."""
    kwargs: Mapping[str, str] = field(default_factory=dict)
    """Arguments of the constructor, as typed; a range gives each environment a value of its own."""
    wrappers: tuple[str, ...] = ()
    """`module:Name`, the innermost first."""
    without: tuple[str, ...] = ()
    """Entries that are removed from a Dict observation."""
    max_episode_steps: int = 0
    """Env steps after which an episode is truncated; 0: as the id says."""
    action_bounds: Literal["clip", "tanh"] = "clip"
    """How the numbers of a Box action get within its bounds: cut off, or squashed."""
    action_std: Literal["shared", "learned"] = "shared"
    """The deviation of the numbers of a Box action: one for all observations, or learned from each."""
    image_order: Literal["auto", "hwc", "chw"] = "auto"
    """The axes of images."""
    code: tuple[str, ...] = ()
    """Hashes of the files that hold its environments and wrappers: a file that was changed is other work."""

    def __post_init__(self) -> None:
        """Checks every field that can be checked without an environment."""
        rules = (
            ("num_envs", self.num_envs >= 1, "at least 1"),
            ("rollout_steps", self.rollout_steps >= 1, "at least 1"),
            ("batch", self.batch >= 0, "at least 0; 0 is half of num_envs"),
            ("batch", not self.batch or self.vector != "none", "0 with vector=none"),
            ("recv", not self.recv or self.vector == "envpool", "0, unless vector=envpool"),
            ("max_episode_steps", self.max_episode_steps >= 0, "at least 0; 0 is the id's own"),
            ("kwargs", all(key.isidentifier() for key in self.kwargs), "names of arguments: kwargs.NAME=VALUE"),
        )
        for name, holds, rule in rules:
            if not holds:
                raise ValueError(f"{self.name}:{name}={getattr(self, name)}: must be {rule}")

    def completed(self) -> GymScenario:
        """Itself with the settings that are published for its kind; tries its environments. Raises ValueError."""
        if not self.ids:
            raise ValueError(f"{self.name}: name an environment: gym/CartPole-v1, gym/PACKAGE:ID, gym/./FILE.py:CLASS")
        family, _, typed = self.name.partition("/")
        if family == "gym" and typed and typed not in self.ids:
            raise ValueError(f"{self.name}:ids={'+'.join(self.ids)}: must have {typed} among them; or write gym:ids=…")
        self._check_workload()
        try:
            code = tuple(named.digest(named.absolute(name)) for name in (*self.ids, *self.wrappers))
            known = replace(self, code=tuple(filter(None, code)))
            for key, text in self._ranges:
                _check_range(key, text)
            observation, action = known.same_spaces()
            if self.vector == "native":
                known.check_native()
            elif self.vector == "envpool":
                known.check_same()
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from None
        if self.action_bounds == "tanh":
            self._check_bounds(action)
        own = published(observation, action)
        return replace(
            known,
            num_envs=own.num_envs,
            rollout_steps=own.rollout_steps,
            learn=own.learn,
            normalize_observations=own.normalize_observations,
            preload=(*self.preload, *known.modules()),
        )

    def _check_workload(self) -> None:
        differ = len(self.ids) > 1 or bool(self._ranges)
        if differ and self.workload == "homogeneous":
            what = f"ids={'+'.join(self.ids)}" if len(self.ids) > 1 else "kwargs.{}={}".format(*self._ranges[0])
            raise ValueError(f"{self.name}:{what}: environments differ; add --workload heterogeneous")
        if not differ and self.workload == "heterogeneous":
            raise ValueError(
                f"{self.name}: --workload heterogeneous: nothing differs; give an argument a range, kwargs.NAME=5..20, "
                "or several ids, ids=A+B"
            )

    def _check_bounds(self, action: gymnasium.Space[Any]) -> None:
        for _, leaf in leaves(action):
            if isinstance(leaf, gymnasium.spaces.Box) and not np.all(np.isfinite([leaf.low, leaf.high])):
                raise ValueError(f"{self.name}:action_bounds=tanh: {leaf} has no finite bounds; use action_bounds=clip")

    @property
    def envs_per_batch(self) -> int:
        """Environments that are stepped by one call; 1 where each is stepped by itself."""
        if self.vector == "none":
            return 1
        return self.batch or (self.num_envs // 2 if self.num_envs % 2 == 0 else self.num_envs)

    @property
    def envs_per_recv(self) -> int:
        """Environments of a batch for which one answer comes; 0 where that is all of them."""
        return self.recv

    @property
    def _ranges(self) -> list[tuple[str, str]]:
        return [(key, text) for key, text in self.kwargs.items() if is_range(text)]

    def same_spaces(self) -> making.Spaces:
        """The spaces that all environments have; tries each id at both ends of the ranges."""
        first, *others = recipes = list(self._extremes())
        making.TRIALS.apart(recipes)
        spaces = self._spaces_of(first)
        for other in others:
            for what, one, two in zip(("observation", "action"), spaces, self._spaces_of(other), strict=True):
                if one != two:
                    raise ValueError(
                        f"all environments must have the same spaces: {_differing(first, other)} has the {what} space "
                        f"{two}, {_differing(other, first)} has {one}"
                    )
        return spaces

    def check_native(self) -> None:
        """Raises ValueError unless all environments are the same, and a vector of their own has them."""
        check_native(self.check_same())

    def check_same(self) -> making.Recipe:
        """Raises ValueError unless all environments are the same; returns what they are made from."""
        first, *others = self._extremes()
        if others:
            raise ValueError(f"vector={self.vector}: all its environments are the same; use vector=sync or process")
        return first

    def _spaces_of(self, recipe: making.Recipe) -> making.Spaces:
        try:
            return making.TRIALS.of(recipe)
        except ValueError as error:
            is_told = self.name.rpartition("/")[2] == recipe.id.rpartition("/")[2]
            raise ValueError(str(error) if is_told else f"{recipe.id}: {error}") from None

    def _extremes(self) -> Iterator[making.Recipe]:
        for name in self.ids:
            for end in (0, 1) if self._ranges else (0,):
                yield self._recipe(name, {key: ends(text)[end] for key, text in self._ranges})

    def _recipe(self, name: str, chosen: Mapping[str, str]) -> making.Recipe:
        return making.Recipe(
            id=named.absolute(name),
            kwargs=tuple((key, chosen.get(key, text)) for key, text in self.kwargs.items()),
            wrappers=tuple(map(named.absolute, self.wrappers)),
            without=self.without,
            max_episode_steps=self.max_episode_steps,
            code=self.code,
            of_envpool=self.vector == "envpool",
        )

    def modules(self) -> list[str]:
        """Modules of the environments that are installed."""
        if self.vector == "envpool":
            return ["envpool"]
        homes = []
        for name in self.ids:
            if not named.is_file(name):
                point = making.find(name).entry_point
                homes += [point.partition(":")[0] if isinstance(point, str) else point.__module__]
        return list(dict.fromkeys(homes))

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """That of the environments, which all have the same."""
        return making.TRIALS.of(next(self._extremes()))[0]

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        """That of the environments, which all have the same."""
        return making.TRIALS.of(next(self._extremes()))[1]

    def drawn(self) -> GymScenario:
        """The scenario with environments that give pictures, where their constructor takes `render_mode`."""
        making.draw_unseen()
        drawing = replace(self, kwargs={**self.kwargs, **making.DRAWING})
        try:
            drawing.same_spaces()
        except ValueError as error:
            if not making.takes_no(error, "render_mode"):
                raise
            return self
        return drawing

    def chosen(self, global_index: int) -> dict[str, str]:
        """The values that one environment of the run has of the arguments that are ranges."""
        return {key: within(text, global_index, number) for number, (key, text) in enumerate(self._ranges)}

    def part(self, global_index: int, seed: int) -> str:  # noqa: ARG002  the same for every seed
        """The id, and the arguments that are its own."""
        own = [f"{key}={text}" for key, text in self.chosen(global_index).items()]
        return " ".join([self.ids[global_index % len(self.ids)], *own])

    def make_env(self, seat: Seat) -> gymnasium.Env[Any, Any]:
        """Makes the environment of a seat, in the process that will step it."""
        return making.make(self._recipe_of(seat))

    def make_envs(self, seats: Sequence[Seat]) -> gymnasium.vector.VectorEnv[Any, Any, Any] | PoolLike:
        """Makes the environments of a batch of seats, in the process that will step them."""
        if self.vector == "envpool":
            name, arguments = making.pool_arguments(self._recipe_of(seats[0]))
            pool = make_pool(name, arguments, [seat.seed for seat in seats], self.recv or len(seats))
            return Unclipped(pool) if clips(arguments) else pool
        return make_together([self._recipe_of(seat) for seat in seats], self.vector)

    def _recipe_of(self, seat: Seat) -> making.Recipe:
        name = self.ids[seat.global_index % len(self.ids)]
        return self._recipe(name, self.chosen(seat.global_index))


def _check_range(key: str, text: str) -> None:
    try:
        ends(text)
    except ValueError as error:
        raise ValueError(f"kwargs.{key}={text}: {error}") from None


def _differing(first: making.Recipe, other: making.Recipe) -> str:
    """The other of two environments, by what it differs in."""
    if first.id != other.id:
        return other.id
    own = [f"{key}={text}" for key, text in other.kwargs if (key, text) not in first.kwargs]
    return f"{other.id} with {', '.join(own)}"
