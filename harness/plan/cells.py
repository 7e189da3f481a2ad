"""Turns what was asked for into cells: seeds x scenarios x workloads x GPU counts x systems, in that order."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from harness.contract.budget import Limits
from harness.devices.kinds import DeviceKind, check_gpus
from harness.plan import registry
from harness.plan.overrides import parse_choice, typed_settings
from harness.plan.system_list import CannotRun, parse_systems, split_list
from harness.processes.raised import told_in_a_line

if TYPE_CHECKING:
    from harness.contract.scenario import Scenario
    from harness.contract.system import System


MOST_CELLS = 100_000
"""Largest number of cells in one sweep."""
MOST_PROCESSES = 16_384
"""Largest number of ranks and environment workers in one run; a typing slip must not take a machine down."""
LARGEST_SEED = 2**32 - 1


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
        processes = self.gpus * (1 + scenario.num_envs)
        if processes > MOST_PROCESSES and self.device != "predicted":
            raise ValueError(
                f"--gpus {self.gpus} with {self.scenario}:num_envs={scenario.num_envs}: {processes:,} processes "
                f"must be at most {MOST_PROCESSES:,}; use fewer GPUs or environments"
            )
        try:
            system = self._load_system()
            _check_place(system, self.device, self.gpus)
            check = getattr(system, "check", None)  # somebody else's system need not have one
            return system, scenario if check is None else check(scenario)
        except ValueError as error:
            raise CannotRun(str(error)) from None

    def configuration(self) -> dict[str, Any]:
        """Everything that determines the run, resolved; limits on time and memory are left out."""
        system, scenario = self.load()
        fields = _plain(system)
        if isinstance(fields, dict) and isinstance(fields.get("learn"), dict):
            # A setting that equals the scenario's own counts as not set; `scenario` has what holds in the end.
            own = registry.load_scenario(self.scenario, self.workload, self.scenario_settings).learn
            learn = fields["learn"].items()
            fields["learn"] = {name: value for name, value in learn if getattr(own, name, None) != value}
        known = getattr(system, "known_work", None)  # somebody else's trainer may follow only a part of it
        if departures := getattr(system, "departures", None):
            fields["departures"] = departures(scenario)
        return {
            "system": fields,
            "scenario": _plain(scenario) if known is None else known(_plain(scenario)),
            "gpus": self.gpus,
            "seed": self.seed,
            "device": self.device,
            "protocol": self.protocol,
            "limits": _plain(self.limits),
        }

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
    def label(self) -> str:
        """The name of the cell for people."""
        system = ":".join([self.system, *(f"{key}={text}" for key, text in self.system_settings.items())])
        scenario = ":".join([self.scenario, *(f"{key}={text}" for key, text in self.scenario_settings.items())])
        return f"{system} {scenario} {self.workload} x{self.gpus} seed {self.seed}"

    def to_json(self) -> str:
        """The text of `cell.json`."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Cell:
        """Reads back `to_json`."""
        fields = json.loads(text)
        return cls(**{**fields, "limits": Limits(**fields["limits"])})


def _check_place(system: System, device: DeviceKind, gpus: int) -> None:
    """Raises ValueError when the system cannot run on this kind of device, or on so many GPUs."""
    devices, most = getattr(system, "devices", None), getattr(system, "most_gpus", gpus)
    if devices is not None and device not in devices:
        raise ValueError(
            f"{system.name}: --device {device}: a trainer that is not rlbench's own runs on what is there; "
            f"use --device {' or '.join(devices)}"
        )
    if gpus > most:
        raise ValueError(f"{system.name}: --gpus {gpus}: must be at most {most} here")


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
        place = cell.workload, cell.gpus, cell.device, cell.protocol, cell.limits
        alike = cell.system, json.dumps(cell.system_file), cell.scenario, *settings, *place
        if alike not in self._configurations:
            self._configurations[alike] = cell.configuration()  # which also checks it
        text = json.dumps([cell.system, self._configurations[alike] | {"seed": cell.seed}], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def parse_counts(text: str, flag: str, least: int, most: int) -> list[int]:
    """`1,8` -> [1, 8]; `1..4` -> [1, 2, 3, 4]; duplicates are dropped. Raises ValueError with the rule."""
    counts: list[int] = []
    for part in text.split(","):
        first, dots, last = part.strip().partition("..")
        try:
            begin = int(first)
            end = int(last) if dots else begin
        except ValueError:
            raise ValueError(f"{flag} {text or repr(text)}: must be whole numbers such as 1,8 or 1..4") from None
        if not least <= begin <= end <= most:
            rule = "a range must ascend" if begin > end else f"must be from {least} to {most}"
            raise ValueError(f"{flag} {text}: {rule}")
        if len(counts) + end - begin >= MOST_CELLS:
            raise ValueError(f"{flag} {text}: must be at most {MOST_CELLS:,} numbers")
        counts += range(begin, end + 1)
    return list(dict.fromkeys(counts))


def parse_gpus(text: str) -> list[int]:
    """GPU counts, in ascending order. Raises ValueError with the rule."""
    return sorted(parse_counts(text, "--gpus", 1, MOST_PROCESSES))


def parse_seeds(text: str) -> list[int]:
    """Seeds. Raises ValueError with the rule."""
    return parse_counts(text, "--seeds", 0, LARGEST_SEED)


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What `rlbench run` was asked for; lists, such as `systems`, are still text."""

    systems: str
    gpus: str
    scenarios: str
    workloads: str
    seeds: str
    device: DeviceKind
    oversubscribe: bool
    protocol: str
    limits: Limits
    stall_s: float
    time_limit_s: float
    memory_limit_bytes: int | None = None
    elsewhere: bool = False
    """The runs are on other machines, so their devices are not looked for here."""


def plan(request: Request) -> list[Cell]:
    """The cells that can run; see `plan_with_skipped`."""
    return plan_with_skipped(request)[0]


def plan_with_skipped(request: Request, check: Callable[[Cell], None] = lambda _: None) -> tuple[list[Cell], list[str]]:
    """The cells, and a line for each system of `all` that cannot run on one of the scenarios.

    Cells are interleaved over systems, so that a slow spell of the machine does not hit one system alone. Raises
    ValueError for the first thing that is unknown, impossible or missing. `check` may raise ValueError too, and
    CannotRun for a cell that its system cannot do.
    """
    systems = parse_systems(request.systems)
    scenarios = [parse_choice(text, "--scenario") for text in split_list(request.scenarios, "--scenario")]
    workloads = split_list(request.workloads, "--workload")
    gpus = parse_gpus(request.gpus)
    if not request.elsewhere:
        check_gpus(request.device, max(gpus), oversubscribe=request.oversubscribe)
    seeds = parse_seeds(request.seeds)
    num_cells = len(seeds) * len(scenarios) * len(workloads) * len(gpus) * len(systems)
    if num_cells > MOST_CELLS:
        raise ValueError(f"{num_cells:,} cells: a sweep has at most {MOST_CELLS:,}; ask for fewer seeds or systems")
    order = itertools.product(seeds, scenarios, workloads, gpus, systems)
    hasher, unique = Hasher(), dict[str, Cell]()
    skipped: dict[str, None] = {}
    for seed, (scenario, scenario_settings), workload, count, system in order:
        cell = Cell(
            system=system.name,
            system_settings=system.settings,
            scenario=scenario,
            scenario_settings=scenario_settings,
            workload=workload,
            gpus=count,
            seed=seed,
            device=request.device,
            protocol=request.protocol,
            limits=request.limits,
            stall_s=request.stall_s,
            time_limit_s=request.time_limit_s,
            memory_limit_bytes=request.memory_limit_bytes,
            system_file=system.file,
        )
        try:
            with told_in_a_line(cell.label):  # a property of a scenario may raise anything
                name = hasher.of(cell)
                check(cell)
            unique.setdefault(name, cell)
        except CannotRun as error:
            if not system.is_optional:
                raise
            skipped[_skip_line(cell, str(error))] = None
    if not unique:
        raise ValueError(f"--systems {request.systems}: none can run; {next(iter(skipped))}")
    return list(unique.values()), list(skipped)


def _skip_line(cell: Cell, why: str) -> str:
    known = (f"{cell.system} on {cell.scenario}: ", f"system {cell.system}: ", f"{cell.system}:")
    for prefix in known:
        why = why.removeprefix(prefix)
    return f"skipped {cell.system} on {cell.scenario}: {why}"
