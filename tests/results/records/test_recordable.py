from __future__ import annotations

from typing import Any

import pytest

from rlbench.results.reading.untrusted import RECORD_BYTES
from rlbench.results.records.recordable import LONGEST_TEXT, cut, recordable
from rlbench.results.records.store import load_run, write_run
from tests.results.made_records import make_record


def fields(**others: Any) -> dict[str, Any]:
    """Of a record that failed."""
    return dict(make_record(status="failed", reason="it died")) | others


@pytest.mark.parametrize(
    ("field", "value", "shown"),
    [
        ("reason", "half a \udcff", r"half a \udcff"),
        ("reason", "\x1b[2J", r"\x1b[2J"),
        ("reason", "x" * 10_000_000, f"({10_000_000 - LONGEST_TEXT + 40:,} characters more)"),
        ("warnings", ["\ud800"], r"\ud800"),
        ("command", ["rlbench", "--out", "caf\udce9"], "udce9"),
        ("configuration", {"much": 2**70}, "a whole number of 71 bits"),
        ("configuration", {"odd": object}, "<class 'object'>"),
        ("configuration", {"\udcff": [{"x" * 20_000: 1}]}, r"\udcff"),
        ("machine", {"cpu_model": "\x00"}, r"\x00"),
    ],
)
def test_what_a_record_cannot_hold_is_replaced_and_named(tmp_path: Any, field: str, value: Any, shown: str) -> None:
    """What is written of it can be read again, shows what was there, and says which field it was."""
    record = recordable(fields(**{field: value}))
    assert shown in str(getattr(record, field))
    assert any(warning.startswith("not recorded as it was") and field in warning for warning in record.warnings)
    write_run(tmp_path, record)
    assert load_run(tmp_path).record == record


def test_a_tree_without_end_is_cut() -> None:
    """A setting that holds itself deeper than any document may is cut where the depth ends."""
    tree: dict[str, Any] = {}
    for _ in range(500):
        tree = {"in": tree}
    assert "configuration" in recordable(fields(configuration=tree)).warnings[-1]


def test_a_record_that_is_too_large_loses_its_configuration_first(tmp_path: Any) -> None:
    """What we write we can read: the largest parts are left out, by name, until the rest is small enough."""
    large = {str(number): "x" * 9_000 for number in range(RECORD_BYTES // 9_000 + 1)}
    record = recordable(fields(configuration=large, machine={"cores": 2}))
    assert (record.configuration, record.machine) == ({}, {"cores": 2})
    assert record.warnings[0] == "configuration was left out: the record would be too large"
    write_run(tmp_path, record)
    assert load_run(tmp_path).record == record


def test_a_record_as_it_should_be_stays_as_it_is() -> None:
    """Nothing is replaced in a record of an ordinary run; a number that is not finite is null in JSON, as ever."""
    record = make_record(configuration={"bytes_per_s": float("inf")})
    assert recordable(dict(record)) == record


def test_a_text_is_cut_with_the_number_of_what_is_missing() -> None:
    """Whoever reads it sees that it goes on."""
    assert cut("abc" * 20, 43) == "abc … (57 characters more)"
    assert len(cut("\x1b" * 10_000_000)) <= LONGEST_TEXT
    assert cut("abc\n", 10) == "abc\n"


@pytest.mark.parametrize(
    "field", ["reason", "configuration", "machine", "nodes", "packages", "warnings", "settings", "command", "commit"]
)
def test_no_part_is_too_large(tmp_path: Any, field: str) -> None:
    """12 MB in any field: it alone is left out or cut, and said to be; the record can be written and read again."""
    texts = [f"{number} " + "x" * 9_000 for number in range(12_000_000 // 9_000)]
    large: Any = {"reason": "x" * 12_000_000, "commit": "x" * 12_000_000, "warnings": texts, "command": texts}.get(
        field, {text[:5]: text for text in texts}
    )
    given = fields()
    if field == "settings":
        given["cell"] = given["cell"].model_copy(update={"settings": large})
    elif field == "nodes":
        given["nodes"] = [{"host": "a", "first_rank": 0, "num_ranks": 1, "machine": large}]
    else:
        given[field] = large
    record = recordable(given)
    said = [warning for warning in record.warnings if "was left out" in warning]
    named = {"settings": "cell.settings"}.get(field, field)
    cut_instead = field in {"reason", "commit", "command"}
    assert [line.split()[0] for line in said] == ([] if cut_instead else [named])
    write_run(tmp_path, record)
    assert load_run(tmp_path).record == record
