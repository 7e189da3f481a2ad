from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import typer

from rlbench.harness.cli.main import app
from rlbench.harness.cli.sweep_file import KEYS, LONGEST_LINE, MOST_BYTES, TYPED, values_of
from rlbench.harness.launch.options import LaunchOptions
from rlbench.harness.plan.options import RunOptions
from rlbench.harness.run.sweep import Sweep
from tests.harness.cli.planned import planned
from tests.harness.command import QUICK, assert_refused, call, launch

EXAMPLE = Path(__file__).parents[3] / "examples" / "sweep.toml"
QUICK_FILE = """\
# the smallest
systems = "sync"
scenario = "emulated/open-fridge:num_envs=2:rollout_steps=8"
time-scale = 0.02
device = "emulated"
seeds = [0, 1]
iterations = 2
out = "out"
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder of the test's own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_example_plans_what_it_says(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`examples/sweep.toml` is the sweep that one would type so."""
    words = ("--systems", "sync,ddppo:preempt.p=0.8,ver", "--gpus", "1,8", "--seeds", "0..2", "--seconds", "30")
    typed = (*words, "--workload", "heterogeneous", "--device", "emulated", "--time-scale", "0.5")
    of_file = planned(monkeypatch, str(EXAMPLE))
    assert of_file == planned(monkeypatch, *typed, "--scenario", "emulated/open-fridge")
    assert len(of_file.cells) == 18
    assert list(here.iterdir()) == []


def test_a_file_may_have_every_option_of_a_sweep() -> None:
    """All of `rlbench run --help` but four, and each has the name that is typed."""
    command: Any = typer.main.get_command(app)
    options = {name for one in command.commands["run"].params for name in one.opts if name.startswith("--")}
    assert options == {f"--{name}" for name in (*KEYS, *TYPED)}
    fields = [field.name for kind in (RunOptions, LaunchOptions) for field in dataclasses.fields(kind)]
    assert [key.field for key in KEYS.values()] == [*fields, "out"]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('systems = ["sync", "ver:preempt=never"]', {"systems": "sync,ver:preempt=never"}),
        ('systems = "sync, ver"', {"systems": "sync,ver"}),
        ("gpus = 8", {"gpus": "8"}),
        ('gpus = [1, "4..8"]', {"gpus": "1,4..8"}),
        ("seeds = [0]", {"seeds": "0"}),
        ("env-steps = 1e6", {"env_steps": 1_000_000}),
        ('env-steps = "1e6"', {"env_steps": 1_000_000}),
        ("seconds = 2", {"seconds": 2.0}),
        ("oversubscribe = true", {"oversubscribe": True}),
        ("one-allocation = false", {"one_allocation": False}),
        ('hosts = ["a", "b"]\nlauncher = "torchrun"', {"hosts": "a,b", "launcher": "torchrun"}),
        ('slurm = ["account=lab", "qos=high"]', {"slurm": "account=lab,qos=high"}),
        ('until = "success>=0.9" # soon\r\n', {"until": "success>=0.9"}),
        ("", {}),
    ],
)
def test_values_are_those_of_the_command_line(text: str, values: dict[str, Any], here: Path) -> None:
    """Lists, whole numbers with an exponent, and switches become what typed words become."""
    read = values_of(text, here)
    assert read == values
    assert [type(value) for value in read.values()] == [type(value) for value in values.values()]


BAD_FILES: list[tuple[bytes, tuple[str, ...]]] = [
    (b"gpus = true", ("gpus: must be a text, a whole number, or a list of these, is true",)),
    (b"gpus = 1.5", ("gpus: must be a text, a whole number", "is 1.5")),
    (b"gpus = [1, [2]]", ("gpus: must be a text, a whole number", "is a list")),
    (b"gpus = [1, '2,4']", ("gpus: each of a list must be one name or number, one is '2,4'",)),
    (b"gpus = [1, 2, 1]", ("gpus: '1' is there twice",)),
    (b"gpus = []", ("gpus: is empty; name at least one",)),
    (b"gpus = 0", ("gpus 0: must be from 1",)),
    (b"gpus = 'many'", ("gpus many: must be whole numbers such as 1,8",)),
    (b"systems = ''", ("systems: is empty",)),
    (b"systems = 'snyc'", ("sweep.toml: unknown system 'snyc'; did you mean 'sync'?",)),
    (b"systems = {name = 'sync'}", ("systems: must be a text", "is a table")),
    (b"systems = 'sync:epoch=1'", ("sweep.toml: sync:epoch: unknown field",)),
    (b"scenario = 'nope'", ("sweep.toml: unknown scenario 'nope'",)),
    (b"scenario = 'pointnav:size'", ("scenario: pointnav:size: 'size' must be field=value",)),
    (b"protocol = 3", ("protocol: must be a text, is 3",)),
    (b"protocol = 'nope'", ("protocol nope: unknown; known: ",)),
    (b"iterations = 1.5", ("iterations: must be a whole number, is 1.5",)),
    (b"iterations = inf", ("iterations: must be a whole number, is inf",)),
    (b"iterations = 0", ("iterations 0: must be above 0",)),
    (b"seconds = 'soon'", ("seconds: must be a number, is 'soon'",)),
    (b"seconds = nan", ("seconds nan: must be above 0",)),
    (b"seconds = [1]", ("seconds: must be a number, is a list",)),
    (b"seconds = 2020-01-01", ("seconds: must be a number, is 2020-01-01",)),
    (b"seconds = 0x1" + 4000 * b"0", ("seconds: must be a number, is a number of so many digits",)),
    (b"gpus = 0x1" + 4000 * b"0", ("gpus: ", "digits")),
    (b"oversubscribe = 1", ("oversubscribe: must be true or false, is 1",)),
    (b"out = 3", ("out: must be a text, is 3",)),
    (b"out = ''", ("out: must be a text, is ''",)),
    (b"hosts = 'a'", ("hosts: goes with --launcher torchrun",)),
    (b"time_scale = 1", ("time_scale: unknown; did you mean 'time-scale'? known: time-scale, systems, gpus",)),
    (b"seed = 1", ("seed: unknown; did you mean 'seeds'?",)),
    (b"'\\u001b' = 1", ("unknown; known: systems",)),
    (b"resume = true", ("resume: is typed with the command",)),
    (b"dry-run = true", ("dry-run: is typed with the command",)),
    (b"[run]\ngpus = 1", ("run: unknown",)),
    (b"gpus = 1\ngpus = 2", ("is no TOML: a key is there twice (at ",)),
    (b"gpus = \n", ("is no TOML: ", "line 1")),
    (b"gpus = " + 5000 * b"9", ("is no TOML: ",)),
    (b"gpus = " + 3000 * b"[", ("is no ",)),
    (b"a." * LONGEST_LINE + b"a = 1", (f"has a line of more than {LONGEST_LINE:,} letters",)),
    (b"\xff\xfe", ("is no text in UTF-8",)),
    (b"\x00\x01", ("is no TOML",)),
    (b"#" * (MOST_BYTES + 1), ("must have at most",)),
]


@pytest.mark.parametrize(("content", "expected"), BAD_FILES, ids=[str(case[0][:30]) for case in BAD_FILES])
def test_bad_files(content: bytes, expected: tuple[str, ...], here: Path) -> None:
    """Whatever is wrong with a file is said in one line, with the key, exit code 2, and nothing is written."""
    (here / "sweep.toml").write_bytes(content)
    options = [] if b"systems" in content else ["--systems", "sync"]
    assert_refused(call("run", "sweep.toml", "--device", "emulated", *options), *expected)
    assert [path.name for path in here.iterdir()] == ["sweep.toml"]


@pytest.mark.parametrize("key", ["gpus = 0", "systems = ''", "seconds = nan", "protocol = 'nope'"])
def test_the_file_is_named(key: str, here: Path) -> None:
    """What planning finds in a value of the file is said of the file, not of a flag that nobody typed."""
    (here / "sub").mkdir()
    (here / "sub" / "sweep.toml").write_text(key)
    options = () if key.startswith("systems") else ("--systems", "sync")
    refused = call("run", "sub/sweep.toml", "--device", "emulated", *options)
    assert_refused(refused, f"rlbench: sub/sweep.toml: {key.partition(' ')[0]}")


def test_what_is_no_file(here: Path) -> None:
    """Nothing there, a folder, a pipe that nobody writes, a word that was no option: each is said in one line."""
    (here / "folder.toml").mkdir()
    (here / "loop.toml").symlink_to("loop.toml")
    assert_refused(
        call("run", "no.toml"), "no.toml: is not there; write it, or have `rlbench run … --save no.toml` write it"
    )
    assert_refused(call("run", "folder.toml"), "folder.toml: is a folder, must be a regular file")
    assert_refused(call("run", "loop.toml"), "loop.toml: ")
    assert_refused(call("run", "--systems", "sync", "ddppo"), "ddppo: is no option, and no sweep file", "--systems")
    assert_refused(call("run", "a.toml", "b.toml"), "unexpected extra argument", "b.toml")


def test_flags_win(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is typed holds, also where it is the default of the option; the rest is the file's."""
    (here / "sweep.toml").write_text(
        'systems = "ver"\ngpus = 8\nseeds = "0..3"\nprotocol = "ddppo"\nscenario = "emulated"\n'
        'out = "there"\nstall = 7\n'
    )
    options = ("--device", "emulated", "--gpus", "1", "--protocol", "steady", "--out", "rlbench-runs", "--seeds", "0")
    got = planned(monkeypatch, "sweep.toml", *options)
    (cell,) = got.cells
    assert (cell.system, cell.gpus, cell.seed, cell.protocol, cell.stall_s) == ("ver", 1, 0, "steady", 7.0)
    assert got.out == Path("rlbench-runs")
    assert planned(monkeypatch, *options, "sweep.toml").out == got.out


def test_a_launcher_may_stand_in_the_file(here: Path) -> None:
    """A dry run shows its commands. A process that was started before the file was read leaves nothing behind."""
    (here / "sweep.toml").write_text(
        'systems = "sync"\nscenario = "pointnav"\ndevice = "cpu"\ngpus = 2\nlauncher = "torchrun"\nhosts = ["a", "b"]\n'
        'gpus-per-node = 1\nremote = "sh -c {host}"\n'
    )
    ended = call("run", "sweep.toml", "--dry-run")
    assert ended.code == 0, ended.err
    assert "on a: " in ended.out
    refused = launch("run", "sweep.toml", "--remote", "no-such-program {host}", folder=here)
    assert_refused(refused, "no-such-program is not found")


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a sweep that a file in `sub/` asked for."""
    folder = tmp_path_factory.mktemp("swept")
    (folder / "sub").mkdir()
    (folder / "sub" / "sweep.toml").write_text(QUICK_FILE)
    ended = launch("run", "sub/sweep.toml", folder=folder)
    assert ended.code == 0, ended.err
    return folder


def digest(path: Path) -> dict[str, str]:
    """What a record says of a sweep file."""
    return {"name": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def test_runs_say_which_file_they_came_from(swept: Path) -> None:
    """Records have its hash, and the command as it was typed; runs are in the folder that it names, beside it."""
    runs = json.loads(call("results", str(swept / "sub" / "out"), "--json").out)
    file = digest(swept / "sub" / "sweep.toml")
    assert [(run["status"], run["cell"]["seed"], run["sweep_file"]) for run in runs] == [
        ("finished", 0, file),
        ("finished", 1, file),
    ]
    assert all(run["command"] == ["rlbench", "run", "sub/sweep.toml"] for run in runs)
    report = call("report", str(swept / "sub" / "out"), "--out", str(swept / "report.html"))
    assert report.code == 0
    assert f"sweep.toml, sha256 {file['sha256']}" in (swept / "report.html").read_text()
    header, *rows = call("results", str(swept / "sub" / "out"), "--csv").out.splitlines()
    assert "sweep_file.sha256" in header.split(",")
    assert all(file["sha256"] in row for row in rows)


def test_a_file_typed_again_resumes(swept: Path, tmp_path: Path) -> None:
    """Typing the file is typing its options, whatever its comments are now; the runs that follow have its new hash."""
    folder = Path(shutil.copytree(swept, tmp_path / "copy"))
    file, sweep = folder / "sub" / "sweep.toml", Sweep.newest(folder / "sub" / "out")
    before = digest(file)
    assert sweep.sweep_file is not None
    assert sweep.sweep_file.model_dump() == before
    shutil.rmtree(next(sweep.folder.glob("002-*")))
    file.write_text(f"# said otherwise\n{QUICK_FILE}")
    ended = launch("run", "sub/sweep.toml", "--resume", folder=folder)
    assert ended.code == 0, ended.err
    assert "1 of 2 cells finished" in ended.err
    runs = json.loads(call("results", str(folder / "sub" / "out"), "--json").out)
    assert [run["sweep_file"] for run in runs] == [before, digest(file)]
    compared = call("compare", str(swept / "sub" / "out"), str(folder / "sub" / "out"), "--json")
    assert compared.code == 0, compared.err
    assert "sweep_file" not in compared.out
    file.write_text(QUICK_FILE.replace("num_envs=2", "num_envs=3"))
    refused = launch("run", "sub/sweep.toml", "--resume", folder=folder)
    assert_refused(refused, "planned other cells (rlbench run sub/sweep.toml)")


def test_a_plan_with_a_spoilt_file_is_damaged(here: Path) -> None:
    """What a plan says of a sweep file is checked like the rest of it."""
    for number, spoilt in enumerate(('{"name": 3}', '"x"', '{"name": "x", "sha256": "y"}')):
        (here / str(number) / "20200101-000000-abcd").mkdir(parents=True)
        plan = f'{{"command": [], "cells": [], "sweep_file": {spoilt}}}'
        (here / str(number) / "20200101-000000-abcd" / "sweep.json").write_text(plan)
        assert_refused(call("run", "--resume", "--out", str(number)), "sweep.json: is damaged (sweep_file")


def test_code_in_a_file_is_typed_with_it(here: Path) -> None:
    """What goes on with a sweep of one's own command names the file that it came from."""
    (here / "mine.toml").write_text('command = "{python} -c pass"\nenvironment = "instrumented"\n')
    (here / "sweep.toml").write_text(
        'systems = "mine=mine.toml"\nscenario = "pointnav"\ndevice = "cpu"\nout = "out"\niterations = 1\n'
    )
    launch("run", "sweep.toml", "--save", "saved.toml", folder=here)
    refused = call("run", "--resume", "--out", "out")
    assert_refused(refused, "runs a command, mine", "it is yours: rlbench run --resume --out out sweep.toml\n")


def test_quick_words_are_the_file(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of this test plans what its words do."""
    (here / "sweep.toml").write_text(QUICK_FILE)
    words = ("--systems", "sync", *QUICK, "--seeds", "0,1", "--iterations", "2", "--out", "out")
    assert planned(monkeypatch, "sweep.toml") == planned(monkeypatch, *words)
