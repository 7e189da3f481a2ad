"""Runs on a real GPU: every system finishes, and the GPU's readings are in its record."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

SYSTEMS = ("sync", "ddppo", "nover", "ver", "appo", "gossip", "htsrl", "impala", "easgd", "downpour")


def records_of(out: Path, *options: str) -> list[dict[str, Any]]:
    """The records of the runs that the options ask for."""
    subprocess.run(("rlbench", "run", "--device", "cuda", "--out", str(out), *options), check=True)
    return [json.loads(path.read_text()) for path in out.glob("*/*/run.json")]


def check_every_system_runs_on_a_gpu(tmp_path: Path) -> None:
    """It learns finite numbers, and NVML has told of the GPU meanwhile."""
    records = records_of(
        tmp_path, "--systems", ",".join(SYSTEMS), "--scenario", "pointnav", "--iterations", "30", "--seconds", "20"
    )
    assert sorted(record["cell"]["system"] for record in records) == sorted(SYSTEMS)
    for record in records:
        figures = record["figures"]
        assert record["status"] == "finished", record["reason"]
        assert figures["steps_per_s"] > 0
        assert 0 < figures["utilisation"]["value"] <= 1
        assert figures["gpu_memory_bytes"]["value"] > 2**27
        assert figures["gpu_power_w"]["value"] > 0
        assert figures["time_shares"]["learn"] > 0


@pytest.mark.parametrize("scenario", ["atari", "vizdoom", "gym/CartPole-v1", "gym/Pendulum-v1"])
def check_every_kind_of_policy_learns_on_a_gpu(tmp_path: Path, scenario: str) -> None:
    """Collected in turn with learning, and meanwhile."""
    records = records_of(
        tmp_path, "--systems", "ver,appo", "--scenario", scenario, "--iterations", "6", "--seconds", "30"
    )
    assert [record["status"] for record in records] == ["finished"] * 2


def check_ranks_share_a_gpu(tmp_path: Path) -> None:
    """Two ranks agree on gradients, and on weights."""
    records = records_of(
        tmp_path, "--systems", "ddppo,gossip", "--scenario", "pointnav", "--gpus", "2", "--oversubscribe",
        "--iterations", "10", "--seconds", "20",
    )  # fmt: skip
    assert [record["status"] for record in records] == ["finished"] * 2
