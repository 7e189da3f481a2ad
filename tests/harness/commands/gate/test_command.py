"""`rlbench gate`, of folders of runs and of revisions of a toy repository."""

from __future__ import annotations

import fcntl
import itertools
import json
import math
import os
import re
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import numpy as np
import psutil
import pytest
from scipy import special

from rlbench.harness.commands.gate import repetitions
from rlbench.harness.commands.gate.command import noise_floor
from rlbench.harness.commands.gate.revisions import checked_out, find_commit, remove_all_but
from rlbench.results.records.work import Work, read_work
from rlbench.results.summary.document import Estimate
from rlbench.results.verdicts.compare import Runs
from rlbench.results.verdicts.gate import judge
from tests.harness import sweeps
from tests.harness.command import RLBENCH, Ended, assert_refused, call
from tests.harness.commands.gate.conftest import Shared
from tests.harness.commands.gate.toy_repository import commit, git
from tests.harness.processes.test_priority import refuse
from tests.harness.runs import PATIENCE_S, has_ended, wait_until
from tests.harness.sweeps import spoil, write_sweep
from tests.results.verdicts.test_gate import check_of, runs_of

here = pytest.fixture(sweeps.here)


def gate(*options: str) -> Ended:
    """`rlbench gate`."""
    return call("gate", *options)


def write_seeds(folder: Path, faster: float = 1.0, noise: float = 0.01) -> Path:
    """A sweep of four cells with three seeds each, of which the second makes a share more, and the third less."""
    sweep = write_sweep(folder, faster=faster)
    for path in sorted(sweep.glob("0*")):
        record = json.loads((path / "run.json").read_text())
        for seed, share in ((1, 1 + noise), (2, 1 - noise)):
            again = json.loads(json.dumps(record))
            again["cell"] |= {"seed": seed, "hash": f"{record['cell']['hash']}-{seed}"}
            again["id"] = f"{record['id']}-seed-{seed}"
            again["figures"]["steps_per_s"] *= share
            shutil.copytree(path, sweep / again["id"])
            (sweep / again["id"] / "run.json").write_text(json.dumps(again))
    return sweep


def test_folders_that_are_alike_pass(here: Path) -> None:
    """Two sweeps with the same figures: exit code 0, a row for each cell and metric; noise beyond the tolerance: 3."""
    for name in ("main", "mine"):
        write_seeds(here / name)
    ended = gate("--baseline", "main", "--candidate", "mine")
    assert ended.code == 0, ended.out
    assert ended.out.startswith("passed: 8 passed\n")
    assert "baseline main, candidate mine, tolerance 5 %" in ended.out
    assert "95 % interval (98.75 % beside steps/s) from the spread of pairs of runs with the same seed" in ended.out
    write_seeds(here / "noisy", noise=-0.05)
    inconclusive = gate("--baseline", "main", "--candidate", "noisy")
    assert inconclusive.code == 3
    assert "inconclusive: ver, emulated/open-fridge, " in inconclusive.out
    assert "repetitions of each side would settle it" in inconclusive.out


def test_single_runs_decide_nothing(here: Path) -> None:
    """Without repetitions the gate is inconclusive, however fast the candidate is."""
    write_sweep(here / "main")
    write_sweep(here / "mine", faster=0.5)
    ended = gate("--baseline", "main", "--candidate", "mine")
    assert ended.code == 3
    assert "3 repetitions of each side at least" in ended.out


def test_a_slower_folder_is_a_regression_in_every_form(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ver` at 80 % of its speed: exit code 1, and JSON, JUnit XML, Markdown and annotations say the same."""
    write_seeds(here / "main")
    write_seeds(here / "mine", faster=0.8)
    files = ("--json", "gate.json", "--junit", "gate.xml", "--markdown", "gate.md")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("COLUMNS", "220")
    ended = gate("--baseline", "main", "--candidate", "mine", *files)
    assert (ended.code, ended.err) == (1, "")
    assert ended.out.startswith("regression: 2 regression, 6 passed\n")
    document = json.loads((here / "gate.json").read_text())
    assert (document["outcome"], document["exit_code"]) == ("regression", 1)
    slow = [check for check in document["checks"] if check["outcome"] == "regression"]
    assert {(check["system"], check["metric"], round(check["ratio"]["value"], 6)) for check in slow} == {
        ("ver", "steps_per_s", 0.8)
    }
    suite = ET.parse(here / "gate.xml").getroot()  # noqa: S314  ours
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == (str(len(document["checks"])), "2", "0")
    failed = [case.get("classname") for case in suite if case.find("failure") is not None]
    assert [name.split(",")[0] for name in failed if name] == ["ver", "ver"]
    markdown = (here / "gate.md").read_text()
    assert markdown.startswith("**regression: 2 regression, 6 passed")
    assert "| ver |" in markdown.splitlines()[6]
    errors = [line for line in ended.out.splitlines() if line.startswith("::error title=regression")]
    assert len(errors) == 2
    assert "ratio 0.800" in errors[0]


def test_an_outcome_that_cannot_be_written_is_still_one(here: Path) -> None:
    """A regression stays exit code 1 where the file has become a folder meanwhile; a pass that nobody reads is 2."""
    write_seeds(here / "main")
    write_seeds(here / "mine", faster=0.8)
    for candidate, code in (("mine", 1), ("main", 2)):
        ended = gate("--baseline", "main", "--candidate", candidate, "--json", "/dev/full")
        assert ended.code == code
        assert "cannot be written" in ended.err


def test_what_is_missing_or_spoilt_never_passes(here: Path) -> None:
    """A cell that the candidate lacks is exit code 4, and what cannot be read is named."""
    write_seeds(here / "main")
    mine = write_seeds(here / "mine")
    spoil(mine)
    for path in mine.glob("004-ver-x8*"):
        path.rename(here / path.name)
    ended = gate("--baseline", "main", "--candidate", "mine")
    assert ended.code == 4
    assert "the candidate has not run it" in ended.out
    assert "unreadable: mine: " in ended.out
    assert gate("--baseline", "mine", "--candidate", "main").code == 0


def test_usage_errors(here: Path) -> None:
    """Each is one line, and nothing is measured."""
    write_sweep(here / "main")
    folders = ("--baseline", "main", "--candidate", "main")
    assert_refused(gate(), "needs --baseline and --candidate, or --aa")
    assert_refused(gate("--baseline", "main"), "needs --baseline and --candidate")
    assert_refused(gate(*folders, "--tolerance", "5"), "--tolerance 5.0: must be above 0 and below 1")
    assert_refused(gate(*folders, "--systems", "ver"), "--systems: is of revisions")
    assert_refused(gate(*folders, "--seed", "0"), "--seed: is of revisions")
    assert_refused(gate(*folders, "--in-turn"), "--in-turn: is of revisions")
    assert_refused(gate(*folders, "--json", "nowhere/x.json"), "nowhere/x.json: its folder is not there")
    assert_refused(gate(*folders, "--junit", "main"), "main: is a folder")
    assert_refused(gate("--aa", "--candidate", "x"), "--aa: measures --baseline against itself")
    assert_refused(gate("--aa"), "needs --systems to measure revisions")
    assert_refused(gate(*folders, "--learning", "lag>=1"), "--learning lag>=1: must be success>=NUMBER or return>=")
    assert_refused(gate(*folders, "--bisect", "--learning", "return>=1"), "--bisect: goes neither with")
    for words in (("--aa",), (*folders, "--protocol", "still")):
        assert_refused(
            gate(*words, "--learning", "return>=1"), "--learning: goes neither with --aa nor with --protocol"
        )
    assert_refused(
        gate("--baseline", "nowhere", "--candidate", "neither", "--systems", "x"), "nowhere: is neither a folder"
    )
    assert_refused(gate("--aa", "--systems", "x", "--budget", "0"), "--budget 0.0: must be above 0")
    one_folder = ("--baseline", "main", "--candidate", "typo")
    assert_refused(gate(*one_folder), "typo: is no folder, as main is")
    (here / "empty").mkdir()
    assert_refused(gate("--baseline", "empty", "--candidate", "main"), "empty: no runs")


def order_of(folder: Path) -> list[str]:
    """Which side ran, with which seed, one after the other."""
    (found,) = (folder / "rlbench-runs").glob("gate-*/order.txt")
    return found.read_text().splitlines()


def test_a_slower_revision_is_seen_early(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """20 % slower with little noise: three of each side in turn, A B B A A B, exit code 1; nothing is left behind."""
    commit(repository, "slow", 80.0)
    (repository / "toy.py").write_text("not committed")
    monkeypatch.setenv("PYTHONPATH", str(repository))  # would lead both sides to that file
    ended = gate("--baseline", "main", "--candidate", "slow", "--systems", "ddppo", "--in-turn")
    assert ended.code == 1, ended.out + ended.err
    assert "uncommitted changes of this work tree are not measured" in ended.out
    assert order_of(repository) == [
        *("baseline 0 still", "candidate 0 still", "candidate 1 still"),
        *("baseline 1 still", "baseline 2 still", "candidate 2 still"),
    ]
    assert "regression: 1 regression" in ended.out
    assert git(repository, "worktree", "list").count("\n") == 0
    assert (repository / "toy.py").read_text() == "not committed"
    (made,) = (repository / "rlbench-runs").iterdir()
    commits = {
        side: {json.loads(path.read_text())["commit"] for path in (made / side).glob("*/*/run.json")}
        for side in ("baseline", "candidate")
    }
    assert commits == {
        "baseline": {git(repository, "rev-parse", "main")},
        "candidate": {git(repository, "rev-parse", "slow")},
    }


def test_noise_uses_the_budget_up_and_is_inconclusive(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 30 % noise nothing is clear when the budget is spent: exit code 3, and how many repetitions would do."""
    commit(repository, "noisy", 108.0, noise=0.3)
    clock = itertools.count(step=1.0)  # each look at it is a second later: two looks in a repetition, and one before
    monkeypatch.setattr(repetitions, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    ended = gate("--baseline", "main", "--candidate", "noisy", "--systems", "ddppo", "--budget", "6", "--in-turn")
    assert ended.code == 3, ended.out + ended.err
    assert len(order_of(repository)) == 6
    assert "repetitions of each side would settle it" in ended.out


def test_what_a_run_did_is_read_once(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often the gate looks: three times here."""
    commit(repository, "slow", 80.0)
    folders: list[Path] = []

    def read(folder: Path) -> Work:
        folders.append(folder)
        return read_work(folder)

    monkeypatch.setattr(repetitions, "read_work", read)
    gate("--baseline", "main", "--candidate", "slow", "--systems", "ddppo")
    assert len(folders) == len(set(folders)) == len(order_of(repository)) == 6


@pytest.mark.usefixtures("repository")
def test_the_same_revision_tells_how_large_a_change_can_be_seen(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--aa` spends its budget, passes, and names the noise; the environment is made once, and used again."""
    clock = itertools.count(step=1.0)  # two looks in a repetition, and one before
    monkeypatch.setattr(repetitions, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    main = git(shared.repository, "rev-parse", "main")
    for out in ("once", "again"):
        ended = gate("--aa", "--systems", "ddppo", "--out", out, "--budget", "10")
        assert ended.code == 0, ended.out + ended.err
        assert "repetition 5: " in ended.out
        assert "repetition 6: " not in ended.out  # it would end after 12 s
        assert "noise +-" in ended.out
        assert "95 of 100 such gates see a change of" in ended.out
        (made,) = [path for path in shared.made if path.name.startswith(main)]
        assert (made / "ready").exists()


def test_the_smallest_change_that_is_seen() -> None:
    """Of gates whose intervals are so wide, 95 of 100 find so large a change: their intervals end before 1."""
    judged = judge(Runs(name="main", runs=runs_of([100, 101])), Runs(name="main", runs=runs_of([100, 101])))
    check, error, num = check_of(judged, "steps_per_s"), 0.01, 20
    half = error * special.stdtrit(num - 1, 0.975)
    ratio = Estimate(value=1.0, low=math.exp(-half), high=math.exp(half), units="seeds", num_units=num)
    changed = {"ratio": ratio, "paired": True}
    (line,) = noise_floor(judged.model_copy(update={"checks": [check.model_copy(update=changed)]}))
    said = re.fullmatch(r".*: noise \+-2\.1 %: .* a change of (.*) %, and a regression from (.*) % on", line)
    assert said is not None
    assert float(said[2]) == pytest.approx(float(said[1]) + 5)
    generator = np.random.default_rng(0)
    blocks = -math.log1p(float(said[1]) / 100) + error * math.sqrt(num) * generator.standard_normal((4000, num))
    ends = blocks.mean(1) + blocks.std(1, ddof=1) / math.sqrt(num) * special.stdtrit(num - 1, 0.975)
    assert 0.93 < (ends < 0).mean() < 0.97


def test_environments_of_old_are_removed(tmp_path: Path) -> None:
    """The two used last are kept, and one that somebody uses; what was never made to its end goes first."""
    oldest, locked, newer, newest, half_made = (f"{digit * 40}-linux-x86_64-python3.11" for digit in "abcde")
    for number, name in enumerate((oldest, locked, newer, newest, half_made)):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin" / "python").touch()
        if name != half_made:
            (tmp_path / name / "ready").touch()
            os.utime(tmp_path / name / "ready", (number, number))
    with (tmp_path / f"{locked}.lock").open("w") as used:
        fcntl.flock(used, fcntl.LOCK_SH)
        remove_all_but(2, tmp_path)
        assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {locked, newer, newest}
    remove_all_but(2, tmp_path)
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {newer, newest}


def test_a_side_that_fails_is_not_comparable(repository: Path) -> None:
    """The candidate's runs fail: exit code 4 after the first repetition."""
    commit(repository, "broken", 100.0, what="fails")
    ended = gate("--baseline", "main", "--candidate", "broken", "--systems", "ddppo")
    assert ended.code == 4, ended.out + ended.err
    assert len(order_of(repository)) == 2
    assert "no run of the candidate finished (failed)" in ended.out


def test_a_side_that_refuses_is_a_usage_error(repository: Path) -> None:
    """What the older revision does not know yet is said in its own words."""
    commit(repository, "older", 100.0, what="refuses")
    ended = gate("--baseline", "older", "--candidate", "main", "--systems", "new")
    assert ended.code == 2
    assert "rlbench: baseline older (" in ended.err
    assert "unknown system new" in ended.err
    assert git(repository, "worktree", "list").count("\n") == 0


def test_both_sides_run_at_once(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On halves of the cores, for 20 s unless it is said otherwise; the order of their start alternates.

    Where the gate may not run before others, it says that it exchanges their cores less often.
    """
    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    commit(repository, "slow", 80.0)
    ended = gate("--baseline", "main", "--candidate", "slow", "--systems", "ddppo")
    assert ended.code == 1, ended.out + ended.err
    assert re.search(r"repetition 1: baseline main \(\w+\) beside candidate slow \(\w+\), seed 0", ended.out)
    assert re.search(r"repetition 2: candidate slow \(\w+\) beside baseline main \(\w+\), seed 1", ended.out)
    assert ended.out.count("the sides exchange their cores every 1 s only") == 1
    said = [path.read_text() for path in (repository / "rlbench-runs").glob("gate-*/*/cores-*")]
    assert said == 6 * [f"{len(os.sched_getaffinity(0)) // 2} 20"]


def test_a_revision_that_learns_worse(repository: Path) -> None:
    """By env steps until the goal, in runs that end there or after a quarter of the budget; not of still work."""
    commit(repository, "slow", 80.0)
    commit(repository, "never", 20.0, what="never")
    asked = ("--baseline", "main", "--learning", "success>=0.9", "--systems", "ddppo")
    passed = gate(*asked, "--candidate", "slow")
    assert passed.code == 0, passed.out + passed.err
    assert "env steps to success>=0.9" in passed.out
    said = [path.read_text() for path in (repository / "rlbench-runs").glob("gate-*/*/cores-*")]
    assert said == 6 * [f"{len(os.sched_getaffinity(0)) // 2} 450"]
    assert not any("still" in line for line in order_of(repository))
    worse = gate(*asked, "--candidate", "never")
    assert worse.code == 1, worse.out + worse.err
    assert "5.000" in worse.out
    assert "3 of 3 runs of the candidate never got there" in worse.out
    neither = gate("--baseline", "never", *asked[2:], "--candidate", "never", "--in-turn")
    assert neither.code == 4
    assert "no run of either side got there: give runs more time" in neither.out
    assert "repetition 3: " in neither.out


def test_nobody_waits_for_a_side_whose_other_has_refused(repository: Path) -> None:
    """The other, which would go on for a minute, is ended."""
    commit(repository, "older", 100.0, what="refuses")
    commit(repository, "slow", 100.0, what="sleeps")
    ended = gate("--baseline", "slow", "--candidate", "older", "--systems", "new")
    assert ended.code == 2
    assert "unknown system new" in ended.err
    assert not list((repository / "rlbench-runs").glob("gate-*/*/*/*/run.json"))


def test_a_revision_from_before_still_work(repository: Path) -> None:
    """The gate says so, and measures both as they were measured before; asked for, still work is insisted on."""
    commit(repository, "older", 100.0, what="old")
    ended = gate("--baseline", "main", "--candidate", "older", "--systems", "ddppo")
    assert ended.code == 0, ended.out + ended.err
    assert "candidate older" in ended.out
    assert "what is measured is not still work, and changes as policies learn" in ended.out
    (asked,) = (repository / "rlbench-runs").glob("gate-*-b/order.txt")
    assert sorted(asked.read_text().splitlines()[:2]) == ["baseline 0", "candidate 0"]
    asked_for = gate("--baseline", "main", "--candidate", "older", "--systems", "ddppo", "--protocol", "still")
    assert asked_for.code == 2


def test_a_revision_that_cannot_be_installed(repository: Path) -> None:
    """Pip's error is the line, and the environment is made anew the next time."""
    (repository / "pyproject.toml").write_text("[project")
    commit(repository, "unbuildable", 100.0)
    for _ in range(2):
        ended = gate("--baseline", "main", "--candidate", "unbuildable", "--systems", "ddppo")
        assert ended.code == 2
        assert "rlbench: unbuildable: pip: " in ended.err.splitlines()[-1]
    assert_refused(
        gate("--aa", "--baseline", "nothing", "--systems", "x"), "nothing: neither a folder of runs nor a rev"
    )


def of_group(number: int) -> list[psutil.Process]:
    """The processes of a process group."""
    found = []
    for one in psutil.process_iter():
        with suppress(ProcessLookupError):
            found += [one] if os.getpgid(one.pid) == number else []
    return found


def test_ctrl_c_leaves_nothing_behind(repository: Path, tmp_path: Path) -> None:
    """Interrupted while a side runs, it ends with 130; its run and its work trees are gone."""
    commit(repository, "slow", 100.0, what="sleeps")
    with checked_out("slow", find_commit("slow", repository), repository, tmp_path):
        pass  # its environment is there
    command = [str(RLBENCH), "gate", "--aa", "--systems", "ddppo"]
    running = subprocess.Popen(command, cwd=repository, start_new_session=True, stdout=subprocess.PIPE, text=True)
    sleeping = "rlbench-runs/gate-*/baseline/sleeping"
    wait_until(lambda: list(repository.glob(sleeping)) or running.poll() is not None, "a side runs")
    assert running.poll() is None
    os.killpg(running.pid, signal.SIGINT)
    out, _ = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 130
    assert out.splitlines()[-1].startswith("interrupted; runs so far: rlbench-runs/gate-")
    wait_until(lambda: all(map(has_ended, of_group(running.pid))), "the side has ended too")
    assert git(repository, "worktree", "list").count("\n") == 0
