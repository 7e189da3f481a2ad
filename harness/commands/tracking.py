"""`rlbench export --format tensorboard|mlflow|wandb`: writes runs into the folders that experiment trackers read.

Their packages are extras of rlbench. They are imported only here, and nothing is sent anywhere.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from rlbench.results.records.store import StoredRun, Unreadable, check_writable
from rlbench.results.summary.scaled import scale

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rlbench.reports.exports.tracked import Tracked

TRACKERS = {"tensorboard": ("tensorboard",), "mlflow": ("mlflow", "sqlalchemy", "alembic"), "wandb": ("wandb",)}
"""Formats, which are names of modules of `reports.exports` and of extras too, and the packages that each needs."""


class _Tracker(Protocol):
    def write(self, runs: Iterable[Tracked], out: Path) -> str:
        """Writes some runs; returns the command that shows or uploads them."""


def check_tracker(form: str, out: Path | None) -> Path:
    """The folder to write to. Raises ValueError unless the packages and the folder are there, or can be made."""
    for package in TRACKERS[form]:
        if find_spec(package) is None:
            raise ValueError(f"--format {form}: needs the package {package}; pip install 'rlbench[{form}]'")
    if out is None:
        raise ValueError(f"--format {form}: is a folder; name it with --out")
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out}: is a file; --format {form} writes a folder, name another")
    check_writable(out)
    return out


def export_runs(runs: Sequence[StoredRun], unreadable: Sequence[Unreadable], form: str, out: Path) -> None:
    """Writes runs into a tracker's folder, and prints how many, and the command that shows them.

    Runs that cannot be read are named on stderr. Raises ValueError for two runs of one name, for none that can be read
    and for a folder that cannot be written.
    """
    _check_distinct(runs)
    for each in unreadable:
        _warn(each.reason)
    exporter = _Exporter()
    try:
        tracker = cast("_Tracker", import_module(f"rlbench.reports.exports.{form}"))
        out.mkdir(parents=True, exist_ok=True)
        command = tracker.write(exporter.each(scale(runs)), out)
    except ImportError as problem:
        raise ValueError(f"--format {form}: {problem}; pip install 'rlbench[{form}]'") from None
    except OSError as problem:
        raise ValueError(f"--out {out}: cannot be written ({problem.strerror or problem}); name another") from None
    if not exporter.kinds:
        raise ValueError(f"--format {form}: no run could be read")
    sys.stdout.write(f"{out}: {_counted(exporter.kinds)}\n{command}\n")


class _Exporter:
    """Reads runs one after the other, as they are asked for."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        """Of the runs that could be read."""

    def each(self, runs: Sequence[StoredRun]) -> Iterator[Tracked]:
        from rlbench.reports.exports.tracked import tracked

        for run in runs:
            try:
                one = tracked(run)
            except ValueError as problem:
                _warn(str(problem))
                continue
            yield one
            self.kinds.append(one.kind)


def _check_distinct(runs: Sequence[StoredRun]) -> None:
    found: dict[tuple[str, str], Path] = {}
    for run in runs:
        name = run.record.sweep, run.record.id
        if (first := found.setdefault(name, run.path)) is not run.path:
            raise ValueError(f"{first}, {run.path}: are the same run, {'/'.join(name)}; name one of them")


def _counted(kinds: Sequence[str]) -> str:
    others = [f"{kinds.count(kind)} {kind}" for kind in ("emulated", "predicted") if kind in kinds]
    runs = "1 run" if len(kinds) == 1 else f"{len(kinds):,} runs"
    return runs + (f" ({', '.join(others)})" if others else "")


def _warn(text: str) -> None:
    print(f"rlbench: warning: {text}", file=sys.stderr)  # noqa: T201  stdout has what was written
