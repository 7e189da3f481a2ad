from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from rlbench.reports.exports import wandb
from rlbench.reports.exports.tracked import Tracked, tracked
from tests.reports.exports.made_runs import BEGAN_S, STARTING_S, make_run

BLOCK = 32768
HEADER = struct.Struct("<IHB")
"""Checksum, length and kind of a piece of a record; 1 is a whole one, 4 the last of several."""


@pytest.fixture
def run(tmp_path: Path) -> Tracked:
    """An emulated run."""
    return tracked(make_run(tmp_path / "runs"))


def records(out: Path) -> Iterator[Any]:
    """The records of the only run in a folder: LevelDB's log format behind 7 bytes, as `wandb sync` reads it."""
    from wandb.proto import wandb_internal_pb2

    (path,) = out.glob("wandb/offline-run-*/*.wandb")
    data, place, pieces = path.read_bytes(), 7, b""
    while place + HEADER.size <= len(data):
        if BLOCK - place % BLOCK < HEADER.size:
            place += BLOCK - place % BLOCK
            continue
        _, length, kind = HEADER.unpack_from(data, place)
        pieces += data[place + HEADER.size : place + HEADER.size + length]
        place += HEADER.size + length
        if kind in {1, 4}:
            record = wandb_internal_pb2.Record()
            record.ParseFromString(pieces)
            pieces = b""
            yield record


def items(updates: Any) -> dict[str, Any]:
    """Values by name."""
    return {each.key or "/".join(each.nested_key): json.loads(each.value_json) for each in updates}


def test_what_wandb_would_upload(tmp_path: Path, run: Tracked) -> None:
    """A run has its settings, rows along `global_step` at their times, the figures as its summary, and ends well."""
    assert wandb.write([run], tmp_path) == f"wandb sync {tmp_path}/wandb/offline-run-*"
    found = list(records(tmp_path))
    (made,) = (each.run for each in found if each.HasField("run"))
    assert (made.run_id, made.display_name, made.run_group) == (run.key, "ddppo-2-emulated", "sweep-1")
    assert sorted(made.tags) == ["emulated", "finished"]
    config = items(made.config.update)
    assert (config["kind"], config["gpus"]) == ("emulated", 2)
    rows = [items(each.history.item) for each in found if each.HasField("history")]
    curve = [row for row in rows if "charts/episodic_return" in row]
    assert [(row["global_step"], row["charts/episodic_return"]) for row in curve] == [(40, 1.0), (60, 2.0)]
    assert [row["_timestamp"] for row in curve] == [BEGAN_S + STARTING_S + 2, BEGAN_S + STARTING_S + 3]
    summary = {
        name: value for each in found if each.HasField("summary") for name, value in items(each.summary.update).items()
    }
    assert summary["figures/steps_per_s"] == 100.0
    assert [each.exit.exit_code for each in found if each.HasField("exit")] == [0]


def test_a_second_export_replaces_the_first(tmp_path: Path, run: Tracked) -> None:
    """There is one folder for each run, however often it is written; others stay."""
    other = tmp_path / "wandb" / "offline-run-20260101_000000-mine"
    other.mkdir(parents=True)
    for _ in range(2):
        wandb.write([run], tmp_path)
    assert len(list(tmp_path.glob(f"wandb/offline-run-*-{run.key}"))) == 1
    assert other.exists()


def test_a_run_that_failed_says_so(tmp_path: Path) -> None:
    """Its exit code is not 0, and it is tagged."""
    wandb.write([tracked(make_run(tmp_path / "runs", status="failed", reason="rank 0 raised"))], tmp_path)
    found = list(records(tmp_path))
    assert [each.exit.exit_code for each in found if each.HasField("exit")] == [1]
    (made,) = (each.run for each in found if each.HasField("run"))
    assert "failed" in made.tags
    assert "rank 0 raised" in made.notes


def test_the_service_ends_whatever_happens(tmp_path: Path, run: Tracked) -> None:
    """Neither an export that succeeds nor one that is interrupted leaves a process, or a variable."""
    before, variables = set(psutil.Process().children(recursive=True)), dict(os.environ)
    started: list[int] = []

    def interrupted() -> Iterator[Tracked]:
        yield run
        started.append(len(set(psutil.Process().children(recursive=True)) - before))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        wandb.write(interrupted(), tmp_path)
    assert started != [0]
    wandb.write([run], tmp_path)
    left = set(psutil.Process().children(recursive=True)) - before
    psutil.wait_procs(left, timeout=30)
    assert [process for process in left if process.is_running()] == []
    assert dict(os.environ) == variables


def test_it_writes_nowhere_else(tmp_path: Path, run: Tracked, monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves nothing in the user's home, and what a variable of wandb's says does not count."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_DIR", str(home))
    out = tmp_path / "out"
    out.mkdir()
    wandb.write([run], out)
    assert list(home.rglob("*")) == []
    assert len(list(records(out))) > 3
