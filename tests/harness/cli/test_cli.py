from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from rlbench.harness.cli import main
from rlbench.harness.cli.main import OUTPUT_CLOSED, known_commands
from rlbench.harness.devices import kinds
from tests.harness.command import RLBENCH, assert_refused, call, launch

SYNC = ("--systems", "sync")
POINTNAV = ("--systems", "sync", "--scenario", "pointnav", "--device", "cpu")
COMMANDS = (
    *("run", "predict", "reproduce", "fit", "list", "doctor"),
    *("watch", "results", "report", "compare", "export", "history", "gate", "scenes", "evaluate", "profile", "systems"),
)

BAD_RUNS: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    # what there is not: the known ones are named
    (("--systems", "snyc"), ("unknown system 'snyc'", "did you mean 'sync'?", "known: ", "ddppo", "sync")),
    (("--systems", "sync,", "--scenario", "nope"), ("unknown scenario 'nope'", "pointnav", "vizdoom", "emulated")),
    ((*SYNC, "--scenario", "emulated/nope"), ("emulated/nope", "known: open-fridge", ".toml")),
    ((*SYNC, "--scenario", "vizdoom/nope"), ("vizdoom/nope", "basic", "my_way_home")),
    (
        (*SYNC, "--scenario", "atari/nope"),
        ("atari/nope", "breakout", "(`rlbench list scenarios` prints all)"),
    ),
    ((*SYNC, "--scenario", "pointnav/nope"), ("pointnav/nope", "no variants")),
    ((*SYNC, "--scenario", "/"), ("unknown scenario ''", "pointnav")),
    ((*SYNC, "--workload", "nope"), ("--workload nope", "homogeneous, heterogeneous")),
    ((*SYNC, "--device", "tpu"), ("--device tpu", "cuda, cpu, emulated")),
    ((*SYNC, "--protocol", "nope"), ("--protocol nope", "ddppo", "steady")),
    (("--systems", "sync:preemt=never"), ("sync:preemt: unknown field; did you mean 'preempt'?",)),
    (("--systems", "ver:premept.p=1"), ("ver:premept.p: unknown field; did you mean 'preempt'?",)),
    (("--systems", "sync:epochs=1"), ("sync:epochs: unknown field; did you mean 'learn.epochs'?",)),
    ((*SYNC, "--workload", "heterogenous"), ("did you mean 'heterogeneous'? known: homogeneous, heterogeneous",)),
    ((*SYNC, "--until", "sucess>=0.9"), ("unknown metric; did you mean 'success'?",)),
    (("--systems", "sync:nope=1"), ("sync:nope: unknown field", "preempt", "rollout.num_steps", "learn.epochs")),
    (("--systems", "sync:name=x"), ("sync:name: unknown field",)),
    (("--systems", "ddppo:preempt=bogus"), ("ddppo:preempt=bogus", "never, threshold")),
    (("--systems", "ddppo:preempt.q=1"), ("ddppo:preempt.q: unknown field; known: preempt.p, preempt.least",)),
    (
        ("--systems", "sync:preempt.p=0.6"),
        ("sync:preempt.p=0.6: unknown field of preempt=never", "nearest: preempt=threshold:preempt.p=0.6"),
    ),
    (("--systems", "ddppo:learn.nope=1"), ("ddppo:learn.nope: unknown field", "epochs", "learning_rate")),
    ((*SYNC, "--scenario", "pointnav:nope=1"), ("pointnav:nope: unknown field", "num_envs", "more")),
    ((*SYNC, "--scenario", "pointnav:policy=huge"), ("policy=huge", "small, conv, nature, resnet")),
    ((*SYNC, "--scenario", "vizdoom:maps=basic+nope"), ("vizdoom:maps=basic+nope", "my_way_home")),
    # what breaks a rule: the rule is named
    ((), ("--systems: name at least one", "rlbench list")),
    (("--systems", ""), ("--systems: name at least one",)),
    (("--systems", ","), ("--systems: is empty",)),
    ((*SYNC, "--scenario", ""), ("--scenario: is empty",)),
    ((*SYNC, "--workload", " , "), ("--workload: is empty",)),
    ((*SYNC, "--gpus", "0"), ("--gpus 0: must be from 1",)),
    ((*SYNC, "--gpus", "-1"), ("--gpus -1: must be from 1",)),
    ((*SYNC, "--gpus", "1,0"), ("--gpus 1,0: must be from 1",)),
    ((*SYNC, "--gpus", "x"), ("--gpus x: must be whole numbers such as 1,8 or 1..4",)),
    ((*SYNC, "--gpus", "8.0"), ("--gpus 8.0: must be whole numbers",)),
    ((*SYNC, "--gpus", ""), ("--gpus '': must be whole numbers",)),
    ((*SYNC, "--gpus", "1,,8"), ("--gpus 1,,8: must be whole numbers",)),
    ((*SYNC, "--gpus", "4..1"), ("--gpus 4..1: a range must ascend",)),
    ((*SYNC, "--gpus", "99999999999999999999"), ("must be from 1 to",)),
    ((*SYNC, "--gpus", "1..10000000000"), ("must be from 1 to",)),
    ((*SYNC, "--gpus", "9999"), ("--gpus 9999", "num_envs=16", "169,983 processes must be at most")),
    ((*SYNC, "--seeds", "-1"), ("--seeds -1: must be from 0",)),
    ((*SYNC, "--seeds", ""), ("--seeds '': must be whole numbers",)),
    ((*SYNC, "--seeds", "0..1000000000"), ("--seeds 0..1000000000: must be at most 100,000 numbers",)),
    ((*SYNC, "--seeds", "9" * 30), ("must be from 0 to 4294967295",)),
    ((*SYNC, "--seeds", "0..9999", "--gpus", "1..20"), ("200,000 cells: a sweep has at most 100,000",)),
    ((*SYNC, "--iterations", "0"), ("--iterations 0: must be above 0",)),
    ((*SYNC, "--env-steps", "-5"), ("--env-steps -5: must be above 0",)),
    ((*SYNC, "--seconds", "-3"), ("--seconds -3: must be above 0",)),
    ((*SYNC, "--seconds", "nan"), ("--seconds nan: must be above 0",)),
    ((*SYNC, "--seconds", "1e400"), ("--seconds inf: must be above 0 and at most",)),
    ((*SYNC, "--time-limit", "inf"), ("--time-limit inf: must be above 0 and at most",)),
    ((*SYNC, "--stall", "0"), ("--stall 0: must be above 0",)),
    ((*SYNC, "--until", "foo>=1"), ("--until foo>=1: unknown metric", "return, length, success, spl")),
    ((*SYNC, "--until", "success"), ("--until success: must be METRIC>=NUMBER",)),
    ((*SYNC, "--until", "success>=1e999"), ("must be METRIC>=NUMBER",)),
    ((*SYNC, "--until", ""), ("must be METRIC>=NUMBER",)),
    ((*SYNC, "--time-scale", "0"), ("time_scale=0: must be from",)),
    ((*SYNC, "--time-scale", "nan"), ("time_scale=nan: must be",)),
    ((*SYNC, "--time-scale", "inf"), ("time_scale=inf: must be",)),
    ((*POINTNAV, "--time-scale", "0.5"), ("--time-scale 0.5", "pointnav takes real time", "emulated")),
    ((*SYNC, "--time-scale", "0.5", "--scenario", "emulated:time_scale=1"), ("time_scale is set twice",)),
    (("--systems", "ddppo:preempt.p=0"), ("ddppo:preempt.p=0: must be above 0 and at most 1",)),
    (("--systems", "ddppo:preempt.p=1.5"), ("ddppo:preempt.p=1.5: must be above 0 and at most 1",)),
    (("--systems", "ddppo:preempt.p=abc"), ("ddppo:preempt.p=abc: ", "valid number")),
    (("--systems", "ddppo:preempt.p=0.6:preempt.p=0.7"), ("preempt.p is set twice",)),
    (("--systems", "ddppo:preempt"), ("'preempt' must be field=value",)),
    (("--systems", "ddppo:preempt="), ("'preempt=' must be field=value",)),
    (("--systems", "ddppo:=1"), ("'=1' must be field=value",)),
    (("--systems", "ddppo:preempt.p.x=1"), ("p has no fields",)),
    (("--systems", "ddppo:learn=1"), ("set one of its fields", "epochs")),
    (("--systems", "ddppo:learn.epochs=0"), ("ddppo:learn.epochs=0: must be at least 1",)),
    (("--systems", "ddppo:learn.epochs=1.5"), ("ddppo:learn.epochs=1.5: ", "valid integer")),
    (("--systems", "ddppo:learn.learning_rate=nan"), ("learn.learning_rate=nan: must be",)),
    (("--systems", "ddppo:learn.entropy_coef=inf"), ("learn.entropy_coef=inf: must be a finite number",)),
    (("--systems", "sync:learn.schedule=fast"), ("schedule=fast", "one of: constant, linear, cosine, step")),
    (("--systems", "sync:learn.step_at=0.5+0.2"), ("step_at=0.5+0.2", "ascending numbers above 0 and below 1")),
    (("--systems", "sync:learn.entropy_schedule=learned:learn.entropy_coef=0"), ("entropy_coef=0", "above 0")),
    (("--systems", "sync:learn.schedule=linear", "--until", "spl>0.5"), ("schedule=linear", "add --env-steps")),
    (("--systems", "sync", "--scaling", "both"), ("--scaling both: unknown; known: weak, strong",)),
    (("--systems", "ver:preempt.fill_stale=maybe"), ("preempt.fill_stale=maybe", "valid boolean")),
    (
        ("--systems", "ddppo:learn.normalize_advantages=maybe"),
        ("normalize_advantages=maybe", "one of: none, rank, all"),
    ),
    (("--systems", "sync", "--scenario", "pointnav:num_envs=1"), ("num_envs=1 cannot fill", "num_minibatches=2")),
    ((*SYNC, "--scenario", "pointnav:num_envs=0"), ("pointnav:num_envs=0: must be at least 1",)),
    ((*SYNC, "--scenario", "pointnav:num_envs=100000000"), ("processes must be at most",)),
    ((*SYNC, "--scenario", "pointnav:min_distance_m=20"), ("max_distance_m", "must be above min_distance_m=20")),
    (("--systems", "sync:ünknown=☃"), ("sync:ünknown: unknown field",)),
    ((*SYNC, "--scenario", "pointnav:num_envs=1\n2"), ("num_envs=1 2", "valid integer")),
    # what the command line itself does not know
    ((*SYNC, "--nope"), ("No such option: --nope", "`rlbench run --help` says more")),
    (("--systems",), ("'--systems' requires an argument",)),
    ((*SYNC, "--iterations", "1.5"), ("'--iterations'", "must be a whole number, is 1.5")),
    ((*SYNC, "--seconds", "soon"), ("'--seconds'", "valid number")),
    ((*SYNC, "more"), ("more: is no option, and no sweep file", "systems come after --systems")),
    ((*SYNC, "more.toml", "again.toml"), ("unexpected extra argument", "again.toml")),
]


@pytest.mark.parametrize(("arguments", "expected"), BAD_RUNS, ids=[" ".join(case[0])[:60] for case in BAD_RUNS])
def test_bad_runs(
    arguments: tuple[str, ...], expected: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is wrong with a `run` is said in one line, exit code 2, before anything is written."""
    monkeypatch.chdir(tmp_path)
    assert_refused(call("run", *arguments), *expected)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("present", "arguments", "expected"),
    [
        ([], (), ("no NVIDIA GPU", "--device emulated", "--device cpu")),
        ([0], (), ("--gpus 8: this machine has 1 GPU;", "--device emulated", "--oversubscribe")),
        ([0, 1], (), ("--gpus 8: this machine has 2 GPUs;",)),
        ([], ("--oversubscribe",), ("no NVIDIA GPU",)),
    ],
)
def test_more_gpus_than_there_are(
    present: list[int],
    arguments: tuple[str, ...],
    expected: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """GPUs that the machine has not are refused, with the ways out."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(kinds, "visible_gpus", lambda: present)
    assert_refused(call("run", *SYNC, "--device", "cuda", "--gpus", "1,8", *arguments), *expected)
    assert list(tmp_path.iterdir()) == []


BAD_COMMANDS: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    (("rnu",), ("No such command 'rnu'; did you mean 'run'? known: run, predict",)),
    (("results", "--were", "system=ver"), ("--were; did you mean '--where'? `rlbench results --help` says more",)),
    (("systems", "instal"), ("No such command 'instal'; did you mean 'install'? known: install, remove",)),
    (("results", ".", "--where", "sytem=ver"), ("--where sytem=ver: unknown; did you mean 'system'?",)),
    (("doctor", "--strict", "--network"), ("--strict: does not go with --network",)),
    (("nope",), ("No such command 'nope'", "known: run, predict, reproduce, fit, list, doctor, watch, results")),
    (("",), ("No such command ''",)),
    (("--nope",), ("No such option: --nope", "rlbench --help")),
    (("list", "nope"), ("list nope: unknown; known: systems, scenarios",)),
    (("doctor", "--workers", "-3"), ("'--workers'", "greater than or equal to 0")),
    (("doctor", "--workers", "x"), ("'--workers'", "valid integer")),
    (("results", "missing"), ("missing: is not a folder",)),
    (("results", "--json", "--csv"), ("--json --csv: choose one",)),
    (("results", ".", "--where", "system"), ("--where system: must be field=value", "fields: system, scenario")),
    (("results", ".", "--where", "colour=red"), ("--where colour=red: unknown; known: system, scenario",)),
    (("results", ".", "--newest", "-1"), ("'--newest'", "greater than or equal to 0")),
    (("report",), ("rlbench-runs: no runs; make some: `rlbench run --systems ddppo,ver --gpus 1,8`",)),
    (("report", "."), (".: no runs; make some: `rlbench run",)),
    (("report", "missing"), ("missing: is not a folder",)),
    (("compare",), ("Missing argument 'RUNS_A'",)),
    (("compare", "."), ("Missing argument 'RUNS_B'",)),
    (("compare", ".", "."), (".: no runs; make some",)),
    (("compare", "missing", "."), ("missing: is not a folder",)),
    (("export",), ("Missing option '--format'",)),
    (("export", "--format", "xml"), ("--format xml: unknown; known: csv, json, parquet, markdown, perfetto",)),
    (("export", "--format", "json"), ("rlbench-runs: no runs; make some",)),
    (("export", "--format", "perfetto"), ("rlbench-runs: no finished run with a timeline; make some",)),
    (("export", ".", "--format", "parquet", "--out", "x"), (".: no runs",)),
    (("systems", "nope"), ("No such command 'nope'",)),
    (("systems", "install"), ("Missing argument",)),
    (("systems", "remove", "nope"), ("nope: unknown; known: habitat-baselines, rllib, sample-factory, sb3, torchrl",)),
    (("scenes",), ("Missing option '--out'",)),
    (("scenes", "--out", "plans", "--count", "0"), ("count=0: must be at least 1",)),
    (("scenes", "--out", "plans", "--seed", "-1"), ("seed=-1: must be at least 0",)),
    (("scenes", "--out", "plans", "--workload", "nope"), ("nope", "homogeneous, heterogeneous")),
    (("scenes", "--out", "/proc/plans"), ("/proc/plans", "cannot be written", "choose another folder")),
]


@pytest.mark.parametrize(("arguments", "expected"), BAD_COMMANDS, ids=[" ".join(case[0]) for case in BAD_COMMANDS])
def test_bad_commands(
    arguments: tuple[str, ...], expected: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is wrong with the other commands is said in one line too, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    assert_refused(call(*arguments), *expected)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_complete(command: str) -> None:
    """`--help` of every command says what each of its options does, and names the commands that there are."""
    ended = call(*([command] if command else []), "--help")
    assert (ended.code, ended.err) == (0, "")
    text = " ".join(ended.out.split())
    assert text.startswith("Usage: rlbench")
    for option in re.findall(r"(?m)^  (--[a-z-]+)", ended.out):
        assert re.search(rf"{option}(?: <[^>]+>)? [A-Za-z]", text), option
    if not command:
        assert tuple(re.findall(r"(?m)^  ([a-z]+)  ", ended.out)) == COMMANDS


def test_help_names_what_run_takes() -> None:
    """`run --help` has all options of a sweep, and names the devices, protocols, metrics and workloads."""
    text = call("run", "--help").out
    for option in (
        *(
            "systems",
            "gpus",
            "scenario",
            "workload",
            "seeds",
            "protocol",
            "iterations",
            "seconds",
            "env-steps",
            "until",
        ),
        *("device", "time-scale", "oversubscribe", "time-limit", "stall", "out", "resume", "dry-run"),
    ):
        assert f"--{option}" in text
    for word in ("cuda", "cpu", "emulated", "steady", "ddppo", "success", "spl", "homogeneous", "heterogeneous"):
        assert word in text


def test_no_command_prints_the_help() -> None:
    """`rlbench` alone prints its help and ends with the code of a usage error."""
    ended = call()
    assert ended.code == 2
    assert ended.out.strip().startswith("Usage: rlbench")


def test_version() -> None:
    """`rlbench --version` says which one is installed."""
    ended = call("--version")
    assert ended.code == 0
    assert re.fullmatch(r"rlbench \d+\.\d+\.\d+\S*\n", ended.out)


@pytest.mark.parametrize("arguments", [["--help"], ["systems", "--help"]])
def test_commands_are_listed_in_whole_sentences(arguments: list[str]) -> None:
    """None is cut to fit a line."""
    assert "..." not in call(*arguments).out.partition("Commands:")[2]


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["results", "--help"], ["report", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    """Help answers at once, because it loads none of the packages that take long to load."""
    program = (
        "import sys\n"
        "from rlbench.harness.cli.main import main\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    assert not end.code\n"
        "heavy = {'torch', 'numpy', 'pandas', 'pyarrow', 'gymnasium', 'psutil', 'vizdoom', 'ale_py', 'rich'}\n"
        "if len(sys.argv) == 2: heavy.add('pydantic')  # typer itself needs it for the options of a command\n"
        "print('loaded:', sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded: []"


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_error(closed: str, tmp_path: Path) -> None:
    """A command whose output nobody can get does its work, and no file of its own takes the place of a stream."""
    done = subprocess.run(
        ["bash", "-c", f"{RLBENCH} scenes --out plans --count 1 {closed}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    (plan,) = (tmp_path / "plans").iterdir()
    assert plan.read_bytes().startswith(b"glTF")


def test_lists() -> None:
    """`list` names our systems and scenarios, what they are, and whether they can run here."""
    ended = call("list")
    assert ended.code == 0
    for name in ("sync", "ddppo", "pointnav", "atari", "vizdoom", "habitat", "emulated", "open-fridge", "available"):
        assert name in ended.out
    assert "pointnav" not in call("list", "systems").out
    assert "DD-PPO" not in call("list", "scenarios").out


def test_scenes_are_exported(tmp_path: Path) -> None:
    """`scenes` writes as many floor plans as were asked for and prints where they are."""
    ended = call("scenes", "--out", str(tmp_path / "plans"), "--count", "2", "--workload", "heterogeneous")
    assert ended.code == 0
    paths = [Path(line) for line in ended.out.splitlines()]
    assert sorted((tmp_path / "plans").iterdir()) == sorted(paths)
    assert [path.read_bytes()[:4] for path in paths] == [b"glTF", b"glTF"]


def test_results_of_an_empty_folder(tmp_path: Path) -> None:
    """A folder without runs is no error: no rows, an empty list."""
    folder = str(tmp_path)
    assert call("results", folder).out == "no runs\n"
    assert call("results", folder, "--json").out == "[]\n"
    assert call("results", folder, "--csv").out == ""


def test_console_script_says_it_in_one_line_too(tmp_path: Path) -> None:
    """The installed script refuses as the tests above do, in a process of its own."""
    assert_refused(launch("run", "--systems", "nope", folder=tmp_path), "unknown system 'nope'")
    assert list(tmp_path.iterdir()) == []


def test_a_defect_is_no_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a traceback and a code of its own: 1 would say that a cell had failed, or was slower."""
    monkeypatch.setattr(main, "app", lambda *_, **__: 1 / 0)
    ended = call("list")
    assert (ended.code, ended.out) == (70, "")
    assert "ZeroDivisionError" in ended.err


def test_output_that_cannot_be_written(tmp_path: Path) -> None:
    """A full disk behind stdout is one line; a reader that has had enough ends the command quietly, as SIGPIPE does."""
    command = [str(RLBENCH), "results", str(tmp_path), "--json"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "rlbench: cannot write the output: No space left on device\n")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (OUTPUT_CLOSED, "")
    assert OUTPUT_CLOSED == 141


@pytest.mark.parametrize("arguments", [("list",), ("results", "."), ("--help",), ("no-such-command",)])
def test_whoever_reads_has_had_enough(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """Every way of printing, rich's and typer's too, on stdout and on stderr, ends with 128 + SIGPIPE and no word."""
    reader, writer = os.pipe()
    os.close(reader)
    with tempfile.TemporaryFile() as other:
        streams = (other, writer) if arguments[0] == "no-such-command" else (writer, other)
        done = subprocess.run(
            [RLBENCH, *arguments], cwd=tmp_path, stdout=streams[0], stderr=streams[1], check=False, timeout=100
        )
        other.seek(0)
        assert (done.returncode, other.read()) == (141, b"")
    os.close(writer)


def test_commands_are_what_the_help_says() -> None:
    """The commands that this file checks are all that there are."""
    assert tuple(known_commands()) == COMMANDS
