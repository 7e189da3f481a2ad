from __future__ import annotations

import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlbench.reports.exports import mlflow
from rlbench.reports.exports.mlflow import DATABASE, NO_TELEMETRY
from rlbench.reports.exports.tracked import Tracked, tracked
from tests.reports.exports.made_runs import BEGAN_S, STARTING_S, make_run


@pytest.fixture
def run(tmp_path: Path) -> Tracked:
    """An emulated run."""
    return tracked(make_run(tmp_path / "runs", figures={"steps_per_s_interval": (90.0, 110.0)}))


def read(out: Path, sweep: str = "sweep-1") -> tuple[Any, list[Any]]:
    """A client of the database, and the runs of a sweep in it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of MLflow's own use of SQLAlchemy
        from mlflow.tracking import MlflowClient

        client = MlflowClient(tracking_uri=f"sqlite:///{out / DATABASE}")
        return client, list(client.search_runs([client.get_experiment_by_name(sweep).experiment_id]))


def test_what_mlflow_reads(tmp_path: Path, run: Tracked) -> None:
    """A sweep is an experiment; a run has settings, figures, notes, times and curves along steps."""
    out = tmp_path / "out"
    out.mkdir()
    assert mlflow.write([run], out) == f"mlflow ui --backend-store-uri sqlite:///{out / DATABASE}"
    client, (found,) = read(out)
    assert (found.info.run_name, found.info.status) == ("ddppo-2-emulated", "FINISHED")
    assert (found.info.start_time, found.info.end_time) == (1000 * BEGAN_S, 1000 * (BEGAN_S + 12.5))
    assert (found.data.params["kind"], found.data.params["gpus"]) == ("emulated", "2")
    assert found.data.tags["kind"] == "emulated"
    assert found.data.tags["mlflow.note.content"].startswith("emulated:")
    assert found.data.metrics["figures/steps_per_s"] == 100.0
    assert found.data.metrics["figures/steps_per_s_low"] == 90.0
    curve = client.get_metric_history(found.info.run_id, "charts/episodic_return")
    begin = 1000 * (BEGAN_S + STARTING_S)
    assert [(each.step, each.timestamp, each.value) for each in curve] == [
        (40, begin + 2000, 1.0),
        (60, begin + 3000, 2.0),
    ]
    assert [path.name for path in out.iterdir()] == [DATABASE]


def test_a_second_export_changes_what_changed(tmp_path: Path, run: Tracked) -> None:
    """The same run is left as it is; one whose figures are others takes the place of the first."""
    mlflow.write([run], tmp_path)
    _, (first,) = read(tmp_path)
    mlflow.write([run], tmp_path)
    assert [each.info.run_id for each in read(tmp_path)[1]] == [first.info.run_id]
    mlflow.write([replace(run, figures={"figures/steps_per_s": 50.0})], tmp_path)
    (second,) = read(tmp_path)[1]
    assert second.info.run_id != first.info.run_id
    assert second.data.metrics["figures/steps_per_s"] == 50.0


def test_what_was_cut_off_is_written_anew(tmp_path: Path, run: Tracked) -> None:
    """A run whose export was interrupted is there once, complete, after the next."""

    def runs() -> Any:
        yield replace(run, points=[*run.points, None])  # type: ignore[list-item]  # which raises in the middle

    with pytest.raises(AttributeError):
        mlflow.write(runs(), tmp_path)
    mlflow.write([run], tmp_path)
    assert [each.info.status for each in read(tmp_path)[1]] == ["FINISHED"]


def test_runs_that_did_not_finish(tmp_path: Path) -> None:
    """Their status is MLflow's word for it, and ours is a tag."""
    expected = {"failed": "FAILED", "invalid": "FAILED", "timed-out": "FAILED", "interrupted": "KILLED"}
    made = (make_run(tmp_path / "runs", id=status, status=status, reason="why") for status in expected)
    mlflow.write(map(tracked, made), tmp_path)
    assert {found.data.tags["status"]: found.info.status for found in read(tmp_path)[1]} == expected


def test_a_file_that_is_no_database(tmp_path: Path, run: Tracked) -> None:
    """What stands in the database's place is named in a line."""
    (tmp_path / DATABASE).write_text("no database, " * 100)
    with pytest.raises(ValueError, match=rf"{DATABASE}: MLflow cannot use it .*; name another folder"):
        mlflow.write([run], tmp_path)


def test_telemetry_is_off_and_the_environment_stays(
    tmp_path: Path, run: Tracked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While MLflow works it is told to tell nobody; afterwards variables are as before."""
    for name in NO_TELEMETRY:
        monkeypatch.delenv(name, raising=False)
    seen: list[str | None] = []

    def runs() -> Any:
        seen.extend(os.environ.get(name) for name in NO_TELEMETRY)
        yield run

    mlflow.write(runs(), tmp_path)
    assert seen == ["true", "true"]
    assert not set(NO_TELEMETRY) & set(os.environ)


def test_names_from_a_record_are_only_shown(tmp_path: Path) -> None:
    """A sweep and a run that are named like a way out, or like a query, are texts in the database."""
    hostile = tracked(make_run(tmp_path / "runs", sweep="../../x' OR '1'='1"))
    out = tmp_path / "out"
    out.mkdir()
    for _ in range(2):
        mlflow.write([hostile], out)
    assert len(read(out, hostile.sweep)[1]) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "runs"]
