"""Folders of sweeps and of caches that somebody else has laid out: nothing outside of them is removed or written."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from rlbench.harness.cluster.job import cell_lock
from rlbench.harness.cluster.slurm import make_logs
from rlbench.harness.processes import shared_memory
from rlbench.harness.processes.held import elsewhere
from rlbench.harness.processes.scratch import FILE, Scratch
from rlbench.harness.processes.shared_memory import Before
from rlbench.harness.run.sweep import PLAN_FILE, Sweep
from rlbench.results.records.store import PARTIAL_PREFIX
from tests.harness import sweeps
from tests.harness.command import assert_refused, call
from tests.harness.run.test_sweep import _planned, finish

here = pytest.fixture(autouse=True)(sweeps.here)
Tree = dict[Path, bytes | None]


def tree(folder: Path) -> Tree:
    """All that is in a folder: files with what they hold."""
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr("rlbench.harness.processes.scratch.LONGEST_TMPDIR", 1000)
    return folder


@pytest.fixture
def precious(temporary: Path) -> Path:
    """A folder of the user's: a scratch of another run of theirs, which goes on."""
    run = temporary / "run"
    run.mkdir()
    scratch = Scratch.make(run, Before.now(object()))
    (scratch.path / "deep").mkdir()
    (scratch.path / "deep" / "thesis.tex").write_text("years of work")
    return scratch.path


@pytest.fixture
def sweep(here: Path) -> Sweep:
    """Somebody's sweep, whose cells are all finished."""
    made = Sweep.create(here / "out", _planned(), ["rlbench"])
    for number in range(len(made.cells)):
        finish(made, number)
    return made


def claim_of(precious: Path) -> dict[str, str]:
    """What the run's folder says that the scratch was made for."""
    claim: dict[str, str] = json.loads((precious.parent / "run" / FILE).read_text())
    return claim


def link(partial: Path, precious: Path) -> None:
    """What run folders held once, with what it said of shared memory."""
    (partial / "tmp").symlink_to(precious)
    (precious / "shared-memory.json").write_text('{"inodes": {}, "patterns": ["*"]}')


def claim_with_another_secret(partial: Path, precious: Path) -> None:
    """A stranger does not know it."""
    (partial / FILE).write_text(json.dumps({"name": precious.name, "secret": "0" * 32}))


def claim_of_another_run(partial: Path, precious: Path) -> None:
    """A copy of what another run's folder holds."""
    (partial / FILE).write_text(json.dumps(claim_of(precious)))


def claim_by_a_path(partial: Path, precious: Path) -> None:
    """Instead of a bare name."""
    (partial / FILE).write_text(json.dumps(claim_of(precious) | {"name": str(precious)}))


def claim_above(partial: Path, precious: Path) -> None:
    """By a name that leads up."""
    (partial / FILE).write_text(json.dumps(claim_of(precious) | {"name": ".."}))


def claim_through_a_link(partial: Path, precious: Path) -> None:
    """The secret is right, and so is the run, but the name is a link to what has them."""
    scratch = Scratch.make(partial, Before.now(object()))
    scratch.path.rename(precious / "theirs")
    scratch.path.symlink_to(precious / "theirs")


def claim_of_what_others_may_enter(partial: Path, precious: Path) -> None:
    """All is right, but others could have written the secret there."""
    scratch = Scratch.make(partial, Before.now(object()))
    scratch.path.chmod(0o777)
    (scratch.path / "kept").touch()
    (precious / "seen").symlink_to(scratch.path)


def claim_that_is_a_pipe(partial: Path, precious: Path) -> None:
    """It is not waited for."""
    del precious
    os.mkfifo(partial / FILE)


def claim_that_is_no_text(partial: Path, precious: Path) -> None:
    """Of types that nothing writes."""
    (partial / FILE).write_text(json.dumps({"name": [precious.name], "secret": 7}))


@pytest.mark.parametrize(
    "attack",
    [
        link,
        claim_with_another_secret,
        claim_of_another_run,
        claim_by_a_path,
        claim_above,
        claim_through_a_link,
        claim_of_what_others_may_enter,
        claim_that_is_a_pipe,
        claim_that_is_no_text,
    ],
)
def test_resume_removes_nothing_that_a_stranger_points_at(
    sweep: Sweep, temporary: Path, precious: Path, attack: Callable[[Path, Path], None]
) -> None:
    """The unfinished run's own folder goes, whatever it claims; what is elsewhere stays."""
    partial = sweep.folder / f"{PARTIAL_PREFIX}002-x"
    partial.mkdir()
    attack(partial, precious)
    before = tree(temporary)
    ended = call("run", "--resume", "--out", str(sweep.folder.parent))
    assert ended.code == 0
    assert "removed 1 unfinished run folder" in ended.err
    assert not partial.exists()
    assert tree(temporary) == before


def test_resume_removes_what_a_run_of_ours_left(sweep: Sweep, temporary: Path, precious: Path) -> None:
    """Its scratch, without following a link that a trainer left there, also when its folder was renamed."""
    partial = sweep.folder / f"{PARTIAL_PREFIX}002-x"
    partial.mkdir()
    scratch = Scratch.make(partial, Before.now(object()))
    (scratch.path / "link").symlink_to(precious)
    os.mkfifo(scratch.path / "pipe")
    partial.rename(partial.with_name(f"{PARTIAL_PREFIX}003-y"))
    before = tree(precious)
    assert call("run", "--resume", "--out", str(sweep.folder.parent)).code == 0
    assert sorted(path.name for path in temporary.iterdir()) == sorted([precious.name, "run"])
    assert tree(precious) == before


def deepen(folder: Path, levels: int = 1500) -> None:
    """Makes folders one in the other, deeper than a recursion or the descriptors of a process reach, with files."""
    descriptor = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("deeper", dir_fd=descriptor)
        os.mkdir("empty", dir_fd=descriptor)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
        below = os.open("deeper", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.symlink(folder.parent, "link", dir_fd=descriptor)
    os.close(descriptor)


def test_resume_removes_folders_however_deep_they_are(sweep: Sweep, temporary: Path, precious: Path) -> None:
    """In an unfinished run and in its scratch; what a link at the bottom leads to stays."""
    partial = sweep.folder / f"{PARTIAL_PREFIX}002-x"
    partial.mkdir()
    scratch = Scratch.make(partial, Before.now(object()))
    deepen(partial)
    deepen(scratch.path)
    before = tree(precious)
    ended = call("run", "--resume", "--out", str(sweep.folder.parent))
    assert ended.code == 0, ended.err
    assert not partial.exists()
    assert sorted(path.name for path in temporary.iterdir()) == sorted([precious.name, "run"])
    assert tree(precious) == before


def test_where_a_run_went_on_is_removed_with_its_scratch(sweep: Sweep, temporary: Path, precious: Path) -> None:
    """By `--resume`, which finds nobody who would read it; a folder that others may enter, and a link, stay."""
    made = []
    for number in range(3):
        partial = sweep.folder / f"{PARTIAL_PREFIX}00{number}-x"
        partial.mkdir()
        made.append(elsewhere(Scratch.make(partial, Before.now(object())).path))
    ours, others, link = made
    ours.mkdir(mode=0o700)
    (ours / "gpu0.bin").touch()
    others.mkdir()
    others.chmod(0o755)
    link.symlink_to(precious)
    before = tree(precious)
    assert call("run", "--resume", "--out", str(sweep.folder.parent)).code == 0
    assert [os.path.lexists(path) for path in made] == [False, True, True]
    assert tree(precious) == before
    del temporary


def test_whoever_made_a_scratch_removes_it_without_the_run_s_folder(tmp_path: Path, temporary: Path) -> None:
    """The folder may be gone, or be another one by then; a scratch that is another folder by then is left alone."""
    run = tmp_path / "run"
    run.mkdir()
    first = Scratch.make(run, Before.now(object()))
    (run / FILE).unlink()
    second = Scratch.make(run, Before.now(object()))
    run.rename(tmp_path / "elsewhere")
    first.remove()
    assert not first.path.exists()
    second.path.rename(temporary / "aside")
    second.path.mkdir()
    (second.path / "kept").touch()
    second.remove()
    assert (second.path / "kept").exists()
    assert (temporary / "aside").exists()


def test_patterns_of_a_stranger_remove_no_shared_memory(sweep: Sweep, precious: Path, shm_prefix: str) -> None:
    """Neither what fits them, nor what the folder lists: only names that the run itself noted in its scratch."""
    name = shared_memory.FOLDER / f"{shm_prefix}-stranger"
    partial = sweep.folder / f"{PARTIAL_PREFIX}001"
    partial.mkdir()
    Scratch.make(partial, Before.now(SimpleNamespace(shm_names=("rlbench-test-*",))))
    (partial / "tmp").symlink_to(precious)
    (precious / "shared-memory.json").write_text('{"inodes": {}, "patterns": ["rlbench-test-*"]}')
    name.touch()
    (partial / "shm-rank0-env0.txt").write_text(f"{name}\n{name.stat().st_ino} {name}\n")
    try:
        assert sweep.remove_partial() == 1
        assert name.exists()
    finally:
        name.unlink(missing_ok=True)


def test_what_is_called_as_unfinished_runs_is_left_alone_unless_it_is_a_folder(
    sweep: Sweep, tmp_path: Path, precious: Path
) -> None:
    """Pipes, files and links do not stop `--resume`, nor do they go; each is named, and runs get names beside them."""
    before = tree(precious)
    name = sweep.run_name(sweep.cells[0])
    os.mkfifo(sweep.folder / f"{PARTIAL_PREFIX}x")
    (sweep.folder / f"{PARTIAL_PREFIX}link").symlink_to(precious)
    (sweep.folder / f"{PARTIAL_PREFIX}{name}").symlink_to(tmp_path / "not-there")
    ended = call("run", "--resume", "--out", str(sweep.folder.parent))
    assert ended.code == 0, ended.err
    for left in ("x", "link", name):
        assert os.path.lexists(sweep.folder / f"{PARTIAL_PREFIX}{left}")
        assert f"{PARTIAL_PREFIX}{left}:iscalledas" in "".join(ended.err.split())
    assert "removed" not in ended.err
    assert sweep.run_name(sweep.cells[0]) != name
    assert tree(precious) == before


def test_a_sweep_s_folder_that_leads_elsewhere_is_refused(sweep: Sweep, tmp_path: Path) -> None:
    """`--resume` works on sweeps in `--out`; that may be a link, for the user named it."""
    out = tmp_path / "theirs"
    out.mkdir()
    (out / sweep.id).symlink_to(sweep.folder)
    (sweep.folder / f"{PARTIAL_PREFIX}001").mkdir()
    assert_refused(
        call("run", "--resume", "--out", str(out)), f"{sweep.id} is a link that leads out of {out}; remove it"
    )
    assert (sweep.folder / f"{PARTIAL_PREFIX}001").exists()
    (tmp_path / "named").symlink_to(sweep.folder.parent)
    assert call("run", "--resume", "--out", str(tmp_path / "named")).code == 0


def test_a_plan_that_is_a_link_is_not_locked(sweep: Sweep, tmp_path: Path) -> None:
    """It would be opened to be written to."""
    (sweep.folder / PLAN_FILE).rename(sweep.folder / "other.json")
    (sweep.folder / PLAN_FILE).symlink_to(sweep.folder / "other.json")
    ended = call("run", "--resume", "--out", str(sweep.folder.parent))
    assert ended.code == 2
    assert ended.err.count("\n") == 1
    assert "cannot be written" in ended.err
    del tmp_path


def test_locks_and_logs_of_slurm_jobs_lead_nowhere(tmp_path: Path) -> None:
    """A cell's lock that is a link, or a pipe, is refused and not emptied; logs go into a folder that was not there."""
    canary = tmp_path / "canary"
    canary.write_text("kept")
    (tmp_path / ".cell-001.lock").symlink_to(canary)
    os.mkfifo(tmp_path / ".cell-002.lock")
    os.link(canary, tmp_path / ".cell-003.lock")
    for number in (0, 1):
        with pytest.raises(ValueError, match="cannot be locked"), cell_lock(tmp_path, number, lambda: True):
            pass
    with cell_lock(tmp_path, 2, lambda: True) as is_ours:
        assert is_ours
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "slurm").symlink_to(tmp_path / "elsewhere")
    assert make_logs(tmp_path) == tmp_path / "slurm-2"
    assert make_logs(tmp_path) == tmp_path / "slurm-3"
    assert canary.read_text() == "kept"
    assert list((tmp_path / "elsewhere").iterdir()) == []
