from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rlbench.reports.exports.course import MOST_POINTS
from rlbench.reports.exports.names import file_name_of, name_of
from rlbench.reports.exports.tracked import Kind, Tracked, tracked
from rlbench.results.records.store import load_run
from tests.reports.exports.made_runs import BEGAN_S, STARTING_S, make_run
from tests.results.made_records import make_record, write_run_folder


def curve(run: Tracked, name: str) -> list[tuple[int, float, float]]:
    """Step, time on the run's clock and value of the points that have a name."""
    zero_s = BEGAN_S + STARTING_S
    return [(point.step, point.time_s - zero_s, point.numbers[name]) for point in run.points if name in point.numbers]


def test_steps_are_samples_of_all_ranks(tmp_path: Path) -> None:
    """A point of the series is an iteration of both ranks: its step is all that they had learned, its time the wall's.

    A statistic is left out where no rank has one, a rate is of both, and shares are of both ranks' time.
    """
    run = tracked(make_run(tmp_path))
    assert curve(run, "charts/SPS") == [(20, 1.0, 20.0), (40, 2.0, 20.0), (60, 3.0, 20.0)]
    assert curve(run, "charts/episodic_return") == [(40, 2.0, 1.0), (60, 3.0, 2.0)]
    assert curve(run, "losses/policy_loss") == [(20, 1.0, 0.5), (40, 2.0, 0.25), (60, 3.0, 0.0)]
    assert [value for *_, value in curve(run, "charts/policy_lag")] == [0.5] * 3
    assert [value for *_, value in curve(run, "time/simulate")] == [0.75] * 3
    assert [value for *_, value in curve(run, "time/wait_straggler")] == [0.125] * 3


def test_telemetry_is_at_the_step_of_its_moment(tmp_path: Path) -> None:
    """Before the first iteration that is 0, in the middle of one it is interpolated, after the last it is the last."""
    run = tracked(make_run(tmp_path))
    assert curve(run, "telemetry/memory_bytes") == [(0, -1.0, 10.0), (30, 1.5, 20.0), (60, 3.5, 30.0)]
    assert curve(run, "telemetry/cpu_percent") == [(30, 1.5, 100.0), (60, 3.5, 50.0)]


def test_time_of_an_emulated_run_is_the_walls(tmp_path: Path) -> None:
    """A second of a profile that is run twice as fast is half a second; the profile's is a value."""
    run = tracked(make_run(tmp_path, figures={"time_scale": 0.5}))
    assert [moment for _, moment, _ in curve(run, "charts/SPS")] == [0.5, 1.0, 1.5]
    assert [value for *_, value in curve(run, "charts/run_seconds")] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("figures", "cell", "kind"),
    [
        ({"emulated": False}, {"device": "cuda"}, "measured"),
        ({"emulated": True}, {}, "emulated"),
        ({"emulated": False}, {"device": "emulated"}, "emulated"),
        ({"emulated": True, "predicted": True}, {"device": "predicted"}, "predicted"),
    ],
)
def test_what_was_not_measured_says_so(
    tmp_path: Path, figures: dict[str, Any], cell: dict[str, Any], kind: Kind
) -> None:
    """Name, tag, setting and note of an emulated or predicted run have its kind; a predicted one has figures alone."""
    run = tracked(make_run(tmp_path, figures=figures, cell=cell))
    assert (run.kind, run.tags["kind"], run.settings["kind"]) == (kind, kind, kind)
    assert run.name == (run.id if kind == "measured" else f"{run.id}-{kind}")
    assert [note.startswith(f"{kind}:") for note in run.notes] == ([] if kind == "measured" else [True])
    assert bool(run.points) == (kind != "predicted")
    assert run.figures["figures/steps_per_s"] == 100.0


def test_figures_are_the_numbers_of_the_record(tmp_path: Path) -> None:
    """An interval has two ends, a reading its value; what was not measured is left out."""
    figures = {"steps_per_s_interval": (90.0, 110.0), "efficiency": None}
    run = tracked(make_run(tmp_path, figures=figures))
    assert run.figures["figures/steps_per_s_low"] == 90.0
    assert run.figures["figures/steps_per_s_high"] == 110.0
    assert run.figures["figures/utilisation"] == 0.42
    assert run.figures["figures/time_shares/wait_straggler"] == 0.2
    assert run.figures["counters/env_steps"] == 1000
    assert not any("efficiency" in name or "source" in name for name in run.figures)


def test_settings_are_the_configuration_by_dotted_name(tmp_path: Path) -> None:
    """Numbers and booleans stay so; what has no number is a text; a record's own key cannot replace the run's."""
    configuration = {"system": {"name": "ddppo", "p": 0.5, "on": True, "none": None}, "kind": "measured"}
    settings = tracked(make_run(tmp_path, configuration=configuration)).settings
    assert [settings[f"system.{name}"] for name in ("name", "p", "on", "none")] == ["ddppo", 0.5, True, "none"]
    assert (settings["kind"], settings["gpus"], settings["seed"]) == ("emulated", 2, 0)


def test_a_run_without_a_course(tmp_path: Path) -> None:
    """A run that failed at once has no points, and says why."""
    failed = write_run_folder(tmp_path, make_record(status="failed", reason="rank 0 raised", steps_per_s=None))
    run = tracked(load_run(failed))
    assert (run.points, run.status, run.last_step) == ([], "failed", 0)
    assert "failed: rank 0 raised" in run.notes


def test_a_long_series_is_thinned(tmp_path: Path) -> None:
    """More iterations than a tracker draws become that many points: all samples are counted, the last step stays."""
    num = 2 * MOST_POINTS + 3
    run = tracked(load_run(write_run_folder(tmp_path, make_record(starting_s=STARTING_S), [100.0] * num)))
    points = curve(run, "charts/SPS")
    assert len(points) == MOST_POINTS
    assert points[-1][0] == 1000 * num
    assert {round(value, 6) for *_, value in points} == {100.0}


def test_a_damaged_table_is_named(tmp_path: Path) -> None:
    """A file that cannot be read is said with its path."""
    run = make_run(tmp_path)
    (run.path / "telemetry.parquet").write_bytes(b"no table")
    with pytest.raises(ValueError, match=r"telemetry\.parquet: cannot be read"):
        tracked(run)


def test_a_value_that_is_not_finite_is_left_out(tmp_path: Path) -> None:
    """Trackers draw no infinity."""
    run = tracked(make_run(tmp_path, statistics={"mine": [float("inf"), 1.0, float("nan")] * 2}))
    assert curve(run, "stats/mine") == [(40, 2.0, 1.0)]


def test_names_of_columns_may_be_anybodys(tmp_path: Path) -> None:
    """A column cannot lead out of its group, nor be of a name that trackers refuse."""
    run = tracked(make_run(tmp_path, statistics={"../../x y:z": [1.0] * 6}))
    assert len(curve(run, "stats/x_y_z")) == 3


@pytest.mark.parametrize("text", ["../../etc/passwd", "/abs", "..", ".", "", "a/../b", "~", "x\ny", "-rf", "ä" * 300])
def test_file_names_stay_in_their_folder(tmp_path: Path, text: str) -> None:
    """Whatever a record says becomes one part of a path, which is neither hidden nor an option; values' names too."""
    name = file_name_of(text)
    assert (tmp_path / name).parent == tmp_path
    assert (tmp_path / name).resolve().parent == tmp_path.resolve()
    assert name[0] not in ".-~/"
    assert len(name) <= 200
    assert not {"", ".", ".."} & set(name_of(text).split("/"))


def test_series_of_one_column_less(tmp_path: Path) -> None:
    """Only what parts are made of is needed."""
    run = make_run(tmp_path)
    series = pd.read_parquet(run.path / "series.parquet")
    series[["rank", "iteration", "begin_s", "end_s", "learned"]].to_parquet(run.path / "series.parquet")
    assert len(curve(tracked(run), "charts/SPS")) == 3
