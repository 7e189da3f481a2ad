from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rlbench.harness.metering.meter_file import SPANS
from rlbench.results.records.parts import read_parts
from rlbench.results.records.store import read_runs
from tests.harness.command import QUICK, Ended, call, launch

DDPPO = "ddppo:preempt.p=0.80"


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """A sweep of two cells on emulated GPUs, and one of two that end by other limits on the CPU, in one folder."""

    out: Path
    emulated: Ended
    cpu: Ended
    runs: list[dict[str, Any]]
    """As `results --json` prints them, oldest first."""

    def folder(self, number: int) -> Path:
        """The run folder of `runs[number]`."""
        return self.out / str(self.runs[number]["sweep"]) / str(self.runs[number]["id"])

    def table(self, number: int, name: str) -> pd.DataFrame:
        """A Parquet file of a run."""
        return pd.read_parquet(self.folder(number) / f"{name}.parquet")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """Runs them."""
    folder = tmp_path_factory.mktemp("real")
    emulated = launch(
        *("run", "--systems", f"sync,{DDPPO}", *QUICK, "--gpus", "2", "--protocol", "ddppo", "--out", "out"),
        folder=folder,
    )
    pointnav = "pointnav:num_envs=2:rollout_steps"
    cpu = launch(
        *("run", "--systems", "sync", "--device", "cpu", "--scenario", f"{pointnav}=16,{pointnav}=32:max_steps=1"),
        *("--env-steps", "200", "--until", "length<=1", "--iterations", "50", "--out", "out"),
        folder=folder,
    )
    runs = json.loads(call("results", str(folder / "out"), "--json").out)
    return Done(out=folder / "out", emulated=emulated, cpu=cpu, runs=runs)


def test_all_cells_finish(done: Done) -> None:
    """Every cell ends as finished, the command with exit code 0, and its table is the last thing it prints."""
    for ended in (done.emulated, done.cpu):
        assert ended.code == 0, ended.err
    assert [(run["status"], run["reason"]) for run in done.runs] == [("finished", None)] * 4
    table = done.emulated.out.partition("steps/s ")[2]
    assert "ddppo:preempt.p=0.8" in table
    assert ", 2 emulated GPUs, " in done.emulated.out
    assert f"runs: {Path('out', done.runs[0]['sweep'])}" in table


def test_records_have_the_documented_keys(done: Done) -> None:
    """The keys that users script against are there, with the types that they have."""
    for run in done.runs:
        assert {"status", "reason", "cell", "counters", "figures", "configuration", "machine", "packages"} <= set(run)
        assert {"commit", "command", "started_at", "duration_s", "warnings", "schema_version", "id", "sweep"} <= set(
            run
        )
        assert set(run["cell"]) == {
            *("system", "settings", "scenario", "workload", "gpus", "seed", "device", "protocol", "hash"),
            "scaling",
        }
        assert set(run["counters"]) == {
            *("env_steps", "agent_steps", "frames", "learned", "reused", "discarded", "in_flight", "episodes"),
        }
        assert run["counters"]["agent_steps"] is None
        assert {"steps_per_s", "scaling_factor", "efficiency", "utilisation", "time_shares", "lag"} <= set(
            run["figures"]
        )
        assert all(isinstance(count, int) for name, count in run["counters"].items() if name != "agent_steps")
    sync, ddppo, pointnav, _ = done.runs
    assert sync["cell"] | {"hash": ""} == {
        "system": "sync",
        "settings": {"scenario.num_envs": 2, "scenario.rollout_steps": 8, "scenario.time_scale": 0.02},
        "scenario": "emulated/open-fridge",
        "workload": "homogeneous",
        "gpus": 2,
        "seed": 0,
        "device": "emulated",
        "protocol": "ddppo",
        "scaling": "weak",
        "hash": "",
    }
    assert ddppo["cell"]["settings"]["preempt.p"] == 0.8
    assert pointnav["cell"]["device"] == "cpu"
    assert len({run["cell"]["hash"] for run in done.runs}) == 4


def test_samples_are_conserved_to_the_sample(done: Done) -> None:
    """Collected = learned + discarded + in flight; further epochs count as reused, each sample as fresh once."""
    for run in done.runs:
        counters = run["counters"]
        assert counters["env_steps"] == counters["learned"] + counters["discarded"] + counters["in_flight"] > 0
        assert counters["frames"] == counters["env_steps"]
        assert counters["reused"] == counters["learned"]  # two epochs
    sync, _, pointnav, _ = done.runs
    assert sync["counters"]["learned"] == 10 * 2 * 2 * 8
    assert pointnav["counters"]["learned"] == 7 * 2 * 16


def test_counters_are_the_sums_of_the_series(done: Done) -> None:
    """What the record says in total is what the time series says part by part."""
    for number, run in enumerate(done.runs):
        series = done.table(number, "series")
        for name in ("learned", "reused", "discarded"):
            assert series[name].sum() == run["counters"][name]
        assert series["collected"].sum() == run["counters"]["env_steps"]
        assert len(done.table(number, "episodes")) == run["counters"]["episodes"]


def test_what_was_learned_from_is_recorded(done: Done) -> None:
    """A row for each environment of each rank adds up to the counters, and so do parts and lengths of episodes."""
    names = ("started", "learned", "discarded", "in_flight")
    for number, run in enumerate(done.runs):
        environments, found = done.table(number, "environments"), run["learned_from"]
        expected = [run["counters"][name] for name in ("env_steps", *names[1:])]
        assert environments[list(names)].sum().tolist() == expected
        for rows in (found["parts"], found["lengths"]):
            assert [sum(row[name] for row in rows) for name in names] == expected
        assert found["environments"] == len(environments) == 2 * run["cell"]["gpus"]
        assert found["cut"] == environments["cut"].sum()
        assert found["kept"] is None
    sync, ddppo, pointnav, short = (run["learned_from"] for run in done.runs)
    assert (sync["cut"], sync["shares"]) == (0, {"least": 0.25, "most": 0.25, "even": 0.25, "distance": 0.0, "p": 1.0})
    assert ddppo["cut"] == 10 * 2 * 2 * 8 - done.runs[1]["counters"]["learned"]
    assert [part["name"] for part in pointnav["parts"]] == ["2x2 rooms"]
    assert {row["name"] for row in short["lengths"]} == {"1"}


def test_measured_runs_say_what_would_help(done: Done) -> None:
    """10 % more of a stage gives between nothing and 10 %, and what all of them save adds up to most of a run."""
    for run in done.runs:
        gains = run["figures"]["gains"]
        assert set(gains) == {"simulator", "inference", "scheduling", "learner", "communication"}
        assert all(1 <= gain <= 1.1 + 1e-9 for gain in gains.values()), gains
        assert sum(1 - 1 / gain for gain in gains.values()) == pytest.approx(1 - 1 / 1.1, rel=0.5)


def test_limits_end_runs(done: Done) -> None:
    """Iterations end a run exactly, env steps with the iteration that reaches them, a metric as soon as it is known."""
    ends = [done.table(number, "series")["iteration"].max() + 1 for number in range(4)]
    assert ends[:3] == [10, 10, 7]  # of 32 env steps each: 200 are reached with the seventh
    assert ends[3] == 2  # 64 episodes an iteration: 100 are there after the second, all of one step
    assert done.runs[3]["figures"]["episode_length"] == 1.0


def test_series_has_a_row_for_each_iteration_of_each_rank(done: Done) -> None:
    """The time series holds when each iteration was, what was done in it, and where its time went, to the second."""
    series = done.table(0, "series")
    assert sorted(zip(series["rank"], series["iteration"], strict=True)) == [(r, i) for r in (0, 1) for i in range(10)]
    assert {"rank", "iteration", "begin_s", "end_s", "learned", "reused", "discarded", "lag_sum"} <= set(series)
    assert {"gpu_busy_s", "collected", "loss", "entropy", *(f"span/{kind}" for kind in SPANS)} <= set(series)
    assert series["begin_s"].min() == 0
    for _, rows in series.groupby("rank"):
        assert rows["begin_s"].tolist()[1:] == rows["end_s"].tolist()[:-1]
    spans = series[[f"span/{kind}" for kind in SPANS]].sum(axis=1)
    assert (spans - (series["end_s"] - series["begin_s"])).abs().max() < 1e-6
    assert "gpu_busy_s" not in done.table(2, "series")


def test_spans_and_episodes_can_be_read(done: Done) -> None:
    """The other files have the documented columns and lie on the same clock."""
    spans, episodes, telemetry = (done.table(1, name) for name in ("spans", "episodes", "telemetry"))
    assert set(spans) == {"rank", "environment", "begin_s", "end_s", "kind"}
    assert set(spans["environment"]) == {-1, 0, 1}
    assert (spans["end_s"] >= spans["begin_s"]).all()
    steps = spans[(spans["kind"] == "simulate") & (spans["environment"] >= 0)]
    assert len(steps) == done.runs[1]["counters"]["env_steps"]
    assert set(spans["kind"]) <= set(SPANS)
    fields = {"rank", "environment", "end_s", "return", "length", "frames", "success", "spl"}
    assert set(episodes) == fields
    assert set(done.table(3, "episodes")) == fields
    assert set(done.table(3, "episodes")["environment"]) == {0, 1}
    assert (done.table(3, "episodes")["length"] == 1).all()
    assert {"t", "cpu_percent", "memory_bytes", "num_processes"} <= set(telemetry)
    assert telemetry["memory_bytes"].max() == done.runs[1]["figures"]["memory_bytes"]["value"]
    assert telemetry["num_processes"].max() >= 1 + 2 + 4  # the keeper, the ranks, their workers


def test_protocol_ddppo_counts_the_last_5_of_10(done: Done) -> None:
    """The rate is what was learned in the window / its seconds, and the parts of the window are kept."""
    for run in read_runs(done.out)[:2]:
        window = run.record.figures.window
        assert window is not None
        assert (window.first_iteration, window.last_iteration, window.steady) == (5, 9, True)
        parts = run.parts
        assert [part.iteration for part in parts] == [5, 6, 7, 8, 9]
        assert (parts[0].begin_s, parts[-1].end_s) == (window.begin_s, window.end_s)
        learned = sum(part.learned for part in parts)
        assert run.record.figures.steps_per_s == pytest.approx(learned / (window.end_s - window.begin_s))
        assert run.record.figures.steps_per_s_interval is not None
        assert len(read_parts(run.path)) == 10


def test_figures_say_what_they_are(done: Done) -> None:
    """Shares are of all the time, lags are those of the system, utilisation has its source, emulated figures say so."""
    for number, run in enumerate(done.runs):
        figures = run["figures"]
        window, rows = figures["window"], done.table(number, "series")
        counted = rows[rows["iteration"].between(window["first_iteration"], window["last_iteration"])]
        whole_s = run["cell"]["gpus"] * (window["end_s"] - window["begin_s"])  # a rank's begins and ends a little apart
        assert sum(figures["time_shares"].values()) == pytest.approx(
            (counted["end_s"] - counted["begin_s"]).sum() / whole_s
        )
        assert sum(figures["env_time_shares"].values()) == pytest.approx(1)
        assert set(figures["env_time_shares"]) == {"simulate", "reset", "wait:inference"}
        assert figures["lag"] == {"mean": 0.0, "max": 0.0}
        assert (figures["scaling_factor"], figures["efficiency"]) == (1.0, 1.0)
    emulated, cpu = done.runs[0]["figures"], done.runs[2]["figures"]
    assert (emulated["emulated"], emulated["time_scale"]) == (True, 0.02)
    assert 0 < emulated["utilisation"]["value"] < 1
    assert emulated["utilisation"]["source"].startswith("emulated: ")
    assert (cpu["emulated"], cpu["time_scale"]) == (False, 1.0)
    assert cpu["utilisation"] == {"value": None, "source": "n/a: the ranks run on the CPU"}
    assert emulated["env_step_s"]["mean"] > 0.004  # a step of the profile has a median of 4.4 ms


def test_run_folders_hold_what_is_documented_and_nothing_else(done: Done) -> None:
    """`docs/run-folder.md` names every file of a run folder, and every column of its tables."""
    text = (Path(__file__).parents[3] / "docs" / "run-folder.md").read_text(encoding="utf-8")
    for number in range(4):
        names = {path.name for path in done.folder(number).iterdir()}
        assert {"run.json", "series.parquet", "spans.parquet", "telemetry.parquet", "stdout.txt", "stderr.txt"} <= names
        assert [name for name in names if f"`{name}`" not in text] == []
        for name in (name for name in names if name.endswith(".parquet")):
            columns = [str(column).partition("/")[0] for column in pd.read_parquet(done.folder(number) / name)]
            assert [column for column in columns if f"`{column}" not in text] == []
    sweep = done.out / str(done.runs[0]["sweep"])
    names = {str(done.runs[0]["id"]), str(done.runs[1]["id"]), "sweep.json"}
    assert {path.name for path in sweep.iterdir()} == names


def test_record_documents_its_keys(done: Done) -> None:
    """`docs/run-folder.md` names every key of `run.json` down to its figures."""
    text = (Path(__file__).parents[3] / "docs" / "run-folder.md").read_text(encoding="utf-8")
    keys = [*done.runs[0]]
    for part in ("cell", "counters", "figures", "learned_from"):
        keys += [*done.runs[0][part]]
    assert [key for key in keys if f"`{key}`" not in text] == []


def test_results_agree_in_all_forms(done: Done) -> None:
    """JSON, CSV and the table say the same of the same runs."""
    rows = list(csv.DictReader(io.StringIO(call("results", str(done.out), "--csv").out)))
    table = call("results", str(done.out)).out
    assert len(rows) == len(done.runs) == 4
    for row, run in zip(rows, done.runs, strict=True):
        assert row["id"] == run["id"]
        assert row["cell.system"] == run["cell"]["system"]
        assert int(row["counters.learned"]) == run["counters"]["learned"]
        assert float(row["figures.steps_per_s"]) == run["figures"]["steps_per_s"]
        assert float(row["learned_from.shares.even"]) == run["learned_from"]["shares"]["even"]
        assert dict(_flat(run["figures"]["time_shares"])) == {
            name.removeprefix("figures.time_shares."): float(value)
            for name, value in row.items()
            if name.startswith("figures.time_shares.") and value
        }
        assert f"| {_short(run['figures']['steps_per_s'])} " in " ".join(table.split())


def _flat(values: Mapping[str, float]) -> list[tuple[str, float]]:
    return list(values.items())


def _short(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 99.95 else f"{rate:#.3g}".rstrip(".")


def test_results_of_one_sweep_or_one_run(done: Done) -> None:
    """`results` takes the folder of all sweeps, of one sweep, or of one run."""
    sweep = done.folder(0).parent
    assert [run["id"] for run in json.loads(call("results", str(sweep), "--json").out)] == [
        run["id"] for run in done.runs[:2]
    ]
    assert [run["id"] for run in json.loads(call("results", str(done.folder(3)), "--json").out)] == [done.runs[3]["id"]]


def test_dry_run_prints_cells_and_time_and_writes_nothing(done: Done, tmp_path: Path) -> None:
    """`--dry-run` names the cells and how long they took before or may take, and leaves the folder as it was."""
    shutil.copytree(done.out, tmp_path / "out")
    before = sorted(tmp_path.rglob("*"))
    arguments = ("--systems", f"sync,{DDPPO},ddppo", *QUICK, "--gpus", "2", "--protocol", "ddppo")
    ended = call("run", *arguments, "--time-limit", "900", "--out", str(tmp_path / "out"), "--dry-run")
    assert (ended.code, ended.err) == (0, "")
    first, second, third, total = ended.out.splitlines()
    took = [f"{run['duration_s']:.0f} s (as before)" for run in done.runs[:2]]
    assert first.startswith("[1/3] sync emulated/open-fridge:num_envs=2")
    assert first.endswith(took[0])
    assert second.endswith(took[1])
    assert third.endswith("900 s (at most, by --time-limit)")
    assert total == "3 cells, expected time at most 45 min 00 s"
    assert sorted(tmp_path.rglob("*")) == before
    ended = call("run", *arguments, "--seconds", "30", "--out", str(tmp_path / "new"), "--dry-run")
    first, *_, total = ended.out.splitlines()
    assert first.endswith("38 s (about, by its limits; at most 3600 s, by --time-limit)")
    assert total == "3 cells, expected time about 1 min 54 s"
    assert not (tmp_path / "new").exists()
