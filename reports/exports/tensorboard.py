"""Runs as TensorBoard's event files: `OUT/<sweep>/<run>/events.out.tfevents.rlbench`.

The scalars are those of `reports.exports.tracked`, at their steps and wall times; final figures are at the last step.
Settings and status are written for the HParams tab, the run's notes for the Text tab. A run that is exported again
replaces its file, in one rename.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from rlbench.reports.exports.names import file_name_of
from rlbench.results.reading.outputs import refuse_links, whole

if TYPE_CHECKING:
    from pathlib import Path

    from rlbench.reports.exports.tracked import Tracked

EVENTS_FILE = "events.out.tfevents.rlbench"
"""TensorBoard reads what has `tfevents` in its name; with a name that stays, there is one file for each run."""
FILE_VERSION = "brain.Event:2"


def write(runs: Iterable[Tracked], out: Path) -> str:
    """Writes the event files of some runs; returns the command that shows them. Raises OSError."""
    from tensorboard.summary.writer.record_writer import RecordWriter

    for run in runs:
        folder = out / file_name_of(run.sweep) / file_name_of(run.name)
        refuse_links(folder.parent, folder)
        folder.mkdir(parents=True, exist_ok=True)
        with whole(folder / EVENTS_FILE) as file:
            writer = RecordWriter(file)
            for event in _events(run):
                writer.write(event.SerializeToString())
    return f"tensorboard --logdir {shlex.quote(str(out))}"


def _events(run: Tracked) -> Iterator[Any]:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    yield Event(wall_time=run.began_s, file_version=FILE_VERSION)
    yield Event(wall_time=run.began_s, summary=Summary(value=[_session_start(run)]))
    if run.notes:
        yield Event(wall_time=run.began_s, summary=Summary(value=[_text("notes", run.notes)]))
    for point in run.points:
        values = [Summary.Value(tag=name, simple_value=value) for name, value in point.numbers.items()]
        yield Event(wall_time=point.time_s, step=point.step, summary=Summary(value=values))
    values = [Summary.Value(tag=name, simple_value=value) for name, value in run.figures.items()]
    yield Event(wall_time=run.ended_s, step=run.last_step, summary=Summary(value=values))
    yield Event(wall_time=run.ended_s, summary=Summary(value=[_session_end(run)]))


def _session_start(run: Tracked) -> Any:
    from tensorboard.plugins.hparams import metadata
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionStartInfo

    start = SessionStartInfo(group_name=f"{run.sweep}/{run.name}", start_time_secs=run.began_s)
    for name, value in {**run.settings, "status": run.status}.items():
        if isinstance(value, bool):
            start.hparams[name].bool_value = value
        elif isinstance(value, str):
            start.hparams[name].string_value = value
        else:
            start.hparams[name].number_value = value
    return _of_hparams(metadata.SESSION_START_INFO_TAG, HParamsPluginData(session_start_info=start))


def _session_end(run: Tracked) -> Any:
    from tensorboard.plugins.hparams import api_pb2, metadata
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo

    status = api_pb2.STATUS_SUCCESS if run.status == "finished" else api_pb2.STATUS_FAILURE
    end = SessionEndInfo(status=status, end_time_secs=run.ended_s)
    return _of_hparams(metadata.SESSION_END_INFO_TAG, HParamsPluginData(session_end_info=end))


def _of_hparams(tag: str, data: Any) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams import metadata

    about = metadata.create_summary_metadata(data)
    return Summary.Value(tag=tag, metadata=about, tensor=metadata.NULL_TENSOR)


def _text(tag: str, lines: Iterable[str]) -> Any:
    """Lines for the Text tab, which reads Markdown."""
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboard.compat.proto.types_pb2 import DT_STRING
    from tensorboard.plugins.text import metadata

    from rlbench.reports.exports.markdown import escape

    shown = "\n".join(f"- {escape(line)}" for line in lines)
    tensor = TensorProto(dtype=DT_STRING, string_val=[shown.encode()], tensor_shape=TensorShapeProto())
    return Summary.Value(tag=tag, metadata=metadata.create_summary_metadata(tag, ""), tensor=tensor)
