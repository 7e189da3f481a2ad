"""The tables of docs/reliability.md against the tests that they name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "reliability.md"
HEAD = "| what is promised | tested by | lane |"
NAMED = re.compile(r"(?:(?:tests|benchmarks)/[\w/]+/)?(?:test|check|bench)_\w+\.py")
OTHER = {"bench_": "bench", "tests/libraries/": "libraries"}
"""Sessions of nox that no lane is made of."""
IS_DEEP = re.compile(r"\bdeep\b|\bsampled\(")


def rows() -> Iterator[list[str]]:
    """The cells of each row of the tables of promises; those that say `the same` name what the row above does."""
    inside, before = False, ""
    for line in DOCUMENT.read_text(encoding="utf-8").splitlines():
        inside = HEAD in line or (inside and line.startswith("|"))
        if not inside or HEAD in line or line.startswith("| ---"):
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        cells[2] = cells[2].replace("the same", before)
        before = cells[2]
        yield cells


def paths(tested_by: str) -> list[Path]:
    """The files that a row names, by their names alone or by paths."""
    found = []
    for name in NAMED.findall(tested_by):
        places = [ROOT / name] if "/" in name else sorted((ROOT / "tests").rglob(name))  # harness comes first
        assert places, name
        assert places[0].is_file(), name
        found.append(places[0])
    return found


def lane(files: list[Path]) -> str:
    """Where these tests run: in the lane of every change, in the deep one, or with more in the deep one."""
    tests = [path for path in files if path.name.startswith("test_")]
    others = {session for word, session in OTHER.items() for path in files if word in str(path)}
    checks = [path for path in files if path.name.startswith("check_") and "libraries" not in path.parts]
    if not tests and not checks:
        return ", ".join(sorted(others))
    if not tests:
        return "deep"
    has_more = checks or any(IS_DEEP.search(path.read_text(encoding="utf-8")) for path in tests)
    return "tests, more in deep" if has_more else "tests"


def test_every_promise_has_tests_and_names_their_lane() -> None:
    """The files are there, and the last column says which lane they run in."""
    wrong = [
        f"{what}: {said!r} is {lane(paths(tested_by))!r}"
        for what, _, tested_by, said in rows()
        if said != lane(paths(tested_by))
    ]
    assert wrong == []
    assert sum(1 for _ in rows()) > 60
