from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.harness import sweeps
from tests.harness.command import call
from tests.harness.sweeps import named, spoil, write_sweep

here = pytest.fixture(autouse=True)(sweeps.here)


def test_compare_two_sweeps(here: Path) -> None:
    """A system that became 10 % faster is 1.10 with its interval, the others 1.00, and the sweeps are comparable."""
    a, b = write_sweep(here / "a"), write_sweep(here / "b", day=2, faster=1.1)
    ended = call("compare", str(a), str(b))
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[:3] == [f"A: {a}", f"B: {b}", "comparable"]
    rows = [[text.strip() for text in line.split("|")] for line in lines if "|" in line]
    table = {(system, gpus): figures for system, gpus, *figures in rows[1:]}
    assert len(table) == 4
    *rates, ratio, standing = table["ver", "8"]
    assert rates == ["1,337", "1,471"]
    assert re.fullmatch(r"1\.10 \(1\.0\d to 1\.1\d\)", ratio)
    assert standing == "faster"
    assert table["sync", "8"][-1] == "not significantly different"
    assert "emulated: the figures are of a profile, not of this machine" in lines
    assert lines[-1] == "--explain says what the columns mean"
    explained = call("compare", str(a), str(b), "--explain").out.splitlines()
    assert any(line.startswith("95 %: interval from the spread of the iterations") for line in explained)


def test_compare_says_what_differs(here: Path) -> None:
    """Another version of torch is named, with who has which; another commit is named and is no obstacle."""
    a, b = write_sweep(here / "a"), write_sweep(here / "b", packages={"torch": "9.9"}, commit="fffffff")
    lines = call("compare", str(a), str(b)).out.splitlines()
    assert lines[2].startswith("not comparable, because of versions: ")
    assert "torch 9.9 (B)" in lines[2]
    assert lines[3].startswith("commit: ")


def test_compare_as_json(here: Path) -> None:
    """`--json` holds the figures that the table rounds."""
    a, b = write_sweep(here / "a"), write_sweep(here / "b", faster=1.1)
    compared = json.loads(call("compare", str(a), str(b), "--json", "--reference", "sync").out)
    pairs = {(pair["a"]["system"], pair["a"]["gpus"]): pair for pair in compared["pairs"]}
    assert pairs["ver", 8]["ratio"]["value"] == pytest.approx(1.1)
    assert pairs["ver", 8]["a_to_reference"]["value"] == pytest.approx(13.37 / 5)
    assert compared["comparable"]


def test_compare_with_a_reference(here: Path) -> None:
    """With a reference, each side's figures stand against its own as well."""
    a, b = write_sweep(here / "a"), write_sweep(here / "b", faster=1.5)
    lines = call("compare", str(a), str(b), "--reference", "sync").out.splitlines()
    header = next(line for line in lines if line.startswith("system"))
    row = next(line for line in lines if line.startswith("ver") and "|    1 |" in line)
    figures = dict(zip((t.strip() for t in header.split("|")), (t.strip() for t in row.split("|")), strict=True))
    assert (figures["A / sync A"], figures["B / sync B"]) == ("2.00", "3.00")


def test_compare_names_what_is_on_one_side(here: Path) -> None:
    """Cells that one side has alone are named, and so is what went wrong on either."""
    a, b = write_sweep(here / "a"), write_sweep(here / "b")
    shutil.rmtree(b / "004-ver-x8")
    spoilt = spoil(b)
    ended = call("compare", str(a), str(b))
    text = ended.out.replace("\n", "")
    assert ended.code == 0
    assert "only in A: ver, emulated/open-fridge, heterogeneous, 8 emulated GPUs: 1,337 steps/s" in ended.out
    assert "only in B: appo, emulated/open-fridge, heterogeneous, 8 emulated GPUs: failed" in ended.out
    assert "B: failed: appo" in text
    assert named(text, spoilt) == []


def test_compare_of_other_work(here: Path) -> None:
    """Where no cell was run on both sides, that is said, and the exit code is 1."""
    a, b = write_sweep(here / "a"), write_sweep(here / "b", cell={"workload": "homogeneous"})
    ended = call("compare", str(a), str(b))
    assert (ended.code, ended.err) == (1, "")
    assert ended.out.splitlines()[2] == "nothing to compare: no cell was run on both sides"
    assert ended.out.count("only in ") == 8


def test_compare_fits_a_narrow_terminal(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 80 columns every figure stands whole, and no line is wider."""
    monkeypatch.setenv("COLUMNS", "80")
    a, b = write_sweep(here / "a"), write_sweep(here / "b", faster=1.1)
    lines = call("compare", str(a), str(b), "--reference", "sync").out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any("1,337" in line and "1,471" in line for line in lines)
