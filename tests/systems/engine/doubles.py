"""What the doubles of scenarios have in common that come in batches, in pools, or with several agents.

Each environment logs what it did itself; a run leaves what its learner was given (`recorded.py`). Letters: E
environments or agents of a run, which have a block of the meter each.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from rlbench.harness.plan import registry
from tests.systems.engine.cells import run_in_turn
from tests.systems.engine.recorded import Recorded

if TYPE_CHECKING:
    import pytest

    from rlbench.harness.plan.cells import Cell

MIXING = {"gossip", "easgd", "downpour"}


@dataclass(frozen=True, slots=True)
class Family:
    """The family of one scenario."""

    about: str
    scenario: Callable[..., Any]
    variants: tuple[str, ...] = ()

    def unavailable(self) -> str | None:
        """It can run."""
        return None

    def make(self, variant: str, workload: str) -> Any:
        """There is one."""
        assert not variant
        return self.scenario(workload=workload)


@contextmanager
def registered(name: str, module: str) -> Iterator[None]:
    """As if the `FAMILY` of a module were installed."""
    ours = EntryPoint(name, f"{module}:FAMILY", registry.SCENARIOS)

    def found(group: str) -> list[EntryPoint]:
        return [*entry_points(group=group), *([ours] if group == registry.SCENARIOS else [])]

    with patch.object(registry, "entry_points", found):
        yield


def log_path(logs: Path, number: int) -> Path:
    """The log of environment or agent `number` of a run; beside it is a file with the number of its process."""
    return logs / f"{number}.log"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ran:
    """What a run has left."""

    run: Recorded
    logs: Path
    num_each: int
    """Environments or agents of a rank."""
    num_learners: int = 1
    num_ranks: int = 1

    def count(self, name: str) -> int:
        """A counter of all ranks."""
        return sum(self.run.meter(rank).count(0, name) for rank in range(self.num_ranks))

    def of_each(self, name: str) -> list[int]:
        """A counter of each, [E]."""
        meters = [self.run.meter(rank) for rank in range(self.num_ranks)]
        return [meter.count(1 + i, name) for meter in meters for i in range(self.num_each)]

    def samples(self, number: int) -> dict[str, Any]:
        """What was learned of number `number`, in the order of time."""
        rank, env = divmod(number, self.num_each * self.num_ranks // self.num_learners)
        samples = self.run.samples(rank)
        return {name: column[samples["env"] == env] for name, column in samples.items()}

    def check_fates(self) -> None:
        """What the meter counted = learned + discarded + in flight: of all, and of each."""
        counted = self.of_each("env_steps")
        assert sum(counted) == sum(self.count(name) for name in ("learned", "discarded", "in_flight"))
        assert self.count("learned") > 0
        num = len(counted) // self.num_learners
        for rank in range(self.num_learners):
            fates = self.run.fates(rank)
            assert fates is not None
            learned, discarded = fates.totals
            assert (learned + discarded + fates.in_flight).tolist() == counted[rank * num :][:num]


def all_ways(
    ways: Collection[tuple[Any, ...]],
    folder: Callable[[], Path],
    cell_of: Callable[[Any, Path], Cell],
    record: Callable[[Path], None],
    num_each: int,
    has_one_learner: Callable[[str], bool],
) -> Callable[[Any], Ran]:
    """Runs them when the first of them is asked for; the same ranks go all ways, one after the other.

    Args:
        ways: of each the first part is a system, and the last one the number of its ranks.
        folder: makes an empty one.
        cell_of: the cell of a way that logs into a folder.
        record: what a rank does, a function of a module.
        num_each: environments or agents of a rank.
        has_one_learner: of a system, whether rank 0 learns for all ranks; the other one is then on another machine.
    """

    @functools.cache
    def run(num_ranks: int) -> Mapping[Any, Ran]:
        made = folder()
        logs = {way: made / f"logs{number}" for number, way in enumerate(sorted(ways)) if way[-1] == num_ranks}
        for path in logs.values():
            path.mkdir()
        names = {way: "-".join(map(str, way)) for way in logs}
        apart = {names[way]: 1 for way in logs if has_one_learner(way[0])}
        runs = run_in_turn(made, {names[way]: cell_of(way, logs[way]) for way in logs}, num_ranks, record, apart)
        return {
            way: Ran(
                run=Recorded(runs[name].folder),
                logs=logs[way],
                num_each=num_each,
                num_learners=1 if name in apart else num_ranks,
                num_ranks=num_ranks,
            )
            for way, name in names.items()
        }

    return lambda way: run(way[-1])[way]


def asked(request: pytest.FixtureRequest, fixture: str) -> set[Any]:
    """The ways that the tests of a file ask a fixture for."""
    here: list[Any] = [item for item in request.session.items if item.path == request.path]
    return {item.callspec.params["way"] for item in here if fixture in item.fixturenames}


def mixes(way: tuple[Any, ...]) -> bool:
    """Whether weights change between versions too, by those of other ranks."""
    return way[-1] > 1 and not MIXING.isdisjoint(way[0].replace("=", ":").split(":"))
