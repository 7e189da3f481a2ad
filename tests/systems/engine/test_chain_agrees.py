"""What bounds a run by the chain of its spans, and what does by the model, which is asked for more of each stage."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlbench.harness.commands.predict.gains import gains
from rlbench.harness.contract.traits import Traits
from rlbench.harness.machine.telemetry.readings import Readings
from rlbench.harness.predicting.planning import predict_cell
from rlbench.harness.run.record import measure
from tests.lanes import sampled
from tests.systems.model.agreement import cell_of
from tests.systems.model.profiles import BUSY, Changes
from tests.systems.model.virtual_engine import run_virtually

SMALL_BATCH = "rollout.num_steps=8:rollout.batch=64"
SYSTEMS = ("sync", "ddppo", "nover", "ver", "htsrl", "gossip", f"appo:{SMALL_BATCH}", f"impala:{SMALL_BATCH}")
QUIET: Changes = BUSY | {"network": BUSY["network"] | {"latency_ms": 0.05, "bandwidth_mb_per_s": 100_000.0}}
"""Messages within a learning phase cost next to nothing: on an emulated GPU they go on in the time that is reserved for
learning, so that there the model counts none of it as communication, and the chain all of it."""
SLOW: dict[str, Changes] = {
    "simulator": {"step": {"median_ms": 60.0}},
    "inference": {
        "gpu": BUSY["gpu"] | {"infer_fixed_ms": 60.0},
        "cpu": {"cores_per_gpu": 3, "actor_infer_ms": 120.0},
    },
    "learner": {"gpu": BUSY["gpu"] | {"learn_item_ms": 30.0}},
    "communication": {"network": QUIET["network"] | {"synchronize_ms": 5000.0}},
}
"""By stage: times of a profile in which nothing else bounds a run."""
IN_STEP = SYSTEMS[:5]
CASES = [(system, stage) for stage in SLOW for system in (IN_STEP if stage == "communication" else SYSTEMS)]


@pytest.mark.parametrize(("system", "stage"), sampled(CASES, every=6, first=3))
def test_the_chain_names_what_the_model_names(system: str, stage: str, tmp_path: Path) -> None:
    """Of two ranks that differ, on virtual time; what it gives differs by 4 points at most, of 10."""
    cell = cell_of(tmp_path, system, QUIET | SLOW[stage], num_ranks=2, workload="heterogeneous")
    run_virtually(tmp_path / "run", cell)
    loaded, _ = cell.load()
    by_chain = measure(tmp_path / "run", cell, 1.0, Readings([], 0), Traits.of(loaded)).figures.gains
    by_model = gains(cell, predict_cell(cell))
    assert max(by_chain, key=by_chain.__getitem__) == max(by_model, key=by_model.__getitem__) == stage
    assert by_chain[stage] == pytest.approx(by_model[stage], abs=0.04)
