"""What a worker takes from an environment, whom it blames, and what it says of an end."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box

from rlbench.harness.contract.device import Place, Seat
from rlbench.harness.devices.kinds import CpuDevice
from rlbench.harness.metering.meter import RankMeter
from rlbench.harness.metering.meter_file import MeterFile, meter_path
from rlbench.harness.processes.remarks import read
from rlbench.systems.engine.wire.commands import COMMAND, RESET
from rlbench.systems.engine.workers.serving import serve
from rlbench.systems.engine.workers.tables import SharedColumn, SharedTable
from rlbench.systems.engine.workers.worker import Worker, WorkerSettings, error_path
from rlbench.systems.spaces.observations import Leaf
from tests.harness.hostile.misbehaving_plugin.scenario import MisbehavingScenario
from tests.harness.hostile.misbehaving_plugin.values import OBSERVATIONS
from tests.systems.actions import columns_of

LEAF = Leaf(key="column", path=("column",), space=Box(0, 1, (3,)))

NUM_ENVS = 2


def settings_of(folder: Path, call: str, case: str) -> WorkerSettings:
    """Of a worker with both environments of a rank, of which the second misbehaves."""
    scenario = MisbehavingScenario(name=f"misbehaving/{call}", workload="homogeneous", case=case)
    RankMeter(folder, 0, NUM_ENVS).close()
    place = Place(rank=0, num_ranks=1, local_rank=0)
    seats = tuple(Seat(place=place, index=n, num_envs=NUM_ENVS, seed=n, device=CpuDevice(1)) for n in range(NUM_ENVS))
    return WorkerSettings(
        scenario=scenario,
        seats=seats,
        first=0,
        folder=folder,
        table=SharedTable(columns_of(scenario, NUM_ENVS, 2 * NUM_ENVS, state_size=1)),
        commands=(),
        replies=None,
    )


def serve_steps(settings: WorkerSettings, num_steps: int, *, is_heard: bool = True) -> int:
    """Has a worker begin both environments and step each so many times; returns its exit code."""
    commands = [COMMAND.pack(env, RESET, env) for env in range(NUM_ENVS)]
    commands += [COMMAND.pack(env, env, env) for _ in range(num_steps) for env in range(NUM_ENVS)]
    (out, into), (replies_out, replies_into) = os.pipe(), os.pipe()
    os.write(into, b"".join(commands))
    os.close(into)
    if not is_heard:
        os.close(replies_out)
    try:
        return serve(settings, out, replies_into)
    finally:
        for fd in (out, replies_into, *([replies_out] if is_heard else [])):
            os.close(fd)


def test_a_worker_counts_what_it_computes_beside_steps(tmp_path: Path) -> None:
    """The CPU time of its thread is that of steps, or of each environment's waits; that of resets is in neither."""
    began_s = time.thread_time()
    assert serve_steps(settings_of(tmp_path, "nothing", "none"), 50) == 0
    used_s = time.thread_time() - began_s
    file = MeterFile(meter_path(tmp_path, 0), writable=False)
    stepping_s, waiting_s = (
        [file.cpu_seconds(1 + env, kind)[0] for env in range(NUM_ENVS)] for kind in ("simulate", "wait:inference")
    )
    assert min(*stepping_s, *waiting_s) > 0
    assert sum(stepping_s) + sum(waiting_s) < used_s
    assert [file.cpu_seconds(1 + env, "reset")[0] for env in range(NUM_ENVS)] == [0, 0]


@pytest.mark.parametrize("kind", ["BrokenPipeError", "SystemExit", "KeyboardInterrupt", "GeneratorExit", "StrExits"])
@pytest.mark.parametrize("call", ["make-env", "first-reset", "reset", "step"])
def test_whatever_an_environment_raises_is_left_with_its_number(tmp_path: Path, kind: str, call: str) -> None:
    """Of two in one process the one that raised, with its class and its traceback."""
    settings = settings_of(tmp_path, call, f"{kind}-plain")
    assert serve_steps(settings, 12) == 1
    left = json.loads(error_path(tmp_path, settings.label).read_text())
    assert left["error"].startswith(kind)
    assert left["environment"] == 1
    assert "in _raise" in left["traceback"] or "in make_env" in left["traceback"]


def test_a_rank_that_is_gone_is_no_error(tmp_path: Path) -> None:
    """When nobody reads the replies, the worker ends and says nothing."""
    settings = settings_of(tmp_path, "step", "BrokenPipeError-plain")
    assert serve_steps(settings, 1, is_heard=False) == 0
    assert not error_path(tmp_path, settings.label).exists()


def test_an_environment_that_raises_when_it_is_closed_is_a_remark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code is that of a run that went well; the traceback goes to the process's output."""
    settings = settings_of(tmp_path, "close", "SystemExit-plain")
    assert serve_steps(settings, 1) == 0
    assert read(tmp_path) == ["environment 1 raised SystemExit: no wall behind the wall when it was closed"]
    assert "in close" in capsys.readouterr().err


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_an_observation_that_the_scenario_does_not_state_is_refused(tmp_path: Path, name: str) -> None:
    """At its step, by key, value and rule."""
    settings = settings_of(tmp_path, "observation", name)
    assert serve_steps(settings, 12) == 1
    left = json.loads(error_path(tmp_path, settings.label).read_text())
    assert left["error"].startswith("ValueError: ")
    assert OBSERVATIONS[name][1] in left["error"]


@pytest.mark.parametrize(
    ("stated", "given"),
    [
        ("<f4", np.float64),
        ("<f4", np.float16),
        ("<f4", np.uint8),
        ("<f4", np.bool_),
        ("<f4", ">f4"),
        ("<f8", np.int32),
        ("<i8", np.uint8),
        ("<f2", np.float32),
    ],
)
def test_what_loses_nothing_or_is_rounded_is_taken(tmp_path: Path, stated: str, given: Any) -> None:
    """Whole numbers and floats that the stated dtype holds, and floats that it rounds."""
    column = SharedColumn("column", (1, 3), stated)
    table = SharedTable((column,))
    worker = Worker(settings_of(tmp_path, "nowhere", "none"), -1, -1)
    rows = table["column"]
    worker._write_observation([(LEAF, LEAF.read, rows, (3,), rows.dtype)], 0, {"column": np.array([1, 0, 1], given)})
    assert rows.tolist() == [[1, 0, 1]]


@pytest.mark.parametrize(
    ("stated", "given"),
    [
        ("<f4", np.int32),
        ("<f4", np.int64),
        ("|u1", np.int64),
        ("|u1", np.float32),
        ("|u1", np.int8),
        ("<i8", np.float64),
        ("<f4", complex),
        ("|b1", np.uint8),
    ],
)
def test_what_would_be_made_another_number_is_refused(tmp_path: Path, stated: str, given: Any) -> None:
    """Whatever its value is this time."""
    table = SharedTable((SharedColumn("column", (1, 3), stated),))
    worker = Worker(settings_of(tmp_path, "nowhere", "none"), -1, -1)
    rows = table["column"]
    with pytest.raises(ValueError, match=f"observation 'column' has dtype {np.dtype(given)}: the scenario states"):
        worker._write_observation(
            [(LEAF, LEAF.read, rows, (3,), rows.dtype)], 0, {"column": np.array([1, 0, 1], given)}
        )
