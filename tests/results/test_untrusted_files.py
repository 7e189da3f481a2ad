from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.fuzz.child import RAISED
from tests.fuzz.kinds import KINDS
from tests.fuzz.reading import Reader
from tests.fuzz.targets import FAULT

BATCH = 10
"""Files in one example: hypothesis takes longer for an example than for what is in it."""
ALWAYS_READ = frozenset({"spans", "index"})
"""What a run is listed without."""


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """One process for all files, as long as it lives."""
    with Reader(tmp_path_factory.mktemp("spoilt")) as made:
        yield made


def test_ten_thousand_spoilt_files_are_read() -> None:
    """Of all kinds together; the next test counts those of each."""
    assert sum(kind.number for kind in KINDS.values()) == 10_000


@pytest.mark.parametrize("name", KINDS)
def test_a_spoilt_file_is_read_or_named(name: str, reader: Reader) -> None:
    """Whatever is in a file of somebody else's, there is a result or an error in one line, within 5 s and 1 GiB.

    The files are read by the functions that commands call, in another process. A file of which it crashes, hangs,
    warns, prints an escape sequence or raises anything else fails the test, and is kept; so does one that keeps the
    other runs of its sweep from being shown.
    """
    kind = KINDS[name]

    @settings(
        max_examples=kind.number // BATCH,
        derandomize=True,
        database=None,
        deadline=None,  # `Reader` has one, of the processor's time
        phases=[Phase.generate],  # a file that fails is kept as it is
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(kind.spoilt(), min_size=BATCH, max_size=BATCH))
    def read(files: list[bytes]) -> None:
        for data in files:
            reader.read(name, data)

    read()
    outcomes = reader.outcomes[name]
    assert reader.faults == {}
    assert outcomes.total() >= kind.number
    assert len(outcomes) == (1 if name in ALWAYS_READ else 2), outcomes


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("raise RuntimeError(7)", "RuntimeError: 7"),
        ("import os; os.abort()", "ended with -6"),
        ("[0] * 2**28", "Memory"),
    ],
)
def test_a_fault_is_seen(fault: str, said: str, tmp_path: Path) -> None:
    """An exception, the end of the process, and too much memory each fail a file, which is kept."""
    with Reader(tmp_path) as reader:
        reader.read(FAULT, fault.encode())
        reader.read(FAULT, b"pass")
    ((kept, why),) = reader.faults.items()
    assert said in why
    assert Path(kept).read_bytes() == fault.encode()
    assert dict(reader.outcomes[FAULT]) == {RAISED: 1, "read": 1}
