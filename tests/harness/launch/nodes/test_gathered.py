from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from rlbench.harness.launch.nodes import gathered
from rlbench.harness.launch.nodes.clocks import Shift
from rlbench.harness.machine.telemetry.readings import Readings, Row


def row(t: float, cpu: float | None, **gpus: float) -> Row:
    """A sample."""
    return {"t": t, "cpu_percent": cpu, "memory_bytes": 10.0, "num_processes": 2.0, **gpus}


def test_samples_of_machines_are_summed() -> None:
    """With those nearest in time, before or after; GPUs are numbered on."""
    first = Readings([row(0, 100, gpu0_busy=0.5), row(1.5, 120, gpu0_busy=0.7)], 1)
    other = Readings([row(0.1, 50, gpu0_busy=0.1, gpu1_busy=0.2), row(1.9, 60, gpu0_busy=0.3, gpu1_busy=0.4)], 2)
    together = Readings.joined([first, other])
    assert together.num_gpus == 3
    assert [each["cpu_percent"] for each in together.rows] == [150, 180]
    assert [each["memory_bytes"] for each in together.rows] == [20, 20]
    assert together.rows[1] | {"t": 1.5} == together.rows[1]
    assert [together.rows[1][f"gpu{k}_busy"] for k in range(3)] == [0.7, 0.3, 0.4]
    assert together.utilisation(0, 3).value == pytest.approx((0.6 + 0.2 + 0.3) / 3)


def test_a_machine_without_samples_leaves_no_sum() -> None:
    """A part of it would be taken for all."""
    together = Readings.joined([Readings([row(0, 100)], 0), Readings([], 0, "node 1 (b) has left no samples")])
    assert together.rows == []
    assert together.cpu_percent(0, 1).value is None
    assert together.cpu_percent(0, 1).source == "node 1 (b) has left no samples"
    unknown = Readings.joined([Readings([row(0, None)], 0), Readings([row(0, 5)], 0)])
    assert unknown.rows[0]["cpu_percent"] is None


def test_what_the_head_left(tmp_path: Path) -> None:
    """Clocks by rank, samples on one clock, and the nodes of the record; of a lost node what there is."""
    shift = Shift(offset_s=-100.0, error_s=1e-4)
    here, there = asdict(Shift(error_s=1e-5)), asdict(shift)
    nodes = [
        {"host": "a", "first_rank": 0, "num_ranks": 2, "clock": here, "machine": {}, "lost": None},
        {"host": "b", "first_rank": 2, "num_ranks": 1, "clock": there, "machine": {"num_cores": 2}, "lost": "x"},
    ]
    (tmp_path / gathered.NODES_FILE).write_text(json.dumps(nodes))
    for number, began in ((0, 1.0), (1, 101.0)):
        told = {"rows": [row(began, 10.0)], "num_gpus": 0, "problem": None}
        (tmp_path / gathered.TELEMETRY.format(number)).write_text(json.dumps(told))
    clocks = gathered.read_clocks(tmp_path)
    assert [clocks[rank].at(150.0) for rank in range(3)] == [150.0, 150.0, 50.0]
    assert gathered.read_telemetry(tmp_path).rows == [row(1.0, 20.0) | {"memory_bytes": 20.0, "num_processes": 4.0}]
    first, second = gathered.describe(tmp_path)
    assert (first.host, first.first_rank, first.num_ranks, first.clock_error_s, first.lost) == ("a", 0, 2, 1e-5, None)
    assert (second.machine, second.lost, second.clock_error_s) == ({"num_cores": 2}, "x", 1e-4)
    (tmp_path / gathered.TELEMETRY.format(1)).unlink()
    assert gathered.read_telemetry(tmp_path).cpu_percent(0, 9).source == "node 1 (b) has left no samples"


def test_one_machine_has_nothing_to_gather(tmp_path: Path) -> None:
    """No node is named, and no time is shifted."""
    assert gathered.describe(tmp_path) == []
    assert gathered.read_clocks(tmp_path)[7].at(3.5) == 3.5
