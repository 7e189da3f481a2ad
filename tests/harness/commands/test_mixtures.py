"""Any runs beside any others: whoever reads folders shows them, or refuses them in one line."""

from __future__ import annotations

import itertools
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.harness.command import call
from tests.harness.sweeps import RATES
from tests.lanes import deep
from tests.results.made_records import make_record, write_run_folder

SYSTEMS = ("sync", "ddppo", "ver", "appo", "gossip", "mine")
SCENARIOS = ("emulated/open-fridge", "emulated/gibson", "pointnav", "vizdoom", "atari", "theirs/task")
DEVICES = ("cpu", "cuda", "emulated", "predicted")
SHARES: tuple[dict[str, float], ...] = (
    {},
    {"simulate": 0.5, "learn": 0.2, "infer": 0.1, "wait:straggler": 0.2},
    {"simulate": 0.2, "infer": 0.2, "wait:rollout": 0.3, "learn": 0.2, "wait:learner": 0.1},
)
LENGTHS = (0, 1, 2, 4, 10)
EXPORTS = ("csv", "json", "parquet", "markdown", "perfetto")
Sweep = list[dict[str, Any]]


@st.composite
def runs(draw: st.DrawFn) -> dict[str, Any]:
    """What one run was of, and how it ended; `rates` are those of its iterations."""
    device = draw(st.sampled_from(DEVICES))
    is_finished = draw(st.integers(0, 4)) > 0
    scale = draw(st.sampled_from((1.0, 0.5))) if device == "emulated" else 1.0
    cell: dict[str, Any] = {
        "scenario": draw(st.sampled_from(SCENARIOS)),
        "workload": draw(st.sampled_from(("homogeneous", "heterogeneous"))),
        "seed": draw(st.integers(0, 2)),
        "device": device,
        "protocol": draw(st.sampled_from(("steady", "ddppo"))),
        "scaling": draw(st.sampled_from(("weak", "strong"))),
        "settings": draw(st.sampled_from(({}, {"preempt.p": 0.5}, {"scenario.num_envs": 4}))),
    }
    return {
        "system": draw(st.sampled_from(SYSTEMS)),
        "gpus": draw(st.sampled_from((1, 2, 8, 256))),
        "status": "finished" if is_finished else draw(st.sampled_from(("failed", "timed-out", "invalid"))),
        "steps_per_s": draw(st.sampled_from((0.5, 100.0, 1e6))) if is_finished else None,
        "cell": {**cell, "hash": json.dumps(cell, sort_keys=True)},
        "figures": {
            "emulated": device == "emulated",
            "predicted": device == "predicted",
            "time_scale": scale,
            "time_shares": draw(st.sampled_from(SHARES)),
        },
        "rates": RATES[: draw(st.sampled_from(LENGTHS))],
    }


def write(folder: Path, sweep: Sweep) -> None:
    """A sweep of these runs; their cells are told apart by their hashes."""
    for number, run in enumerate(sweep):
        fields = {key: value for key, value in run.items() if key != "rates"}
        cell = {**run["cell"], "hash": f"{run['cell']['hash']}{run['system']}{run['gpus']}"}
        record = make_record(
            **{**fields, "cell": cell},
            reason=None if run["status"] == "finished" else "it ended",
            id=f"{number:03d}",
            sweep=folder.name,
            started_at=f"2026-01-01T00:00:{number:02d}+00:00",
        )
        write_run_folder(folder, record, run["rates"])


def every_command(folder: Path, sweeps: list[Sweep]) -> None:
    """Reports, compares, lists and exports the sweeps; a command that refuses says so in one line."""
    names = [str(folder / f"sweep-{number}") for number in range(len(sweeps))]
    for name, sweep in zip(names, sweeps, strict=True):
        Path(name).mkdir()
        write(Path(name), sweep)
    commands = [("report", *names, "--out", str(folder / "report.html")), ("results", names[0])]
    commands += [("compare", *pair) for pair in itertools.pairwise(names)]
    commands += [("export", *names, "--format", form, "--out", str(folder / f"out.{form}")) for form in EXPORTS]
    for command in commands:
        ended = call(*command)  # raises what the command raises
        assert ended.code in {0, 1, 2}, (command, ended)
        assert ended.err.count("\n") <= 1 or ended.code == 0, (command, ended)


@pytest.mark.parametrize("number", [12, pytest.param(400, marks=deep)])
def test_any_mixture_is_shown(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps that share no system, scenario, number of GPUs, device or time scale, or nothing at all, or are empty."""

    @settings(
        max_examples=number,
        deadline=None,
        database=None,
        derandomize=number < 100,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(st.lists(runs(), max_size=5), min_size=1, max_size=3))
    def show(sweeps: list[Sweep]) -> None:
        with tempfile.TemporaryDirectory(dir=tmp_path) as own:
            every_command(Path(own), sweeps)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    show()
