from __future__ import annotations

from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata

from rlbench.reports.exports import tensorboard
from rlbench.reports.exports.tracked import tracked
from tests.reports.exports.made_runs import BEGAN_S, STARTING_S, make_run


def read(folder: Path) -> EventAccumulator:
    """A run as TensorBoard reads it."""
    found = EventAccumulator(str(folder))
    found.Reload()
    return found


def hparams(found: EventAccumulator, tag: str) -> Any:
    """What a run says for the HParams tab."""
    return metadata.parse_session_start_info_plugin_data(found.SummaryMetadata(tag).plugin_data.content)


def test_what_tensorboard_reads(tmp_path: Path) -> None:
    """A curve has the run's steps and times, a figure stands at the last step, notes and settings have their tabs."""
    run = tracked(make_run(tmp_path / "runs"))
    shown = tensorboard.write([run], tmp_path / "out")
    assert shown == f"tensorboard --logdir {tmp_path / 'out'}"
    found = read(tmp_path / "out" / "sweep-1" / "ddppo-2-emulated")
    curve = [(each.step, each.wall_time, each.value) for each in found.Scalars("charts/episodic_return")]
    assert curve == [(40, BEGAN_S + STARTING_S + 2, 1.0), (60, BEGAN_S + STARTING_S + 3, 2.0)]
    assert [(each.step, each.value) for each in found.Scalars("figures/steps_per_s")] == [(60, 100.0)]
    start = hparams(found, metadata.SESSION_START_INFO_TAG)
    assert start.hparams["kind"].string_value == "emulated"
    assert start.hparams["gpus"].number_value == 2
    assert start.group_name == "sweep-1/ddppo-2-emulated"
    (notes,) = found.Tensors("notes")
    assert b"emulated" in notes.tensor_proto.string_val[0]


def test_a_second_export_replaces_the_first(tmp_path: Path) -> None:
    """There is one file for each run, however often it is written."""
    run = tracked(make_run(tmp_path / "runs"))
    for _ in range(2):
        tensorboard.write([run], tmp_path / "out")
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert [path.name for path in files] == ["events.out.tfevents.rlbench"]
    assert len(read(files[0].parent).Scalars("charts/SPS")) == 3


def test_a_run_that_failed_says_so(tmp_path: Path) -> None:
    """Its session ends with that status."""
    run = tracked(make_run(tmp_path / "runs", status="timed-out", reason="not over after 3 s"))
    tensorboard.write([run], tmp_path / "out")
    found = read(tmp_path / "out" / "sweep-1" / run.name)
    content = found.SummaryMetadata(metadata.SESSION_END_INFO_TAG).plugin_data.content
    assert metadata.parse_session_end_info_plugin_data(content).status == 2  # STATUS_FAILURE
    assert hparams(found, metadata.SESSION_START_INFO_TAG).hparams["status"].string_value == "timed-out"


def test_names_from_a_record_stay_in_the_folder(tmp_path: Path) -> None:
    """A sweep and a run that are named like a way out are folders of the folder."""
    run = make_run(tmp_path / "runs", sweep="../../out-of-it")
    tensorboard.write([tracked(run)], tmp_path / "out")
    (file,) = (path for path in tmp_path.rglob("*tfevents*"))
    assert file.parents[2] == tmp_path / "out"
