"""A cell: one point of a sweep, with what identifies it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from rlbench.harness.contract.budget import Limits
from rlbench.harness.contract.traits import Traits
from rlbench.harness.devices.kinds import DeviceKind
from rlbench.harness.plan import registry
from rlbench.harness.plan.overrides import typed_settings
from rlbench.harness.plan.scaling import Scaling, share
from rlbench.harness.plan.system_list import CannotRun

if TYPE_CHECKING:
    from rlbench.harness.contract.scenario import Scenario
    from rlbench.harness.contract.settings import LearnSettings
    from rlbench.harness.contract.system import System


MOST_PROCESSES = 16_384
"""Largest number of ranks and environment workers in one run; a typing slip must not take a machine down."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One point of a sweep. Everything in it is plain JSON, so that a rank reads back what was planned."""

    system: str
    system_settings: dict[str, str] = field(default_factory=dict)
    scenario: str
    scenario_settings: dict[str, str] = field(default_factory=dict)
    workload: str
    gpus: int
    seed: int
    device: DeviceKind
    protocol: str
    limits: Limits
    scaling: Scaling = "weak"
    stall_s: float
    """Seconds without an answer from an environment after which the run is ended."""
    time_limit_s: float
    """Seconds from its start after which the run is ended."""
    memory_limit_bytes: int | None = None
    """The run is ended when its processes have more private memory than this; None: see `harness.run.watch.Memory`."""
    system_file: dict[str, Any] | None = None
    """The file's description of a system that is not installed; None: `system` names an installed one."""

    def _load_system(self) -> System:
        if self.system_file is not None:
            return registry.system_of_file(self.system, self.system_file)
        return registry.load_system(self.system, self.system_settings)

    def load(self) -> tuple[System, Scenario]:
        """The system and the scenario, with their settings.

        Raises ValueError for a scenario that cannot be loaded or too many processes, CannotRun for a system that
        cannot be loaded or refuses the cell.
        """
        scenario = registry.load_scenario(self.scenario, self.workload, self.scenario_settings)
        if self.scaling == "strong":
            scenario = share(scenario, self.gpus)
        processes = self.gpus * (1 + scenario.num_envs)
        if processes > MOST_PROCESSES and self.device != "predicted":
            raise ValueError(
                f"--gpus {self.gpus} with {self.scenario}:num_envs={scenario.num_envs}: {processes:,} processes "
                f"must be at most {MOST_PROCESSES:,}; use fewer GPUs or environments"
            )
        try:
            system = self._load_system()
            traits = Traits.of(system)
            _check_place(system.name, traits, self.device, self.gpus)
            scenario = scenario if traits.check is None else traits.check(scenario)
            if self.device != "predicted":  # a prediction learns nothing
                _check_schedule(system.name, scenario.learn, self.limits)
        except ValueError as error:
            raise CannotRun(str(error)) from None
        return system, scenario

    def configuration(self) -> dict[str, Any]:
        """Everything that determines the run, resolved; limits on time and memory are left out."""
        system, scenario = self.load()
        fields = _plain(system)
        if isinstance(fields, dict) and isinstance(fields.get("learn"), dict):
            # A setting that equals the scenario's own counts as not set; `scenario` has what holds in the end.
            own = registry.load_scenario(self.scenario, self.workload, self.scenario_settings).learn
            learn = fields["learn"].items()
            fields["learn"] = {name: value for name, value in learn if getattr(own, name, None) != value}
        traits = Traits.of(system)
        if traits.departures is not None:
            fields["departures"] = traits.departures(scenario)
        work = _plain(scenario)
        return {
            "system": fields,
            "scenario": work if traits.known_work is None else traits.known_work(work),
            "gpus": self.gpus,
            "seed": self.seed,
            "device": self.device,
            "protocol": self.protocol,
            "limits": _plain(self.limits),
        } | ({"scaling": self.scaling} if self.scaling != "weak" else {})

    def hash(self) -> str:
        """The content hash: equal for cells that would do the same work."""
        return Hasher().of(self)

    def settings(self) -> dict[str, Any]:
        """The settings from the command line, as typed values; a scenario's fields are prefixed with `scenario.`."""
        system = self._load_system()
        scenario = registry.load_scenario(self.scenario, self.workload, self.scenario_settings)
        of_scenario = typed_settings(scenario, self.scenario_settings)
        return typed_settings(system, self.system_settings) | {
            f"scenario.{key}": value for key, value in of_scenario.items()
        }

    @property
    def typed_system(self) -> str:
        """The system with its settings, as `--systems` takes it."""
        return ":".join([self.system, *(f"{key}={text}" for key, text in self.system_settings.items())])

    @property
    def typed_scenario(self) -> str:
        """The scenario with its settings, as `--scenario` takes it."""
        return ":".join([self.scenario, *(f"{key}={text}" for key, text in self.scenario_settings.items())])

    @property
    def label(self) -> str:
        """The name of the cell for people."""
        shared = " strong" if self.scaling == "strong" else ""
        return f"{self.typed_system} {self.typed_scenario} {self.workload}{shared} x{self.gpus} seed {self.seed}"

    def to_json(self) -> str:
        """The text of `cell.json`."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Cell:
        """Reads back `to_json`."""
        fields = json.loads(text)
        return cls(**{**fields, "limits": Limits(**fields["limits"])})


def _check_place(system: str, traits: Traits, device: DeviceKind, gpus: int) -> None:
    """Raises ValueError when the system cannot run on this kind of device, or on so many GPUs."""
    if traits.devices is not None and device not in traits.devices:
        raise ValueError(
            f"{system}: --device {device}: a trainer that is not rlbench's own runs on what is there; "
            f"use --device {' or '.join(traits.devices)}"
        )
    if traits.most_gpus is not None and gpus > traits.most_gpus:
        raise ValueError(f"{system}: --gpus {gpus}: must be at most {traits.most_gpus} here")


def _check_schedule(system: str, learn: LearnSettings, limits: Limits) -> None:
    """Raises ValueError where settings follow a budget whose end is not known."""
    if learn.follows_budget and not limits.has_end:
        what = "schedule" if learn.schedule != "constant" else "entropy_schedule"
        raise ValueError(
            f"{system}: learn.{what}={getattr(learn, what)}: --until alone does not tell how long the run will be; "
            "add --env-steps, --iterations or --seconds"
        )


def _plain(value: Any) -> Any:
    """Settings as a JSON tree; `kind` holds the class of a dataclass, since two variants may have the same fields."""
    if hasattr(value, "model_dump"):
        return value.model_dump()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {item.name: _plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
        return {"kind": type(value).__name__, **fields}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        items = sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value
        return [_plain(item) for item in items]
    if isinstance(value, (str, int, float, bool, type(None))):
        return value
    text, kind = repr(value), type(value)
    return (
        f"{kind.__module__}.{kind.__qualname__}" if " at 0x" in text else text
    )  # an address differs between processes


class Hasher:
    """Hashes many cells; cells that differ only in their seeds are resolved once."""

    def __init__(self) -> None:
        self._configurations: dict[tuple[object, ...], dict[str, Any]] = {}

    def of(self, cell: Cell) -> str:
        """The content hash of a cell. Raises ValueError for a cell that cannot run, as `Cell.load` does."""
        settings = tuple(cell.system_settings.items()), tuple(cell.scenario_settings.items())
        place = cell.workload, cell.gpus, cell.device, cell.protocol, cell.scaling, cell.limits
        alike = cell.system, json.dumps(cell.system_file), cell.scenario, *settings, *place
        if alike not in self._configurations:
            self._configurations[alike] = cell.configuration()  # which also checks it
        text = json.dumps([cell.system, self._configurations[alike] | {"seed": cell.seed}], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]
