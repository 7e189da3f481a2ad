"""Runs in a SQLite database of MLflow's, `OUT/mlflow.db`, which needs no server: an experiment for each sweep.

Parameters are the settings, metrics the points and the final figures of `reports.exports.tracked`. A run is looked up
by the tag `rlbench.key`. One that is exported again with the same content (`rlbench.digest`) is left as it is; else it
is deleted, as MLflow deletes, and written anew. The digest is written last, so that a run that was cut off is one of
these.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shlex
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

from rlbench.results.reading.outputs import refuse_links

if TYPE_CHECKING:
    from pathlib import Path

    from rlbench.reports.exports.tracked import Tracked

DATABASE = "mlflow.db"
KEY, DIGEST = "rlbench.key", "rlbench.digest"
NO_TELEMETRY = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
"""MLflow tells its makers which functions are used, unless these variables say otherwise."""
METRICS_EACH, PARAMS_EACH = 1000, 100
"""What MLflow takes at a time."""
LOGGERS = ("mlflow", "alembic")
ENDED = {"finished": "FINISHED", "interrupted": "KILLED"}
"""MLflow's words for how a run ended; all others are `FAILED`."""
NOTE = "mlflow.note.content"
"""The tag that MLflow shows as the run's description."""


def write(runs: Iterable[Tracked], out: Path) -> str:
    """Writes runs into the database, which is made if it is not there; returns the command that shows them.

    Raises OSError where the database is a link, and ValueError for a database that this MLflow cannot use.
    """
    refuse_links(out / DATABASE)
    address = f"sqlite:///{out.absolute() / DATABASE}"
    with _quiet():
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient
        from sqlalchemy.exc import SQLAlchemyError

        try:
            client = MlflowClient(tracking_uri=address)
            for run in runs:
                _write(client, run, (out.absolute() / "artifacts").as_uri())
        except (MlflowException, SQLAlchemyError) as problem:
            said = str(problem).partition("\n")[0]
            raise ValueError(f"{out / DATABASE}: MLflow cannot use it ({said}); name another folder") from None
    return f"mlflow ui --backend-store-uri {shlex.quote(address)}"


@contextmanager
def _quiet() -> Iterator[None]:
    """Neither tells anybody that MLflow is used, nor what it thinks of its own database."""
    before = {name: os.environ.get(name) for name in NO_TELEMETRY}
    levels = {name: logging.getLogger(name).level for name in LOGGERS}
    os.environ |= NO_TELEMETRY
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import mlflow  # noqa: F401  sets the levels of its loggers

            for name in LOGGERS:
                logging.getLogger(name).setLevel(logging.ERROR)
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _write(client: Any, run: Tracked, artifacts: str) -> None:
    from mlflow.entities import Metric, Param

    digest = hashlib.sha256(repr(run).encode()).hexdigest()
    experiment = client.get_experiment_by_name(run.sweep)
    number = client.create_experiment(run.sweep, artifacts) if experiment is None else experiment.experiment_id
    if experiment is not None and experiment.lifecycle_stage == "deleted":
        client.restore_experiment(number)
    for old in client.search_runs([number], f"tags.`{KEY}` = '{run.key}'"):
        if old.data.tags.get(DIGEST) == digest:
            return
        client.delete_run(old.info.run_id)
    tags = {**run.tags, KEY: run.key, NOTE: "\n\n".join(run.notes)}
    made = client.create_run(number, _ms(run.began_s), tags, run.name).info.run_id
    params = (Param(name, str(value)) for name, value in run.settings.items())
    while some := list(islice(params, PARAMS_EACH)):
        client.log_batch(made, params=some)
    metrics = _metrics(run, Metric)
    while some := list(islice(metrics, METRICS_EACH)):
        client.log_batch(made, metrics=some)
    client.set_tag(made, DIGEST, digest)
    client.set_terminated(made, ENDED.get(run.status, "FAILED"), _ms(run.ended_s))


def _metrics(run: Tracked, metric: Any) -> Iterator[Any]:
    for point in run.points:
        for name, value in point.numbers.items():
            yield metric(name, value, _ms(point.time_s), point.step)
    for name, value in run.figures.items():
        yield metric(name, value, _ms(run.ended_s), run.last_step)


def _ms(moment_s: float) -> int:
    return round(1000 * moment_s)
