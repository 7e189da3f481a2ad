"""A plugin of pytest: throughput tests beside unit tests, run by `pytest --rlbench`.

    def test_ver_is_as_fast_as_it_was(throughput):
        throughput("ver", gpus=2, scenario="emulated/open-fridge", seconds=20)

The `throughput` fixture stands on pytest-benchmark's: what it measures is seconds per 1,000 env steps, so that lower is
better and `--benchmark-compare-fail=median:5%` does what it says. The records of the runs are in `extra_info`. Without
`--rlbench` tests that use the fixture are deselected. Each repetition is a process of its own; this one waits for it.

pytest imports this module wherever rlbench is installed, also for tests that have nothing to do with it: it imports
nothing else of ours before a throughput test runs, and has a name that nobody else's folder has.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from results.schema import RunRecord

REPETITIONS = 3
SECONDS = 10.0
COMMAND = (sys.executable, "-P", "-c", "import sys; from harness.cli import main; sys.exit(main())")


class RunClock:
    """A timer for pytest-benchmark: it moves only when a run has ended, by what 1,000 of its env steps took."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def __call__(self) -> float:
        """Seconds so far."""
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Moves it on."""
        self._now_s += seconds


_CLOCK = pytest.StashKey[RunClock]()


class Throughput:
    """Measures a system; made by the fixture."""

    def __init__(self, benchmark: Any, clock: RunClock, folder: Path) -> None:
        self._benchmark, self._clock, self._folder = benchmark, clock, folder
        self._records: list[RunRecord] = []

    def __call__(
        self, system: str, *, repetitions: int = REPETITIONS, seconds: float = SECONDS, **options: object
    ) -> list[RunRecord]:
        """Runs one cell again and again, with seeds 0, 1, ...; fails the test when a run does not finish.

        Args:
            system: as `--systems` takes it, one.
            repetitions: how many runs.
            seconds: of each.
            options: of `rlbench run`: `gpus=2`, `scenario="pointnav"`, `time_scale=0.5`.

        Returns:
            The records of the runs.
        """
        given = {"systems": system, "seconds": seconds, **options}
        arguments = [text for name, value in given.items() for text in (f"--{name.replace('_', '-')}", str(value))]
        self._benchmark.pedantic(self._run, args=(arguments,), rounds=repetitions)
        self._benchmark.extra_info["unit"] = "seconds per 1,000 env steps"
        self._benchmark.extra_info["runs"] = [record.model_dump(mode="json") for record in self._records]
        return self._records

    def _run(self, arguments: Sequence[str]) -> None:
        from results import store

        seed = len(self._records)
        out = self._folder / f"seed-{seed}"
        command = [*COMMAND, "run", *arguments, "--seeds", str(seed), "--out", str(out)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, errors="replace")  # noqa: S603  ours
        runs = store.read_runs(out) if out.is_dir() else []
        if len(runs) != 1:
            said = done.stderr.strip() or f"{len(runs)} runs; throughput() measures one system on one number of GPUs"
            pytest.fail(said.splitlines()[-1])
        (record,) = (run.record for run in runs)
        rate = record.figures.steps_per_s
        if record.status != "finished" or not rate:
            pytest.fail(f"{record.status}: {record.reason or 'no env step was learned'}")
        self._records.append(record)
        self._clock.advance(1000 / rate)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--rlbench`."""
    parser.getgroup("rlbench").addoption(
        "--rlbench", action="store_true", help="Run the tests that use the throughput fixture; without it they are not."
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects throughput tests, or gives each a clock."""
    ours = [item for item in items if _uses_ours(item)]
    if not config.getoption("--rlbench"):
        config.hook.pytest_deselected(items=ours)
        items[:] = [item for item in items if item not in ours]
        return
    for item in ours:
        item.stash[_CLOCK] = RunClock()
        marked = item.get_closest_marker("benchmark")
        options = {**(marked.kwargs if marked else {}), "timer": item.stash[_CLOCK]}
        item.add_marker(pytest.mark.benchmark(**options), append=False)


def _uses_ours(item: pytest.Item) -> bool:
    """Whether a test gets our fixture, and not one of its own of the same name."""
    fixtures = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {}).get("throughput", ())
    return bool(fixtures) and getattr(fixtures[-1].func, "__module__", None) == __name__


@pytest.fixture
def throughput(request: pytest.FixtureRequest, benchmark: Any, tmp_path: Path) -> Throughput:
    """Measures a system's seconds per 1,000 env steps: `throughput("ver", gpus=2)`."""
    return Throughput(benchmark, request.node.stash[_CLOCK], tmp_path)
