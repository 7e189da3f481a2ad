from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.fuzz.child import RAISED
from tests.fuzz.kinds import KINDS
from tests.fuzz.reading import Reader
from tests.fuzz.targets import FAULT
from tests.lanes import deep

BATCH = 5
"""Files in one example: hypothesis takes longer for an example than for what is in it."""
SHARE = 20
"""The quicker lane reads one file of so many."""
ALWAYS_READ = frozenset({"spans", "index"})
"""What a run is listed without."""
LEAST = 2
"""Of each outcome in the quicker lane; there are 15 files of the smallest kinds."""


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """One process for all files, as long as it lives."""
    with Reader(tmp_path_factory.mktemp("spoilt")) as made:
        yield made


def test_ten_thousand_spoilt_files_are_read() -> None:
    """Of all kinds together, and 500 in the quicker lane; the next test counts those of each."""
    assert sum(kind.number for kind in KINDS.values()) == 10_000
    assert sum(BATCH * (kind.number // SHARE // BATCH) for kind in KINDS.values()) == 500


@pytest.mark.parametrize("is_whole", [False, pytest.param(True, marks=deep)], ids=["500", "10,000"])
@pytest.mark.parametrize("name", KINDS)
def test_a_spoilt_file_is_read_or_named(name: str, is_whole: bool, reader: Reader) -> None:
    """Whatever is in a file of somebody else's, there is a result or an error in one line, within 5 s and 1 GiB.

    The files are read by the functions that commands call, in another process. A file of which it crashes, hangs,
    warns, prints an escape sequence or raises anything else fails the test, and is kept; so does one that keeps the
    other runs of its sweep from being shown. The quicker lane reads the same files each time, the deep one others.
    """
    kind, drawn = KINDS[name], secrets.randbits(64)
    number = kind.number if is_whole else kind.number // SHARE
    reader.outcomes[name].clear()

    @settings(
        max_examples=number // BATCH,
        derandomize=not is_whole,
        database=None,
        deadline=None,  # `Reader` has one, of the processor's time
        phases=[Phase.generate],  # a file that fails is kept as it is
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(kind.spoilt(), min_size=BATCH, max_size=BATCH))
    def read(files: list[bytes]) -> None:
        for data in files:
            reader.read(name, data)

    (seed(drawn)(read) if is_whole else read)()
    outcomes = reader.outcomes[name]
    assert reader.faults == {}, f"seed {drawn}" if is_whole else "the same each time"
    assert outcomes.total() >= number
    assert len(outcomes) == (1 if name in ALWAYS_READ else 2), outcomes
    assert min(outcomes.values()) >= LEAST, outcomes


def test_a_fault_is_seen(tmp_path: Path) -> None:
    """An exception, the end of the process, and too much memory each fail a file, which is kept; others are read."""
    faults = {
        b"raise RuntimeError(7)": "RuntimeError: 7",
        b"import os; os.abort()": "ended with -6",
        b"[0] * 2**28": "Memory",
    }
    with Reader(tmp_path) as reader:
        for fault in faults:
            reader.read(FAULT, fault)
            reader.read(FAULT, b"pass")
    assert [Path(kept).read_bytes() for kept in reader.faults] == list(faults)
    for said, why in zip(faults.values(), reader.faults.values(), strict=True):
        assert said in why
    assert dict(reader.outcomes[FAULT]) == {RAISED: 3, "read": 3}
