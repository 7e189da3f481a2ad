"""Profiles: the times that emulated environments and GPUs take, as TOML files that are checked when read."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from rlbench.harness.contract.network_costs import LEAST_MB_PER_S, MOST_LATENCY_MS, MOST_MB_PER_S
from rlbench.results.reading.names import known_names, known_variants

PROFILES_FOLDER = Path(__file__).parent / "profiles"

MOST_ENVS, MOST_STEPS, MOST_CORES = 4096, 65_536, 1024
"""Limits, so that a typing slip does not take a machine down."""
LEAST_MS, MOST_MS = 1e-6, MOST_LATENCY_MS
"""A nanosecond to 17 minutes: products of such times with lognormal factors, and their sums, are finite."""
MOST_MEAN_STEPS = 1e9
MOST_EPOCHS = 1000
MOST_FACTOR, MOST_SHARE = 1e3, 0.999
MOST_MB = 1e6

Milliseconds = Annotated[float, Field(ge=0, le=MOST_MS, allow_inf_nan=False)]
PositiveMilliseconds = Annotated[float, Field(ge=LEAST_MS, le=MOST_MS, allow_inf_nan=False)]
Sigma = Annotated[float, Field(ge=0, le=3)]
Factor = Annotated[float, Field(ge=1, le=MOST_FACTOR, allow_inf_nan=False)]
MeanSteps = Annotated[float, Field(ge=1, le=MOST_MEAN_STEPS, allow_inf_nan=False)]
Bandwidth = Annotated[float, Field(ge=LEAST_MB_PER_S, le=MOST_MB_PER_S, allow_inf_nan=False)]
Megabytes = Annotated[float, Field(ge=0, le=MOST_MB, allow_inf_nan=False)]

MOST_BYTES, LONGEST_LINE = 65_536, 1024
"""Limits of a file; ours have 2,500 and 180. The time to parse a dotted key grows with the square of its length."""
LONGEST_VALUE = 80
"""Characters of a value that an error repeats."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Collect(_Table):
    """How much is collected; the defaults of the scenario's fields of these names."""

    num_envs: Annotated[int, Field(ge=1, le=MOST_ENVS)]
    rollout_steps: Annotated[int, Field(ge=1, le=MOST_STEPS)]
    envs_per_batch: Annotated[int, Field(ge=1, le=MOST_ENVS)] = 1


class Step(_Table):
    """CPU time of an env step: `median_ms` times a lognormal factor."""

    median_ms: PositiveMilliseconds
    sigma: Sigma


class Collision(_Table):
    """The slow mode of an env step."""

    median_ms: PositiveMilliseconds
    share: Annotated[float, Field(ge=0, le=MOST_SHARE)]
    mean_stay_steps: MeanSteps


class Episode(_Table):
    """Length of episodes, and the lognormal factor that slows all steps of one."""

    mean_steps: MeanSteps
    sigma: Sigma
    reset_ms: Milliseconds


class Batch(_Table):
    """How long calls take that step several environments at once, by how many; empty where nobody knows."""

    sizes: tuple[int, ...] = ()
    """Environments of a call, ascending."""
    step_ms: tuple[float, ...] = ()
    """Mean time of a call with so many, resets in it included."""
    sigma: Sigma = 0.0
    """Of the lognormal factor, of mean 1, that each call draws."""

    @field_validator("sizes", mode="before")
    @classmethod
    def _ascending(cls, sizes: object) -> object:
        """An array, as TOML has it. Raises ValueError unless it is of whole numbers that ascend."""
        given = tuple(sizes) if isinstance(sizes, list | tuple) else ()
        whole = all(type(size) is int and 1 <= size <= MOST_ENVS for size in given)
        if not given or not whole or not all(small < large for small, large in pairwise(given)):
            raise ValueError(f"must be an array of whole numbers from 1 to {MOST_ENVS}, ascending")
        return given

    @field_validator("step_ms", mode="before")
    @classmethod
    def _positive(cls, times: object) -> object:
        """An array, as TOML has it. Raises ValueError unless it is of times."""
        given = tuple(times) if isinstance(times, list | tuple) else ()
        if not given or not all(type(time) in (int, float) and LEAST_MS <= time <= MOST_MS for time in given):
            raise ValueError(f"must be an array of numbers from {LEAST_MS:g} to {MOST_MS:g}")
        return tuple(map(float, given))

    @model_validator(mode="after")
    def _one_each(self) -> Batch:
        """Raises ValueError unless each size has a time."""
        if len(self.sizes) != len(self.step_ms):
            raise ValueError(f"step_ms must have as many times as sizes, {len(self.sizes)}")
        return self

    def call_ms(self, size: int) -> float:
        """Mean time of a call with `size` environments: a line between the two sizes next to it.

        Raises ValueError beyond the sizes, in words that follow what was asked for.
        """
        if not self.sizes:
            raise ValueError(
                "must be 1: the profile has no table [batch], with sizes and step_ms; `rlbench profile` makes one of a "
                "run with environments in batches"
            )
        if not self.sizes[0] <= size <= self.sizes[-1]:
            known, alone = ", ".join(map(str, self.sizes)), "1, or " * (self.sizes[0] > 1)
            raise ValueError(f"must be {alone}from {self.sizes[0]} to {self.sizes[-1]}: [batch] has sizes = [{known}]")
        later = next(number for number, known in enumerate(self.sizes) if size <= known)
        if size == self.sizes[later]:
            return self.step_ms[later]
        (small, large), (least, most) = self.sizes[later - 1 : later + 1], self.step_ms[later - 1 : later + 1]
        return least + (most - least) * (size - small) / (large - small)


class Heterogeneous(_Table):
    """Spread of the factor by which environments differ in the heterogeneous workload."""

    sigma: Sigma


class Cpu(_Table):
    """Times of the machine's CPU, and how many cores there are."""

    cores_per_gpu: Annotated[int, Field(ge=0, le=MOST_CORES)]
    actor_infer_ms: Milliseconds
    learn_cores: Annotated[int, Field(ge=0, le=MOST_CORES)] = 0
    schedule_ms: Milliseconds = 0.0
    answer_ms: Milliseconds = 0.0

    @model_validator(mode="after")
    def _enough(self) -> Cpu:
        """Raises ValueError where learning is to hold more cores than there are."""
        if self.learn_cores > self.cores_per_gpu:
            raise ValueError(f"learn_cores must be at most cores_per_gpu, {self.cores_per_gpu}")
        return self


class Gpu(_Table):
    """Times of the emulated GPU; see `harness.contract.settings.GpuCosts`."""

    render_ms: Milliseconds
    infer_fixed_ms: Milliseconds
    infer_item_ms: Milliseconds
    prepare_ms: Milliseconds
    learn_fixed_ms: Milliseconds = 0.0
    learn_item_ms: Milliseconds
    render_while_learning_factor: Factor
    learn_while_rendering_factor: Factor


class Learn(_Table):
    """How much is learned from each batch, by systems that do not say so themselves; see `LearnSettings`."""

    epochs: Annotated[int, Field(ge=1, le=MOST_EPOCHS)] = 2
    num_minibatches: Annotated[int, Field(ge=1, le=MOST_ENVS)] = 2


class Network(_Table):
    """What it costs ranks to synchronise; see `harness.contract.network_costs.NetworkCosts`."""

    synchronize_ms: Milliseconds
    synchronize_doubling_ms: Milliseconds
    latency_ms: Milliseconds
    bandwidth_mb_per_s: Bandwidth
    weights_mb: Megabytes


class Profile(_Table):
    """All times of one emulated workload."""

    about: str
    assumed: tuple[str, ...] = ()
    """Keys, such as `network.latency_ms`, whose values nobody has measured and nothing was fitted to."""
    collect: Collect
    step: Step
    collision: Collision
    episode: Episode
    heterogeneous: Heterogeneous
    cpu: Cpu
    gpu: Gpu
    network: Network
    learn: Learn = Learn()
    batch: Batch = Batch()

    @property
    def document(self) -> dict[str, Any]:
        """The profile as TOML has it."""
        document = {**self.model_dump(), "assumed": list(self.assumed)}
        batch = document.pop("batch")
        if self.batch.sizes:
            document["batch"] = {
                name: list(value) if isinstance(value, tuple) else value for name, value in batch.items()
            }
        return document

    def changed(self, numbers: Mapping[str, float]) -> Profile:
        """The profile with other numbers at some dotted keys. Raises ValueError for one that breaks a rule."""
        document = self.document
        for name, value in numbers.items():
            table, key = _split(name)
            document[table][key] = value
        try:
            return Profile.model_validate(document)
        except ValidationError as error:
            first = error.errors()[0]
            path = [str(part) for part in first["loc"]]
            raise ValueError(f"{'.'.join(path)}: {_rule(first, path)}") from None

    def quicker(self, keys: Iterable[str], factor: float) -> Profile:
        """The profile with the times at some keys divided by `factor`, and rates multiplied; bounds do not matter."""
        tables: dict[str, dict[str, Any]] = {}
        for table, key in map(_split, keys):
            value = getattr(getattr(self, table), key)
            tables.setdefault(table, {})[key] = _quicker(value, factor, is_rate=key.endswith("per_s"))
        return self.model_copy(
            update={table: getattr(self, table).model_copy(update=changed) for table, changed in tables.items()}
        )

    @field_validator("assumed", mode="before")
    @classmethod
    def _known(cls, keys: object) -> object:
        """An array of keys, as TOML has it. Raises ValueError for one that no profile has."""
        known = [
            f"{table}.{key}"
            for table, field in cls.model_fields.items()
            for key in getattr(field.annotation, "model_fields", ())
        ]
        if not isinstance(keys, list) or not all(key in known for key in keys):
            raise ValueError(f"must be an array of keys; known: {', '.join(known)}")
        return tuple(keys)


def _quicker(value: Any, factor: float, *, is_rate: bool) -> Any:
    """A time divided by a factor, or each of several; a rate multiplied by it."""
    if isinstance(value, tuple):
        return tuple(_quicker(one, factor, is_rate=is_rate) for one in value)
    return value * factor if is_rate else value / factor


def _split(name: str) -> tuple[str, str]:
    table, _, key = name.partition(".")
    return table, key


def shipped_profiles() -> tuple[str, ...]:
    """Names of the profiles that come with the package; `open-fridge` first, the default."""
    names = sorted(path.stem for path in PROFILES_FOLDER.glob("*.toml"))
    return tuple(sorted(names, key=lambda name: name != "open-fridge"))


def read_profile(name: str) -> Profile:
    """Reads a shipped profile by name, or any TOML file by its path.

    Raises ValueError in one line (file, line, rule) when there is no such profile or it breaks a rule.
    """
    path = Path(name) if name.endswith(".toml") else PROFILES_FOLDER / f"{name}.toml"
    if not path.is_file():
        shipped = known_variants(name, shipped_profiles(), also="the path of a .toml file")
        raise ValueError(f"emulated/{name}: no such profile; {shipped}")
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1).decode("utf-8").replace("\r\n", "\n")
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path}: is no text in UTF-8; a profile is a TOML file") from None
    longest = max(map(len, text.split("\n")))
    if len(text) > MOST_BYTES or longest > LONGEST_LINE:
        raise ValueError(
            f"{path}: a profile must have at most {MOST_BYTES:,} bytes and {LONGEST_LINE:,} letters in a line"
        )
    return _parse(path, text)


@lru_cache(maxsize=64)
def _parse(path: Path, text: str) -> Profile:
    """The profile in a file's text; the same object each time, which is immutable."""
    try:
        return Profile.model_validate(tomllib.loads(text))
    except RecursionError:
        raise ValueError(f"{path}: not a profile: its tables are nested too deeply") from None
    except tomllib.TOMLDecodeError as error:
        where = re.search(r"at line (\d+)", str(error))
        line = where[1] if where else 1 + text.rstrip().count("\n")
        raise ValueError(f"{path}:{line}: not TOML: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        key = [str(part) for part in first["loc"]]
        raise ValueError(f"{path}:{line_of(text, key)}: {'.'.join(key)}: {_rule(first, key)}") from None


def _rule(problem: ErrorDetails, key: list[str]) -> str:
    """What a key must be, and what it is."""
    if problem["type"] == "extra_forbidden":
        table = Profile.model_fields[key[0]].annotation if len(key) > 1 else Profile
        return f"unknown; {known_names(key[-1], getattr(table, 'model_fields', ()))}"
    if problem["type"] == "missing":
        return "is missing; it is needed"
    try:
        value = f"{problem['input']!a}"
    except ValueError:  # Python writes no whole number of more than 4,300 digits
        value = "so many digits"
    said = problem["msg"].removeprefix("Value error, ").replace("Input should", "must")
    return f"{said}, not {value[:LONGEST_VALUE]}"


def line_of(text: str, key: list[str]) -> int:
    """The line of a key in a TOML document of plain tables; of its table if it is missing; 1 if that is missing too."""
    *tables, name = key
    current, table_line = "", 1
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[([^\]]+)\]", line):
            current = header[1].strip()
            if current == ".".join(key):
                return number
            if current == ".".join(tables):
                table_line = number
        elif current == ".".join(tables) and re.match(rf"\s*{re.escape(name)}\s*=", line):
            return number
    return table_line
