"""What systems made with other people's libraries share.

Each library has a folder beside this file: `adapter.py` translates a cell into settings for the library, `train.py`
runs in the library's own virtual environment and passes them to it, `requirements.txt` has the exact versions. The
trainer is started, watched, counted and ended as any command is (`command.py`). Each system lists its departures from
rlbench's own systems with the same settings; the record keeps those that matter, and the fairness check names them.
"""

from __future__ import annotations

import json
import os
import shlex
import sysconfig
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rlbench.harness.contract.agents import agents_per_env
from rlbench.harness.contract.settings import LearnSettings
from rlbench.systems.external.command import TrainerRun
from rlbench.systems.external.document import Trainer
from rlbench.systems.external.spaces import Takes, has_numbers, seen_as, what_else, why_not_spaces

if TYPE_CHECKING:
    from rlbench.harness.contract.scenario import Scenario
    from rlbench.harness.contract.system import Context

HERE = Path(__file__).parent


@dataclass(frozen=True, kw_only=True, slots=True)
class PipLibrary:
    """A library that pip installs from the requirements in a folder here; see `harness.contract.traits.Library`."""

    name: str
    distribution: str
    folder: str
    """Name of its folder beside this file."""

    @property
    def requirements(self) -> Path:
        """The requirements file, with exact versions."""
        return HERE / self.folder / "requirements.txt"

    def unavailable(self, place: Path) -> str | None:  # noqa: ARG002  wherever that is
        """None: pip alone can install it."""
        return None


@dataclass(frozen=True, kw_only=True, slots=True)
class CondaLibrary(PipLibrary):
    """A library that needs a package that pip cannot install: conda makes the environment with that package.

    `rlbench systems install` then has pip install the requirements into that environment.
    """

    needs: str
    """Name of the package that conda installs."""
    module: str
    """Name of that package's module; if the environment has it, the package is there, however it was installed."""
    words: str
    """Further packages and channels on conda's command line."""

    def unavailable(self, place: Path) -> str | None:
        """None once the module is in the environment; else the command to use, with this Python's version."""
        if any(place.glob(f"lib/python*/site-packages/{self.module}")):
            return None
        made = f"conda create --prefix {shlex.quote(str(place))} python={sysconfig.get_python_version()} pip"
        return (
            f"{self.needs} is not installed, and pip cannot install it; use: {made} {self.needs} {self.words} && "
            f"rlbench systems install {self.name}"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollout:
    """What fills a batch."""

    num_steps: int = 0
    """T, env steps of an environment in one rollout; 0 for the scenario's."""
    batch: int = 0
    """Env steps of one learning phase; 0 for a rollout of all environments."""

    def __post_init__(self) -> None:
        """Checks every field once."""
        for name in ("num_steps", "batch"):
            if getattr(self, name) < 0:
                raise ValueError(f"rollout.{name}={getattr(self, name)}: must be at least 0")


@dataclass(frozen=True, kw_only=True, slots=True)
class Departure:
    """A difference between a library and rlbench's own systems with the same settings that no setting removes."""

    what: str
    theirs: str
    matters: bool = True
    """Whether it affects how fast the library is or how well it learns."""


@dataclass(frozen=True, kw_only=True)
class LibrarySystem:
    """A system of somebody else's library; its fields can be set from the command line."""

    library: ClassVar[PipLibrary]
    corrections: ClassVar[tuple[str, ...]] = ("none",)
    """Values that `learn.correct` may have."""
    takes: ClassVar[Takes] = Takes()
    """The observations and actions that a scenario may have."""
    policies: ClassVar[Mapping[str, str]]
    """The library's network for each `policy` of a scenario with images: which of ours it is, or how it differs. The
    first is used with `policy=auto`."""
    number_policies: ClassVar[Mapping[str, str]] = {}
    """The same for a scenario without images."""
    normalizes: ClassVar[frozenset[str]] = frozenset()
    """What it can scale by its mean and deviation so far: `observations`, `rewards`."""
    env_a_worker: ClassVar[bool] = False
    """Whether each environment has its own process."""
    envs_of_group: ClassVar[int] = 1
    """The number of environments of a worker is a multiple of this."""
    devices: ClassVar[tuple[str, ...]] = ("cpu", "cuda")
    most_gpus: ClassVar[int] = 1
    in_step: ClassVar[bool] = False
    one_machine: ClassVar[bool] = True

    name: str
    about: str
    learn: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `LearnSettings` that the system sets differently from the scenario."""
    rollout: Rollout = Rollout()
    num_workers: int = 0
    """Processes that step environments; 0 for about one per core (see `workers_of`)."""

    def __post_init__(self) -> None:
        """Checks every field once."""
        replace(LearnSettings(), **self.learn)
        if not 0 <= self.num_workers <= 1024:
            raise ValueError(f"num_workers={self.num_workers}: must be from 0 to 1024; 0 is one a core")

    def check(self, scenario: Scenario) -> Scenario:
        """Returns the scenario with the settings that the library uses. Raises ValueError if it cannot run it."""
        learn = self.learned_with(replace(scenario.learn, **self.learn))
        order = image_order_of(scenario)
        if (agents := agents_per_env(scenario)) > 1:
            rule = f"takes environments with one agent, not with {agents}; use sync, ver or appo"
            raise ValueError(f"{self.name} on {scenario.name}: {rule}")
        if reason := self.why_not_spaces(scenario.observation_space, scenario.action_space, order):
            others = what_else(scenario.observation_space, scenario.action_space, order)
            raise ValueError(f"{self.name} on {scenario.name}: {reason}; use {others}")
        if reason := self.why_not_on(scenario, learn):
            raise ValueError(f"{self.name} on {scenario.name}: {reason}")
        changes: dict[str, Any] = {"learn": learn}
        if scenario.policy == "auto":
            changes["policy"] = next(iter(self._policies_for(scenario)))
        return replace(scenario, **changes)  # type: ignore[type-var]  # scenarios are dataclasses

    def why_not_spaces(self, observation_space: Any, action_space: Any, image_order: str = "auto") -> str | None:
        """None, or why the library does not take these spaces and what it takes."""
        return why_not_spaces(self.takes, observation_space, action_space, image_order)

    def learned_with(self, learn: LearnSettings) -> LearnSettings:
        """Returns the settings that hold in the library, which may fix some of them."""
        return learn

    def why_not_on(self, scenario: Scenario, learn: LearnSettings) -> str | None:
        """None, or why the library cannot run this scenario with these settings."""
        if self.env_a_worker and self.num_workers not in {0, scenario.num_envs}:
            return f"num_workers={self.num_workers}: each environment has a process, so there are {scenario.num_envs}"
        num_envs, policies = scenario.num_envs, self._policies_for(scenario)
        batch, steps, workers = self.batch_of(scenario), self.steps_of(scenario), self.workers_of(scenario)
        rules = (
            (
                scenario.policy in {"auto", *policies},
                f"policy={scenario.policy}: has no such network; known: {', '.join(policies)}",
            ),
            (
                (learn.weight_decay, learn.schedule, learn.entropy_schedule) == (0, "constant", "constant"),
                "its adapter hands on no schedule and no weight decay",
            ),
            (learn.optimizer == "adam", f"learn.optimizer={learn.optimizer}: learns with adam"),
            (learn.correct in self.corrections, f"learn.correct={learn.correct}: known: {', '.join(self.corrections)}"),
            (
                batch % learn.num_minibatches == 0,
                f"learn.num_minibatches={learn.num_minibatches}: must divide the batch, {batch} env steps",
            ),
            (num_envs % workers == 0, f"num_envs={num_envs}: must be a multiple of num_workers={workers}"),
        )
        broken = (why for holds, why in rules if not holds)
        return (
            next(broken, None)
            or self._why_not_scaled(scenario, learn)
            or self._why_not_chosen(scenario)
            or self.why_not_filled(batch, steps, num_envs)
        )

    def _policies_for(self, scenario: Scenario) -> Mapping[str, str]:
        is_numbers = seen_as(scenario.observation_space, image_order_of(scenario)) == "numbers"
        return self.number_policies if is_numbers else self.policies

    def _why_not_scaled(self, scenario: Scenario, learn: LearnSettings) -> str | None:
        if scales_observations(scenario) and "observations" not in self.normalizes:
            return "normalize_observations=true: its adapter hands on no such scaling"
        if learn.normalize_rewards and "rewards" not in self.normalizes:
            return "learn.normalize_rewards=true: its adapter hands on no such scaling"
        return None

    def _why_not_chosen(self, scenario: Scenario) -> str | None:
        """None, or why it cannot choose numbers as the scenario says."""
        if not has_numbers(scenario.action_space):
            return None
        for name, known in (("action_bounds", self.takes.bounds), ("action_std", self.takes.std)):
            said = getattr(scenario, name, known[0])
            if said not in known:
                return f"{name}={said}: known: {', '.join(known)}"
        return None

    def why_not_filled(self, batch: int, steps: int, num_envs: int) -> str | None:
        """None, or why rollouts do not fill a batch. By default a batch is one rollout of all environments."""
        filled = steps * num_envs
        return None if batch == filled else f"rollout.batch={batch}: must be a rollout of all environments, {filled}"

    def steps_of(self, scenario: Scenario) -> int:
        """T, env steps of an environment in one rollout."""
        return self.rollout.num_steps or scenario.rollout_steps

    def batch_of(self, scenario: Scenario) -> int:
        """Env steps of one learning phase."""
        return self.rollout.batch or self.steps_of(scenario) * scenario.num_envs

    def workers_of(self, scenario: Scenario) -> int:
        """Processes that step environments: `num_workers`, or the most up to one per core that have equal shares."""
        if self.env_a_worker:
            return scenario.num_envs
        groups = max(1, scenario.num_envs // self.envs_of_group)
        most = min(len(os.sched_getaffinity(0)), groups)
        return self.num_workers or max(number for number in range(1, most + 1) if groups % number == 0)

    def list_departures(self, scenario: Scenario) -> tuple[Departure, ...]:
        """All departures of the library, including those that do not matter."""
        raise NotImplementedError

    def departures(self, scenario: Scenario) -> dict[str, str]:
        """The departures that matter: what the library does, by what it concerns."""
        return {each.what: each.theirs for each in self.list_departures(scenario) if each.matters}

    def known_work(self, scenario: Mapping[str, Any]) -> Mapping[str, Any]:
        """The recorded scenario, with the network that the library uses in place of the scenario's."""
        networks = {**self.number_policies, **self.policies}
        return {**scenario, "policy": networks[scenario["policy"]]}

    def settings(self, context: Context) -> dict[str, Any]:
        """Settings that `train.py` gets as JSON."""
        scenario = context.scenario
        return {
            "seed": context.seed,
            "device": context.device.torch_name,
            "policy": scenario.policy,
            "sees": seen_as(scenario.observation_space, image_order_of(scenario)),
            "image_order": image_order_of(scenario),
            "normalize_observations": scales_observations(scenario),
            "action_std": getattr(scenario, "action_std", "shared"),
            "num_envs": scenario.num_envs,
            "num_workers": self.workers_of(scenario),
            "num_steps": self.steps_of(scenario),
            "batch": self.batch_of(scenario),
            "learn": asdict(scenario.learn),
        }

    def run(self, context: Context) -> None:
        """Trains on this rank until the budget is spent."""
        trainer = Trainer(
            command=("{python}", str(HERE / self.library.folder / "train.py"), json.dumps(self.settings(context))),
            about=self.about,
            environment="ours",
            ranks="its own",
            python=context.python,
            folder=context.folder,
        )
        TrainerRun(trainer, context).to_end()


def image_order_of(scenario: Scenario) -> str:
    """How a scenario's images lie."""
    return str(getattr(scenario, "image_order", "auto"))


def scales_observations(scenario: Scenario) -> bool:
    """Whether the numbers of observations are to be scaled by their mean and deviation; images never are."""
    seen = seen_as(scenario.observation_space, image_order_of(scenario))
    return bool(getattr(scenario, "normalize_observations", False)) and seen in {"numbers", "images and numbers"}
