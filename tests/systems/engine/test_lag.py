"""Policy lag: what it is where it is known beforehand, and that it stays within its bound where it is not."""

from __future__ import annotations

import json
import time
from pathlib import Path

import psutil
import pytest

from harness.plan import Cell
from tests.systems.engine.cells import leave_cell, make_cell, profile, run_here
from tests.systems.engine.ranks import Run, run_ranks
from tests.systems.engine.recorded import run_recorded

NUM_ITERATIONS = 5
STREAM = "rollout.num_steps=8"


@pytest.mark.parametrize(
    ("system", "device"),
    [
        (f"appo:overlap=alternate:{STREAM}:rollout.batch=32", "cpu"),
        (f"appo:overlap=alternate:{STREAM}:rollout.batch=32", "emulated"),
        (f"impala:overlap=alternate:{STREAM}:rollout.batch=24", "cpu"),
        (f"impala:overlap=alternate:{STREAM}:rollout.batch=24", "emulated"),
    ],
)
def test_nothing_lags_when_a_stream_is_made_to_alternate(tmp_path: Path, system: str, device: str) -> None:
    """`appo` and `impala` with `overlap=alternate` learn every sample at lag 0, also where batches cut trajectories."""
    cell = make_cell(system, profile(tmp_path), iterations=NUM_ITERATIONS, device=device)
    run = run_recorded(tmp_path / "run", cell)
    samples, meter = run.samples(), run.meter(0)
    assert (samples["version"] == samples["learned_at"]).all()
    assert samples["learned_at"].max() == NUM_ITERATIONS - 1
    assert (meter.count(0, "lag_sum"), meter.count(0, "lag_max")) == (0, 0)
    assert meter.total("env_steps") == len(samples["action"]) == meter.count(0, "learned")


@pytest.mark.parametrize("device", ["cpu", "emulated"])
def test_htsrl_learns_exactly_one_rollout_behind(tmp_path: Path, device: str) -> None:
    """From the second iteration on, every sample's lag is the number of updates of a rollout: epochs x mini-batches."""
    learn = "learn.epochs=3:learn.num_minibatches=2"
    cell = make_cell("htsrl", f"{profile(tmp_path)}:{learn}", iterations=NUM_ITERATIONS, device=device)
    run = run_recorded(tmp_path / "run", cell)
    samples = run.samples()
    lag = samples["learned_at"] - samples["version"]
    first = samples["learned_at"] == 0
    assert set(lag[first]) == {0}
    assert set(lag[~first]) == {3 * 2}
    assert [row["lag_sum"] for row in run.rows(0)] == [0] + [6 * 4 * 16] * (NUM_ITERATIONS - 1)


BATCHES = {"whole": 32, "quarter": 8}
"""Env steps of a batch, of 4 x 8 that are under way."""
MAX_LAG = 2
SLOWER = 10
WATCHED_AT = (60, 180)
"""Iterations after which memory is looked at."""
MEMORY_FILE = "memory.json"


def anonymous_memory_bytes() -> int:
    """Of this process and all below it: without files and shared memory, which others may map and let go."""
    this = psutil.Process()
    memory = [one.memory_info() for one in (this, *this.children(recursive=True))]
    return sum(one.rss - one.shared for one in memory)


def learn_slowly(folder: Path) -> None:
    """Runs this rank of the cell in `folder`; learning takes ten times as long as it does, on the CPU."""
    from systems.engine.learner import Learner
    from systems.engine.means import Means
    from systems.engine.rollout import Experience
    from systems.engine.tables import Table

    memory_bytes: list[int] = []
    num_learned = 0
    sleeps = Cell.from_json((folder / "cell.json").read_text()).device == "cpu"

    class SlowLearner(Learner):
        def learn(self, table: Table, experience: Experience) -> dict[str, float]:
            nonlocal num_learned
            began = time.perf_counter()
            statistics = super().learn(table, experience)
            if sleeps:
                time.sleep((SLOWER - 1) * (time.perf_counter() - began))
            num_learned += 1
            if num_learned in WATCHED_AT:
                memory_bytes.append(anonymous_memory_bytes())
            return statistics

    run_here(folder, Means(learner=SlowLearner))
    (folder / MEMORY_FILE).write_text(json.dumps(memory_bytes))


def run_slowed(folder: Path, system: str, device: str, batch: int, iterations: int) -> Run:
    """A run whose learner takes ten times as long as collecting a batch, or as it would."""
    scenario = profile(folder, step_ms=0.2, render_ms=0.02, infer_ms=0.02, prepare_ms=3.0 * SLOWER)
    settings = f"{STREAM}:rollout.batch={batch}:overlap.max_lag={MAX_LAG}"
    cell = make_cell(f"{system}:{settings}", scenario, iterations=iterations, device=device, workload="heterogeneous")
    run = leave_cell(folder / "run", cell)
    run_ranks(learn_slowly, 1, run.folder)
    return run


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(("system", "device"), [("appo", "cpu"), ("appo", "emulated"), ("impala", "cpu")])
def test_lag_stays_within_its_limit_under_a_slow_learner(tmp_path: Path, system: str, device: str, batch: str) -> None:
    """However slow the learner, no sample is learned above `max_lag`; what is older is discarded, to the sample."""
    meter = run_slowed(tmp_path, system, device, BATCHES[batch], iterations=25).meter(0)
    assert 0 < meter.count(0, "lag_max") <= MAX_LAG
    accounted = sum(meter.count(0, name) for name in ("learned", "discarded", "in_flight"))
    assert meter.total("env_steps") == accounted
    assert meter.count(0, "learned") == 25 * BATCHES[batch]
    if batch == "quarter":  # four trajectories arrive while one of them is learned
        assert meter.count(0, "discarded") > 0


@pytest.mark.parametrize("system", ["appo", "impala"])
def test_nothing_grows_while_the_learner_is_slow(tmp_path: Path, system: str) -> None:
    """From the 60th to the 180th learning phase, the memory of rank and workers grows by less than 2 MB.

    A queue without a bound would have grown by hundreds of batches of 32 samples of more than 1 KB each.
    """
    run = run_slowed(tmp_path, system, "emulated", BATCHES["whole"], iterations=WATCHED_AT[-1])
    early, late = json.loads((run.folder / MEMORY_FILE).read_text())
    assert late - early < 2e6
