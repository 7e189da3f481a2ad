"""Policy lag: what it is where it is known beforehand, and that it stays within its bound where it is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil
import pytest

from rlbench.harness.plan.cells import Cell
from tests.harness.runs import wait_until
from tests.systems.engine.cells import make_cell, profile, run_here, run_in_turn
from tests.systems.engine.ranks import Run
from tests.systems.engine.recorded import Recorded, record_in_turn

NUM_ITERATIONS = 5
STREAM = "rollout.num_steps=8"
ALTERNATING = (
    f"impala:overlap=alternate:{STREAM}:rollout.batch=24",  # first: its workers need torch
    f"appo:overlap=alternate:{STREAM}:rollout.batch=32",
)
HTSRL = "htsrl"
DEVICES = ("cpu", "emulated")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recorded]:
    """A run of each system on each device."""
    folder = tmp_path_factory.mktemp("runs")
    scenario = profile(folder)
    scenarios = dict.fromkeys(ALTERNATING, scenario) | {HTSRL: f"{scenario}:learn.epochs=3:learn.num_minibatches=2"}
    cells = {
        f"{system} on {device}": make_cell(system, of_system, iterations=NUM_ITERATIONS, device=device)
        for system, of_system in scenarios.items()
        for device in DEVICES
    }
    return record_in_turn(folder, cells)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("system", ALTERNATING)
def test_nothing_lags_when_a_stream_is_made_to_alternate(runs: dict[str, Recorded], system: str, device: str) -> None:
    """`appo` and `impala` with `overlap=alternate` learn every sample at lag 0, also where batches cut trajectories."""
    run = runs[f"{system} on {device}"]
    samples, meter = run.samples(), run.meter(0)
    assert (samples["version"] == samples["learned_at"]).all()
    assert samples["learned_at"].max() == NUM_ITERATIONS - 1
    assert (meter.count(0, "lag_sum"), meter.count(0, "lag_max")) == (0, 0)
    assert meter.total("env_steps") == len(samples["action"]) == meter.count(0, "learned")


@pytest.mark.parametrize("device", DEVICES)
def test_htsrl_learns_exactly_one_rollout_behind(runs: dict[str, Recorded], device: str) -> None:
    """From the second iteration on, every sample's lag is the number of updates of a rollout: epochs x mini-batches."""
    run = runs[f"{HTSRL} on {device}"]
    samples = run.samples()
    lag = samples["learned_at"] - samples["version"]
    first = samples["learned_at"] == 0
    assert set(lag[first]) == {0}
    assert set(lag[~first]) == {3 * 2}
    assert [row["lag_sum"] for row in run.rows(0)] == [0] + [6 * 4 * 16] * (NUM_ITERATIONS - 1)


BATCHES = {"whole": 32, "quarter": 8}
"""Env steps of a batch, of 4 x 8 that are under way."""
MAX_LAG = 2
SLOW = tuple((system, device) for system in ("impala", "appo") for device in DEVICES)
GROWING = ("impala", "appo")
WATCHED_AT = (60, 180)
"""Iterations after which memory is looked at."""
MEMORY_FILE = "memory.json"


def anonymous_memory_bytes() -> int:
    """Of this process and all below it: without files and shared memory, which others may map and let go."""
    this = psutil.Process()
    memory = [one.memory_info() for one in (this, *this.children(recursive=True))]
    return sum(one.rss - one.shared for one in memory)


def learn_slowly(folder: Path) -> None:
    """Runs this rank of the cell in `folder`; its learner begins when all environments stand still, held back by it.

    No learner is slower: whatever the machine does meanwhile, the environments have been as fast as may be.
    """
    from rlbench.systems.engine.rank.learner import Learner
    from rlbench.systems.engine.rank.means import Means
    from rlbench.systems.engine.rollouts import opening
    from rlbench.systems.engine.rollouts.rollout import Experience
    from rlbench.systems.engine.rollouts.trajectories import StreamRollout
    from rlbench.systems.engine.workers.tables import SharedTable

    memory_bytes: list[int] = []
    num_learned = 0
    streams: list[StreamRollout] = []

    class NotedStream(StreamRollout):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            streams.append(self)

    def stand_still() -> bool:
        (stream,) = streams
        return stream.is_full or not (stream.may_act().any() or stream.in_flight.any())

    class SlowLearner(Learner):
        def learn(self, table: SharedTable, experience: Experience) -> dict[str, float]:
            nonlocal num_learned
            wait_until(stand_still, "the environments are held back")
            statistics = super().learn(table, experience)
            num_learned += 1
            if num_learned in WATCHED_AT:
                memory_bytes.append(anonymous_memory_bytes())
            return statistics

    with patch.object(opening, "StreamRollout", NotedStream):
        run_here(folder, Means(learner=SlowLearner))
    (folder / MEMORY_FILE).write_text(json.dumps(memory_bytes))


@pytest.fixture(scope="module")
def slowed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Runs whose learner is slower than anything."""
    folder = tmp_path_factory.mktemp("slowed")
    scenario = profile(folder, step_ms=0.2, render_ms=0.02, infer_ms=0.02)

    def cell_of(system: str, device: str, batch: str, iterations: int) -> Cell:
        name = f"{system}:{STREAM}:rollout.batch={BATCHES[batch]}:overlap.max_lag={MAX_LAG}"
        return make_cell(name, scenario, iterations=iterations, device=device, workload="heterogeneous")

    cells = {f"{system} grows": cell_of(system, "emulated", "whole", WATCHED_AT[-1]) for system in GROWING}
    cells |= {
        f"{system} on {device}, {batch}": cell_of(system, device, batch, 25)
        for system, device in SLOW
        for batch in BATCHES
    }
    return run_in_turn(folder, cells, 1, learn_slowly)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(("system", "device"), SLOW)
def test_lag_stays_within_its_limit_under_a_slow_learner(
    slowed: dict[str, Run], system: str, device: str, batch: str
) -> None:
    """However slow the learner, no sample is learned above `max_lag`; what is older is discarded, to the sample."""
    meter = slowed[f"{system} on {device}, {batch}"].meter(0)
    assert 0 < meter.count(0, "lag_max") <= MAX_LAG
    accounted = sum(meter.count(0, name) for name in ("learned", "discarded", "in_flight"))
    assert meter.total("env_steps") == accounted
    assert meter.count(0, "learned") == 25 * BATCHES[batch]
    if batch == "quarter":  # four trajectories are there when one of them is learned
        assert meter.count(0, "discarded") > 0


@pytest.mark.parametrize("system", GROWING)
def test_nothing_grows_while_the_learner_is_slow(slowed: dict[str, Run], system: str) -> None:
    """From the 60th to the 180th learning phase, the memory of rank and workers grows by less than 2 MB.

    A queue without a bound would never hold the environments back.
    """
    early, late = json.loads((slowed[f"{system} grows"].folder / MEMORY_FILE).read_text())
    assert late - early < 2e6
