from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rlbench.harness.contract.prediction import Prediction
from rlbench.systems.model import setup
from tests.systems.model.runs import predicted, scenario_of

ROOT = Path(__file__).parents[3]
SYSTEMS = ("sync", "ddppo", "nover", "ver", "htsrl", "gossip", "downpour", "appo", "impala")
LONG = scenario_of(workload="heterogeneous", rollout_steps=150)
"""More steps than are drawn at once."""


def fingerprint(prediction: Prediction) -> str:
    """Equal only for predictions that are equal to the bit."""
    digest = hashlib.sha256(json.dumps(prediction.rows).encode())
    for values in (*prediction.of_ranks.values(), *prediction.of_envs.values()):
        digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()


def fingerprints() -> dict[str, str]:
    """Of all systems, on three ranks."""
    return {system: fingerprint(predicted(system, 3, scenario=LONG)) for system in SYSTEMS}


@pytest.fixture(scope="module")
def first() -> dict[str, str]:
    """What this process predicts."""
    return fingerprints()


def test_the_same_seed_gives_the_same_prediction(first: dict[str, str]) -> None:
    """To the bit, in one process, whatever it predicted in between."""
    assert fingerprints() == first


def test_another_process_predicts_the_same(first: dict[str, str]) -> None:
    """To the bit, in a process of its own."""
    program = f"import json; from {__name__} import fingerprints; print(json.dumps(fingerprints()))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == first


@pytest.mark.parametrize("system", SYSTEMS)
def test_another_seed_gives_another_prediction(system: str, first: dict[str, str]) -> None:
    """Another seed draws other times, so every iteration takes another time."""
    other = predicted(system, 3, scenario=LONG, seed=1)
    assert fingerprint(other) != first[system]
    ends = [{row["end_s"] for row in prediction.rows} for prediction in (other, predicted(system, 3, scenario=LONG))]
    assert not ends[0] & ends[1]


@pytest.mark.parametrize("num_drawn", [1, 7, 5000])
def test_how_much_is_drawn_ahead_does_not_matter(
    num_drawn: int, first: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Environments whose draws run out in the midst of a rollout go on as if there had been enough."""
    monkeypatch.setattr(setup, "DRAWN_AHEAD", num_drawn)
    assert fingerprints() == first
