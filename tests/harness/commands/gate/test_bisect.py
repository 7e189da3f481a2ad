"""`rlbench gate --bisect`, of revisions of a toy repository."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from rlbench.harness.commands.gate import bisect as bisecting
from tests.harness.command import Ended, assert_refused, call
from tests.harness.commands.gate.toy_repository import commit, git


def bisect(repository: Path, rates: Sequence[float | str], *options: str) -> Ended:
    """`gate --bisect` over a branch with a commit for each rate; a word stands for a commit that does that instead."""
    for number, rate in enumerate(rates):
        git(repository, "checkout", "--quiet", "-B", "work")
        text = f"{rate} 0.003 runs" if isinstance(rate, float) else f"100.0 0.003 {rate}"
        (repository / "toy_rate.txt").write_text(f"{text}\n")
        git(repository, "commit", "--quiet", "--all", "--allow-empty", "--message", f"change {number}")
    return call("gate", "--bisect", "--baseline", "main", "--candidate", "work", "--systems", "ddppo", *options)


def test_bisect_finds_the_commit(repository: Path) -> None:
    """The third of eight makes it a tenth slower, and the next one fails: the commit is named, exit code 1."""
    ended = bisect(repository, [100.0, 100.0, 90.0, "fails", 90.0, 90.0, 90.0, 90.0])
    assert ended.code == 1, ended.out + ended.err
    assert "8 commits after" in ended.out
    assert re.search(r"^first slow commit: \w{12} with a probability of (9[5-9]|100)%$", ended.out, re.MULTILINE)
    assert re.search(r"^  \w{12} change 2$", ended.out, re.MULTILINE)
    assert re.search(r"^from it on, steps/s by those of \w{12}: 0\.900 ", ended.out, re.MULTILINE)
    assert re.search(r"^\w{12} is left out: no run of the candidate finished", ended.out, re.MULTILINE)
    assert git(repository, "worktree", "list").count("\n") == 0


def test_bisect_between_commits_that_cannot_be_told_apart(repository: Path) -> None:
    """Where the commits around the change fail, the suspects are named, with exit code 3."""
    ended = bisect(repository, [100.0, "fails", "fails", 90.0])
    assert ended.code == 3, ended.out + ended.err
    assert "not sure: most likely: " in ended.out
    assert all(re.search(rf"\d% \w{{12}} change {number}$", ended.out, re.MULTILINE) for number in (1, 2, 3))
    assert not re.search(r"\d% \w{12} change 0$", ended.out, re.MULTILINE)
    assert ended.out.count("left out: ") == 4
    assert ended.out.count(" beside ") < 12  # nothing is measured again and again that tells no more


def test_bisect_without_a_loss(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a third of the budget it says that nothing was lost, exit code 0, and measures no commit between."""
    clock = itertools.count(step=1.0)
    monkeypatch.setattr(bisecting, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    ended = bisect(repository, [100.0, 100.0, 100.1], "--budget", "60")
    assert ended.code == 0, ended.out + ended.err
    assert "no loss beyond the tolerance: " in ended.out
    assert "(2 of 3)" not in ended.out


def test_bisect_of_revisions_from_before_still_work(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As other gates it says so, and searches what was measured before; asked for, still work is insisted on."""
    clock = itertools.count(step=1.0)
    monkeypatch.setattr(bisecting, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    ended = bisect(repository, ["old", "old"], "--budget", "60")
    assert ended.code == 0, ended.out + ended.err
    assert "what is measured is not still work, and changes as policies learn" in ended.out
    assert "no loss beyond the tolerance: " in ended.out
    (said,) = re.findall(r"^runs: (.*)$", ended.out, re.MULTILINE)
    assert {path.name for path in Path(said).parent.glob("gate-*-b")} == {Path(said).name}
    insisted = bisect(repository, ["old"], "--protocol", "still")
    assert (insisted.code, "--protocol still: unknown" in insisted.err) == (2, True)


def test_bisect_says_what_it_cannot_do(repository: Path) -> None:
    """Each is one line."""
    commit(repository, "older", 100.0, what="refuses")
    ends = ("--baseline", "main", "--candidate", "older", "--systems", "ddppo")
    assert_refused(
        call("gate", "--bisect", *ends, "--json", "x.json"),
        "--bisect: goes neither with --aa, nor --learning, nor files",
    )
    assert_refused(call("gate", "--bisect", "--aa", "--systems", "ddppo"), "--bisect: goes neither with --aa")
    backwards = ("--baseline", "older", "--candidate", "main", "--systems", "ddppo")
    assert_refused(call("gate", "--bisect", *backwards), "is no ancestor of")
    same = ("--baseline", "main", "--candidate", "main", "--systems", "ddppo")
    assert_refused(call("gate", "--bisect", *same), "main and main are the same commit")
    assert "unknown system" in call("gate", "--bisect", *ends).err
