from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import pytest

from rlbench.harness.cli.sweep_file import SweepFile
from rlbench.harness.commands import run as run_command
from rlbench.harness.run.sweep import Sweep
from tests.harness.cli.planned import planned
from tests.harness.command import assert_refused, call
from tests.systems.external.trainer_runs import write_trainer

WRITTEN = """\
# Does preempting pay?

systems = [
    "sync",  # the reference
    "ver:preempt=never",
    "ver",
] # two of them are one system
gpus = "1,8" # all that we have
scenario = "emulated"
device = "emulated"
stall = 30.0 # slow disks

# the end
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder of the test's own, with an emulated profile, a trainer's file and an environment's."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    profiles = Path(__file__).parents[3] / "scenarios" / "emulated" / "profiles"
    (folder / "profile.toml").write_bytes((profiles / "open-fridge.toml").read_bytes())
    write_trainer(folder, "{python} train.py")
    (folder / "envs.py").write_text(
        "import gymnasium\n\nclass It(gymnasium.Wrapper):\n    def __init__(self):\n"
        "        super().__init__(gymnasium.make('CartPole-v1'))\n\n"
        "class Same(gymnasium.Wrapper):\n    def __init__(self, env):\n        super().__init__(env)\n"
    )
    return folder


TYPED: list[tuple[str, ...]] = [
    ("--systems", "sync, ddppo:preempt.p=0.8,sync", "--gpus", "1..3,8", "--seeds", "0,5", "--device", "emulated"),
    ("--systems", "all", "--scenario", "emulated:num_envs=4,pointnav:resolution=16", "--device", "cpu", "--gpus", "2"),
    ("--systems=sync", "--env-steps", "1e6", "--seconds", "2.5", "--until", "return>=1", "--scenario", "pointnav"),
    (
        "--systems",
        "sync",
        "--stall",
        "9",
        "--time-limit",
        "90.5",
        "--memory-limit",
        "3",
        "--out",
        "../runs",
        "--gpus=1",
    ),
    ("--systems", "sync", "--scenario", "emulated/./profile.toml", "--device", "emulated", "--time-scale", "0.1"),
    ("--systems", "sync", "--scenario", "emulated/profile.toml:num_envs=2", "--device", "emulated", "--oversubscribe"),
    ("--systems", "mine=./mine.toml,other=mine.toml", "--scenario", "pointnav", "--device", "cpu"),
    ("--systems", "sync", "--scenario", "gym/./envs.py:It:wrappers=./envs.py:Same:num_envs=2", "--device", "cpu"),
    ("--systems", "sync", "--scenario", "gym:ids=CartPole-v1+./envs.py:It", "--workload", "heterogeneous"),
    ("--systems", "sync", "--protocol", "ddppo", "--scaling", "strong", "--workload", "homogeneous,heterogeneous"),
    ("--systems", "sync,nover", "--workload", "heterogeneous", "--iterations", "3", "--device", "emulated"),
]


@pytest.mark.parametrize("place", ["saved.toml", "../there/saved.toml", "inner/saved.toml"])
@pytest.mark.parametrize("typed", TYPED, ids=[" ".join(words)[:60] for words in TYPED])
def test_what_was_saved_plans_the_same(
    typed: tuple[str, ...], place: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A saved file plans the cells of the command that saved it, wherever it lies; saving it again changes nothing."""
    (here / place).parent.mkdir(exist_ok=True)
    if "--device" not in typed:
        typed = (*typed, "--device", "cpu")
    first = planned(monkeypatch, *typed, "--save", place)
    again = planned(monkeypatch, place)
    assert (again.hashes, again.limits, again.out) == (first.hashes, first.limits, first.out)
    text = (here / place).read_text()
    assert planned(monkeypatch, place, "--save", place) == again
    assert (here / place).read_text() == text
    elsewhere = f"{here.name}/{place}"
    monkeypatch.chdir(here.parent)
    assert planned(monkeypatch, elsewhere, "--save", "copy.toml").limits == first.limits
    assert planned(monkeypatch, "copy.toml").hashes == planned(monkeypatch, elsewhere).hashes


def test_a_new_file_has_what_was_typed(here: Path) -> None:
    """Lists are lists, numbers are numbers, and defaults that nobody typed are left out."""
    options = ("--systems", "sync,ver:preempt=never", "--gpus", "1,8", "--device", "emulated", "--env-steps", "1e6")
    ended = call("run", *options, "--oversubscribe", "--stall", "60", "--save", "new.toml", "--dry-run")
    assert ended.code == 0, ended.err
    assert "saved new.toml\n" in ended.err
    assert (here / "new.toml").read_text() == (
        '# rlbench run new.toml\nsystems = ["sync", "ver:preempt=never"]\ngpus = [1, 8]\nenv-steps = 1000000\n'
        'device = "emulated"\noversubscribe = true\nstall = 60\n'
    )


def test_comments_and_order_stay(here: Path) -> None:
    """Of a file that is there, only values that are others now are written anew."""
    (here / "sweep.toml").write_text(WRITTEN)
    ended = call("run", "sweep.toml", "--save", "sweep.toml", "--dry-run")
    assert (ended.code, (here / "sweep.toml").read_text()) == (0, WRITTEN)
    more = ("--stall", "45", "--gpus", "1, 8", "--systems", "sync,ver,gossip", "--seeds", "0..4")
    assert call("run", "sweep.toml", *more, "--save", "sweep.toml", "--dry-run").code == 0
    expected = WRITTEN.replace('    "ver:preempt=never",\n', "").replace('"ver",\n', '"ver",\n    "gossip",\n')
    expected = expected.replace("30.0 #", "45 #")
    assert (here / "sweep.toml").read_text() == expected + 'seeds = "0..4"\n'
    assert call("run", "sweep.toml", "--systems", "sync", "--save", "sweep.toml", "--dry-run").code == 0
    assert 'systems = [\n    "sync",  # the reference\n] # two of' in (here / "sweep.toml").read_text()


def test_what_was_not_given_is_taken_out(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is there, and was not read, is made one of what was typed; its comments stay."""
    (here / "sweep.toml").write_text(WRITTEN)
    options = ("--systems", "ddppo", "--device", "emulated")
    first = planned(monkeypatch, *options, "--save", "sweep.toml")
    assert planned(monkeypatch, "sweep.toml") == first
    text = (here / "sweep.toml").read_text()
    assert text.startswith("# Does preempting pay?\n\nsystems = ")
    assert text.endswith("# the end\n")
    assert "stall" not in text


def test_another_file_begins_with_the_comments_of_the_first(here: Path) -> None:
    """`rlbench run a.toml --gpus 2 --save b.toml`: a is as it was, and b is a with that change."""
    (here / "a.toml").write_text(WRITTEN)
    assert call("run", "a.toml", "--gpus", "2", "--save", "b.toml", "--dry-run").code == 0
    assert (here / "a.toml").read_text() == WRITTEN
    assert (here / "b.toml").read_text() == WRITTEN.replace('"1,8"', "2")


def test_paths_are_relative_to_the_saved_file(here: Path) -> None:
    """So that folder and files can be moved together."""
    options = ("--systems", "sync,mine=./mine.toml", "--device", "cpu", "--scenario", "pointnav", "--out", "runs")
    (here / "inner").mkdir()
    assert call("run", *options, "--save", "inner/sweep.toml", "--dry-run").code == 0
    text = (here / "inner" / "sweep.toml").read_text()
    assert 'systems = ["sync", "mine=./../mine.toml"]' in text
    assert 'out = "../runs"' in text
    assert SweepFile.read(here / "inner" / "sweep.toml").values["out"] == Path("runs")


def test_the_record_is_of_the_saved_file(here: Path) -> None:
    """A sweep that was saved came from that file, as it is then."""
    (here / "old.toml").write_text('systems = "sync"\ndevice = "emulated"\n')
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(run_command, "_run", lambda *_, **__: 0)
        assert call("run", "old.toml", "--gpus", "2", "--save", "new.toml").code == 0
    sweep = Sweep.newest(here / "rlbench-runs")
    assert sweep.sweep_file is not None
    digest = hashlib.sha256((here / "new.toml").read_bytes()).hexdigest()
    assert sweep.sweep_file.model_dump() == {"name": "new.toml", "sha256": digest}


def test_where_nothing_can_be_saved(here: Path) -> None:
    """What is there and is no sweep file is never replaced; nor is anything written for a sweep that has no plan."""
    good = ("run", "--systems", "sync", "--device", "emulated", "--dry-run", "--save")
    (here / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    (here / "broken.toml").write_text("gpus = \n")
    (here / "pipe.toml").mkdir()
    os.mkfifo(here / "fifo.toml")
    before = sorted(here.iterdir())
    for name, expected in (
        ("pyproject.toml", ("something else than a sweep file", "pyproject.toml: project: unknown", "another file")),
        ("broken.toml", ("something else than a sweep file", "is no TOML")),
        ("pipe.toml", ("is a folder",)),
        ("fifo.toml", ("is a named pipe",)),
        ("sweep.json", ("--save sweep.json: its name must end in .toml",)),
        ("no/sweep.toml", ("--save no/sweep.toml: no is no folder",)),
        ("/proc/sweep.toml", ("--save /proc/sweep.toml: cannot be written",)),
    ):
        ended = call(*good, name)
        assert (ended.code, ended.err.count("rlbench: ")) == (2, 1)
        assert [text for text in expected if text not in ended.err] == [], ended.err
    assert_refused(call("run", "--systems", "snyc", "--device", "emulated", "--save", "new.toml"), "unknown system")
    assert_refused(call("run", "--resume", "--save", "new.toml"), "--save: goes with a new sweep; leave --resume out")
    assert sorted(here.iterdir()) == before
    assert stat.S_ISFIFO((here / "fifo.toml").stat().st_mode)


def test_a_link_is_replaced_not_followed(here: Path) -> None:
    """As all that rlbench writes: what the link led to is as it was."""
    (here / "target.toml").write_text('systems = "sync"\n')
    (here / "sweep.toml").symlink_to("target.toml")
    options = ("--systems", "ver", "--device", "emulated", "--dry-run")
    assert call("run", *options, "--save", "sweep.toml").code == 0
    assert (here / "target.toml").read_text() == 'systems = "sync"\n'
    assert not (here / "sweep.toml").is_symlink()


def test_a_name_that_toml_cannot_have(here: Path) -> None:
    """A folder whose name is not UTF-8 is refused in one line."""
    options = ("--systems", "sync", "--device", "emulated", "--dry-run", "--out", "\udce9")
    ended = call("run", *options, "--save", "new.toml")
    assert (ended.code, ended.err.count("rlbench: ")) == (2, 1)
    assert "a name that is not UTF-8" in ended.err
    assert not (here / "new.toml").exists()
