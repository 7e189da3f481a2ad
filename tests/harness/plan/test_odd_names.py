"""Folders whose names are no text, and a locale that knows ASCII alone: bytes are passed through, and shown escaped."""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from unittest.mock import patch

import pytest

from rlbench.harness.processes.process import shared_memory_names
from rlbench.results.records.index import Index
from rlbench.results.records.store import run_folders
from rlbench.systems.model import compiling  # noqa: F401  now, as compiled code is kept below the HOME of the first import
from tests.harness.command import QUICK, Ended, assert_refused, call, launch
from tests.lanes import deep

ODD = os.fsdecode(b"caf\xe9")
OUT = f"{ODD}-runs"
SHOWN = r"caf\udce9"
LOCALES = {"utf-8": {}, "ascii": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}}
TRAINER = 'about = "é"\nenvironment = "ours"\nranks = "its own"\ncommand = ["{python}", "-c", "pass"]\n'


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A folder of an odd name, in which all that a command may look for has such a name too."""

    folder: Path
    variables: dict[str, str]
    is_own: bool
    """Whether this process can be the one that reads there: its locale is what it was started in."""

    def call(self, *arguments: str) -> Ended:
        """`rlbench`, there; in this process where that is the same."""
        if not self.is_own:
            return launch(*arguments, folder=self.folder, environment=self.variables)
        with contextlib.chdir(self.folder), patch.dict(os.environ, self.variables):
            return call(*arguments)

    @property
    def run(self) -> str:
        """The folder of its only run."""
        (record,) = self.folder.glob(f"{ODD}-runs/*/*/run.json")
        return str(record.parent.relative_to(self.folder))


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Place]:
    """A place for each locale, made when it is asked for first: the sweep of one is taken up again in the other."""

    @cache
    def place_of(locale: str) -> Place:
        place = make_place(tmp_path_factory.mktemp("odd"), locale)
        if locale == "ascii":
            run(place, "--systems", "ddppo", *QUICK, "--iterations", "2")
        else:
            shutil.copytree(place_of("ascii").folder / OUT, place.folder / OUT)
            shutil.rmtree(place.folder / place.run)
            run(place, "--resume")
        return place

    return place_of


def make_place(parent: Path, locale: str) -> Place:
    """A place where nothing was run yet."""
    folder = parent / f"{ODD}-é"
    folder.mkdir()
    variables = dict(LOCALES[locale])
    for name in ("XDG_CACHE_HOME", "TMPDIR", "HOME"):
        variables[name] = str(folder / f"{name}-{ODD}")
        Path(variables[name]).mkdir()
    return Place(folder=folder, variables=variables, is_own=locale == "utf-8")


def run(place: Place, *arguments: str) -> None:
    """Runs a sweep of one cell, or takes one up again."""
    planned = place.call("run", *arguments, "--out", OUT, "--dry-run")
    assert planned.code == 0, planned.err
    ended = launch("run", *arguments, "--out", OUT, folder=place.folder, environment=place.variables)
    assert ended.code == 0, ended.err
    assert f"runs: {SHOWN}-runs/" in ended.out
    assert list(Path(place.variables["TMPDIR"]).iterdir()) == []


@deep
@pytest.mark.parametrize("locale", LOCALES)
def test_a_sweep_is_taken_up_again_where_it_was_run(tmp_path: Path, locale: str) -> None:
    """In either locale; in both lanes what was run in one of them is taken up in the other."""
    place = make_place(tmp_path, locale)
    run(place, "--systems", "ddppo", *QUICK, "--iterations", "2")
    shutil.rmtree(place.folder / place.run)
    run(place, "--resume")
    assert place.run


COMMANDS = [
    ("results", "OUT"),
    ("results", "OUT", "--json"),
    ("results", "OUT", "--csv"),
    ("report", "OUT", "--out", "NEW.html"),
    ("compare", "OUT", "OUT"),
    ("export", "OUT", "--format", "csv", "--out", "NEW.csv"),
    ("export", "OUT", "--format", "json", "--out", "NEW.json"),
    ("export", "OUT", "--format", "parquet", "--out", "NEW.parquet"),
    ("export", "OUT", "--format", "markdown", "--out", "NEW.md"),
    ("export", "OUT", "--format", "perfetto", "--out", "NEW.perfetto"),
    ("export", "OUT", "--format", "markdown"),
    ("evaluate", "RUN", "--episodes", "1"),
    ("predict", "--from-run", "RUN", "--out", "predicted"),
    ("predict", "--systems", "ver", "--iterations", "1", "--out", "NEW"),
    ("profile", "--from-run", "RUN", "--out", "mine.toml"),
    ("scenes", "--out", "NEW.scenes", "--count", "1"),
    ("list",),
    ("doctor",),
    ("watch", "OUT"),
]
IN_ASCII = {("results", "OUT"), ("evaluate", "RUN", "--episodes", "1"), ("list",), COMMANDS[3]}
"""Those that show other letters than ours, or start processes: in that locale each is a process of its own."""


@pytest.mark.parametrize(
    ("locale", "arguments"),
    [*(("utf-8", words) for words in COMMANDS), *(("ascii", words) for words in COMMANDS if words in IN_ASCII)],
)
def test_every_command(places: Callable[[str], Place], locale: str, arguments: tuple[str, ...]) -> None:
    """It reads runs there, writes files of such names, and shows names and its own letters as well as it can."""
    place = places(locale)
    names = {"OUT": f"{ODD}-runs", "RUN": place.run}
    words = [names.get(word, word.replace("NEW", f"{ODD}-new")) for word in arguments]
    ended = place.call(*words)
    assert ended.code == 0, ended.err
    assert "Traceback" not in ended.err
    if arguments[-1].startswith("NEW"):
        assert (place.folder / words[-1]).exists()


def test_a_gate_of_folders(places: Callable[[str], Place]) -> None:
    """A folder is held against itself; too little was measured for an answer."""
    place = places("utf-8")
    ended = place.call("gate", "--baseline", f"{ODD}-runs", "--candidate", f"{ODD}-runs")
    assert (ended.code, ended.err) == (3, "")


@pytest.mark.parametrize("locale", LOCALES)
def test_files_that_cells_are_known_by(places: Callable[[str], Place], locale: str) -> None:
    """A profile or a trainer in such a place cannot be in a record: it is refused at once, with what to do."""
    place = places(locale)
    profile, trainer = place.folder / f"{ODD}.toml", place.folder / "trainer.toml"
    profile.touch()
    trainer.write_text(TRAINER, encoding="utf-8")
    what_to_do = "rename the file or folder, or set LC_ALL=C.UTF-8"
    run = ("run", "--device", "emulated", "--out", "refused")
    assert_refused(place.call(*run, "--systems", "ddppo", "--scenario", f"emulated/{profile.name}"), SHOWN, what_to_do)
    assert_refused(place.call(*run, "--systems", f"mine={trainer}", "--scenario", "pointnav"), SHOWN, what_to_do)
    made = ("--from-run", place.run, "--out")
    assert_refused(place.call("profile", *made, f"{ODD}-2.toml"), SHOWN, "must be UTF-8")
    assert_refused(place.call("predict", *made, f"{ODD}-2"), f"--out {SHOWN}-2", what_to_do)
    assert not (place.folder / "refused").exists()


def test_runs_of_odd_names_are_remembered(places: Callable[[str], Place]) -> None:
    """They are read as any other, the first time and from the file of remembered runs."""
    place = places("utf-8")
    for _ in range(2):
        with contextlib.closing(Index(run_folders(place.folder / f"{ODD}-runs"))) as index:
            assert index.unreadable() == []
            assert [run.path for run in index.runs()] == [place.folder / place.run]


def test_what_a_process_has_mapped(tmp_path: Path, shm_prefix: str) -> None:
    """Files of any name may be mapped; names of shared memory are those that remove it."""
    named = Path("/dev/shm") / f"{shm_prefix}-{ODD}"  # noqa: S108  it is shared memory
    for path in (tmp_path / ODD, named):
        path.write_bytes(b"x" * mmap.PAGESIZE)
    try:
        with contextlib.ExitStack() as stack:
            for path in (tmp_path / ODD, named):
                stack.enter_context(mmap.mmap(stack.enter_context(path.open("r+b")).fileno(), 0))
            assert str(named) in shared_memory_names(os.getpid())
    finally:
        named.unlink()
