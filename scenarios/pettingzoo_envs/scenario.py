"""The scenario of parallel environments: its settings, and what each environment of a run is made from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import gymnasium

from rlbench.harness.contract.device import Seat
from rlbench.harness.contract.settings import TYPICAL_GPU_COSTS, GpuCosts, LearnSettings
from rlbench.scenarios.gym import named
from rlbench.scenarios.gym.arguments import ends, is_range, within
from rlbench.scenarios.gym.making import DRAWING, draw_unseen, takes_no
from rlbench.scenarios.pettingzoo_envs import making
from rlbench.scenarios.pettingzoo_envs.alone import Alone
from rlbench.scenarios.pettingzoo_envs.finding import module_name
from rlbench.scenarios.pettingzoo_envs.published import published

if TYPE_CHECKING:
    from rlbench.harness.contract.agents import ParallelLike

NUMBERED = re.compile(r"[_-]?\d+$")
"""The end of an agent's name that tells it from others of its kind."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PettingZooScenario:
    """PettingZoo's parallel environments; satisfies `harness.contract.agents.InAgents`.

    Heterogeneous: by a range of one of the constructor's arguments.
    """

    FREE: ClassVar[tuple[str, ...]] = ("kwargs",)

    name: str
    workload: str = "homogeneous"
    num_envs: int = 16
    """Environments of one rank, each with all its agents; by default as published, as are the next three."""
    rollout_steps: int = 200
    """T: steps of each agent in one rollout."""
    learn: LearnSettings = field(default_factory=LearnSettings)
    normalize_observations: bool = False
    """Policies see observations less their running mean, in units of their running deviation."""
    agents_per_env: int = 0
    """Agents that an environment may have; found by trying one, so there is no need to say it."""
    policy: str = "auto"
    """Network of `systems/learn`, one for all agents."""
    gpu_costs: GpuCosts = TYPICAL_GPU_COSTS
    """Times of an emulated GPU; environments run on the CPU."""
    preload: tuple[str, ...] = ("rlbench.scenarios.pettingzoo_envs.making",)
    """Modules an environment worker needs; of what is installed, where the environments are."""
    kwargs: Mapping[str, str] = field(default_factory=dict)
    """Arguments of the constructor, as typed; a range gives each environment a value of its own."""
    wrappers: tuple[str, ...] = ()
    """`module:Name`, the innermost first: what makes a parallel environment of another."""
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
            ("agents_per_env", self.agents_per_env >= 0, "left out; it is found"),
            ("kwargs", all(key.isidentifier() for key in self.kwargs), "names of arguments: kwargs.NAME=VALUE"),
        )
        for name, holds, rule in rules:
            if not holds:
                raise ValueError(f"{self.name}:{name}={getattr(self, name)}: must be {rule}")

    def completed(self) -> PettingZooScenario:
        """Itself with the settings that are published for its kind; tries its environments. Raises ValueError."""
        if not self.id:
            raise ValueError(
                f"{self.name}: name an environment: pettingzoo/mpe/simple_spread_v3, pettingzoo/PACKAGE.MODULE, "
                "pettingzoo/./FILE.py:CLASS"
            )
        self._check_workload()
        try:
            code = tuple(named.digest(named.absolute(name)) for name in (self.id, *self.wrappers))
            known = replace(self, code=tuple(filter(None, code)))
            for key, text in self._ranges:
                _check_range(key, text)
            kind = known.same_kind()
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from None
        if self.action_bounds == "tanh":
            self._check_bounds(kind.action_space)
        if self.agents_per_env not in {0, len(kind.agents)}:
            has = "1 agent" if len(kind.agents) == 1 else f"{len(kind.agents)} agents"
            raise ValueError(f"{self.name}:agents_per_env={self.agents_per_env}: it has {has}; leave it out")
        own = published(kind.observation_space, kind.action_space)
        return replace(
            known,
            num_envs=own.num_envs,
            rollout_steps=own.rollout_steps,
            learn=own.learn,
            normalize_observations=own.normalize_observations,
            agents_per_env=len(kind.agents),
            preload=(*self.preload, *known.modules()),
        )

    def _check_workload(self) -> None:
        if self._ranges and self.workload == "homogeneous":
            what = "kwargs.{}={}".format(*self._ranges[0])
            raise ValueError(f"{self.name}:{what}: environments differ; add --workload heterogeneous")
        if not self._ranges and self.workload == "heterogeneous":
            raise ValueError(
                f"{self.name}: --workload heterogeneous: nothing differs; give an argument a range, kwargs.NAME=5..20"
            )

    def _check_bounds(self, action: gymnasium.Space[Any]) -> None:
        import numpy as np

        from rlbench.scenarios.gym.spaces import leaves

        for _, leaf in leaves(action):
            if isinstance(leaf, gymnasium.spaces.Box) and not np.all(np.isfinite([leaf.low, leaf.high])):
                raise ValueError(f"{self.name}:action_bounds=tanh: {leaf} has no finite bounds; use action_bounds=clip")

    @property
    def id(self) -> str:
        """What stands behind `pettingzoo/`; part of the name, so that no setting names code unnoticed."""
        return self.name.partition("/")[2]

    @property
    def envs_per_batch(self) -> int:
        """The agents of an environment step together."""
        return max(1, self.agents_per_env)

    @property
    def _ranges(self) -> list[tuple[str, str]]:
        return [(key, text) for key, text in self.kwargs.items() if is_range(text)]

    def same_kind(self) -> making.Kind:
        """What all environments have in common; tries both ends of the ranges."""
        first, *others = recipes = list(self._extremes())
        making.TRIALS.apart(recipes)
        kind = making.TRIALS.of(first)
        for other in others:
            if (found := making.TRIALS.of(other)) != kind:
                own = ", ".join(f"{key}={text}" for key, text in other.kwargs if (key, text) not in first.kwargs)
                raise ValueError(
                    f"all environments must have the same agents and spaces: with {own} it has "
                    f"{len(found.agents)} agents, {found.observation_space} and {found.action_space}; "
                    f"else {len(kind.agents)}, {kind.observation_space} and {kind.action_space}"
                )
        return kind

    def _extremes(self) -> Iterator[making.Recipe]:
        for end in (0, 1) if self._ranges else (0,):
            yield self._recipe({key: ends(text)[end] for key, text in self._ranges})

    def _recipe(self, chosen: Mapping[str, str]) -> making.Recipe:
        return making.Recipe(
            id=named.absolute(self.id),
            kwargs=tuple((key, chosen.get(key, text)) for key, text in self.kwargs.items()),
            wrappers=tuple(map(named.absolute, self.wrappers)),
            code=self.code,
        )

    def modules(self) -> list[str]:
        """Modules of the environments that are installed."""
        if ":" in self.id:
            return [] if named.is_file(self.id) else [self.id.partition(":")[0]]
        return [module_name(self.id)]

    @property
    def _kind(self) -> making.Kind:
        return making.TRIALS.of(next(self._extremes()))

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """That of each agent, which all have the same."""
        return self._kind.observation_space

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        """That of each agent, which all have the same."""
        return self._kind.action_space

    def drawn(self) -> PettingZooScenario:
        """The scenario with environments that give pictures, where their constructor takes `render_mode`."""
        draw_unseen()
        drawing = replace(self, kwargs={**self.kwargs, **DRAWING})
        try:
            drawing.same_kind()
        except ValueError as error:
            if not takes_no(error, "render_mode"):
                raise
            return self
        return drawing

    def chosen(self, environment: int) -> dict[str, str]:
        """The values that one environment of the run has of the arguments that are ranges."""
        return {key: within(text, environment, number) for number, (key, text) in enumerate(self._ranges)}

    def part(self, global_index: int, seed: int) -> str:  # noqa: ARG002  the same for every seed
        """The kind of an agent: its name without the number at its end; and the arguments that are its environment's.

        Args:
            global_index: of the agent, over all environments of the run.
            seed: of its seat.
        """
        environment, place = divmod(global_index, self.envs_per_batch)
        agent = str(self._kind.agents[place])
        own = [f"{key}={text}" for key, text in self.chosen(environment).items()]
        return " ".join([NUMBERED.sub("", agent) or agent, *own])

    def make_env(self, seat: Seat) -> gymnasium.Env[Any, Any]:
        """Makes the environment of a seat whose only agent it is. Raises ValueError if there are more."""
        if self.agents_per_env > 1:
            raise ValueError(f"{self.name}: has {self.agents_per_env} agents, so it is no environment of Gymnasium's")
        return Alone(making.make(self._recipe(self.chosen(seat.global_index))))

    def make_envs(self, seats: Sequence[Seat]) -> ParallelLike:
        """Makes the environment of its agents' seats, in the process that will step it."""
        return making.make(self._recipe(self.chosen(seats[0].global_index // self.envs_per_batch)))


def _check_range(key: str, text: str) -> None:
    try:
        ends(text)
    except ValueError as error:
        raise ValueError(f"kwargs.{key}={text}: {error}") from None
