"""A plugin of pytest: throughput tests beside unit tests, run by `pytest --rlbench`.

    def test_ver_is_as_fast_as_it_was(throughput):
        throughput("ver", gpus=2, scenario="emulated/open-fridge", seconds=20)


    def test_ver_is_faster_than_ddppo(throughput):
        assert throughput.ratio("ver", "ddppo", gpus=2, scenario="emulated/open-fridge", seconds=20).low > 1.5

The `throughput` fixture builds on pytest-benchmark's: it measures seconds per 1,000 env steps, or the time of one
system / that of another, so that lower is better and `--benchmark-compare-fail=median:5%` does what it says. The
records of the runs are in `extra_info`. Without `--rlbench`, tests that use the fixture are deselected. Each run is a
process of its own; this one waits for it.

pytest imports this module wherever rlbench is installed, also for tests that have nothing to do with it. So it imports
nothing else of ours before a throughput test runs, and has a name that nobody else's folder has.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rlbench.results.records.schema import RunRecord
    from rlbench.results.summary.document import Estimate

REPETITIONS = 3
LEAST_PAIRS = 2
SECONDS = 10.0
COMMAND = (sys.executable, "-P", "-m", "rlbench_start")


class RunClock:
    """A timer for pytest-benchmark: it moves only when runs have ended, by the times that they measured."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def __call__(self) -> float:
        """Seconds so far."""
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Moves the clock on."""
        self._now_s += seconds


_CLOCK = pytest.StashKey[RunClock]()


class _NotMeasured(Exception):  # noqa: N818  says what happened
    """A run has no rate; pytest-benchmark does not notice pytest's own way to fail."""


class Throughput:
    """Measures systems, once in a test; made by the fixture."""

    def __init__(self, benchmark: Any, clock: RunClock, folder: Path) -> None:
        self._benchmark, self._clock, self._folder = benchmark, clock, folder
        self.records: list[RunRecord] = []
        """Records of all runs so far, in order."""

    def __call__(
        self, system: str, *, repetitions: int = REPETITIONS, seconds: float = SECONDS, **options: object
    ) -> list[RunRecord]:
        """Runs one cell repeatedly, with seeds 0, 1, ...; fails the test when a run does not finish.

        Args:
            system: one, as `--systems` takes it.
            repetitions: how many runs.
            seconds: of each run.
            options: of `rlbench run`: `gpus=2`, `scenario="pointnav"`, `time_scale=0.5`.

        Returns:
            The records of the runs.
        """
        seeds = count()

        def run() -> None:
            self._clock.advance(1000 / self._rate(system, next(seeds), seconds, options))

        self._measure(run, repetitions, "seconds per 1,000 {steps}")
        return self.records

    def ratio(
        self,
        system: str,
        reference: str,
        *,
        repetitions: int = REPETITIONS,
        seconds: float = SECONDS,
        **options: object,
    ) -> Estimate:
        """Runs two systems in turn, A B B A ..., repetition k of both with seed k; fails when a run does not finish.

        Args:
            system: one, as `--systems` takes it.
            reference: another, or the same with other settings: `ddppo:preempt.p=1.0`.
            repetitions: how many runs of each, at least 2.
            seconds: of each run.
            options: of `rlbench run`, for both.

        Returns:
            The mean steps/s of the system / that of the reference, with its 95 % interval (`low`, `high`) over
            the repetitions.
        """
        from rlbench.results.verdicts.paired import ratio_of_pairs

        if repetitions < LEAST_PAIRS:
            pytest.fail(f"throughput.ratio(): repetitions={repetitions}: an interval needs at least {LEAST_PAIRS}")
        rates: dict[str, list[float]] = {system: [], reference: []}
        if len(rates) < len((system, reference)):
            pytest.fail(f"throughput.ratio(): {system} against itself; name two systems, or other settings of one")
        seeds = count()

        def run_pair() -> None:
            seed = next(seeds)
            for each in (system, reference) if seed % 2 == 0 else (reference, system):
                rates[each].append(self._rate(each, seed, seconds, options))
            self._clock.advance(rates[reference][-1] / rates[system][-1])

        self._measure(run_pair, repetitions, f"time of {system} / time of {reference}, for as many {{steps}}")
        ratio = ratio_of_pairs(rates[system], rates[reference])
        self._benchmark.extra_info["ratio"] = ratio.model_dump(mode="json")
        return ratio

    def _measure(self, run: Callable[[], None], repetitions: int, unit: str) -> None:
        from rlbench.results.records.units import common

        try:
            self._benchmark.pedantic(run, rounds=repetitions)
        except _NotMeasured as error:
            pytest.fail(str(error), pytrace=False)
        steps = common(each.counters.unit for each in self.records)
        self._benchmark.extra_info["unit"] = unit.replace("{steps}", steps)
        self._benchmark.extra_info["runs"] = [record.model_dump(mode="json") for record in self.records]

    def _rate(self, system: str, seed: int, seconds: float, options: Mapping[str, object]) -> float:
        """Steps/s of a run. Raises _NotMeasured."""
        from rlbench.results.records import store

        given = {"systems": system, "seconds": seconds, **options, "seeds": seed}
        out = self._folder / f"run-{len(self.records)}"
        arguments = [text for name, value in given.items() for text in (f"--{name.replace('_', '-')}", str(value))]
        command = [*COMMAND, "run", *arguments, "--out", str(out)]
        done = subprocess.run(command, check=False, capture_output=True, encoding="utf-8", errors="replace")  # noqa: S603  ours
        runs = store.read_runs(out) if out.is_dir() else []
        if len(runs) != 1:
            said = done.stderr.strip() or f"{len(runs)} runs; throughput() measures one system on one number of GPUs"
            raise _NotMeasured(said.splitlines()[-1])
        (record,) = (run.record for run in runs)
        rate = record.figures.steps_per_s
        if record.status != "finished" or not rate:
            raise _NotMeasured(f"{record.status}: {record.reason or 'no env step was learned'}")
        self.records.append(record)
        return rate


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
    """Whether a test gets our fixture, and not its own one of the same name."""
    fixtures = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {}).get("throughput", ())
    return bool(fixtures) and getattr(fixtures[-1].func, "__module__", None) == __name__


@pytest.fixture
def throughput(request: pytest.FixtureRequest, benchmark: Any, tmp_path: Path) -> Throughput:
    """Measures a system, `throughput("ver", gpus=2)`, or one against another: `throughput.ratio("ver", "ddppo")`."""
    from rlbench_start import hidden

    if problem := hidden():  # pytest puts folders of tests on Python's path, which may hold packages of our names
        pytest.fail(f"rlbench: {problem}", pytrace=False)
    return Throughput(benchmark, request.node.stash[_CLOCK], tmp_path)
