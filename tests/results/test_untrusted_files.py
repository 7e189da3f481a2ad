from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.fuzz.kinds import KINDS
from tests.fuzz.reading import Readers

BATCH = 10
"""Files in one example: hypothesis takes longer for an example than for what is in it."""


def test_ten_thousand_spoilt_files_are_read() -> None:
    """Of all kinds together; the next test counts those of each."""
    assert sum(kind.number for kind in KINDS.values()) == 10_000


@pytest.mark.parametrize("name", KINDS)
def test_a_spoilt_file_is_read_or_named(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever is in a file of somebody else's, there is a result or an error in one line, within 5 s and 1 GiB.

    The files are read by the functions that commands call, in processes of their own. One that crashes, hangs, warns,
    prints an escape sequence or raises anything else fails the test, and is kept; so does a bad file that keeps the
    other runs of its sweep from being shown.
    """
    kind = KINDS[name]
    with Readers(name, tmp_path_factory.mktemp(name), kind.good()) as readers:

        @settings(
            max_examples=kind.number // BATCH,
            derandomize=True,
            database=None,
            deadline=None,  # `Readers` has one, of the processor's time
            phases=[Phase.generate],  # a file that fails is kept as it is
            suppress_health_check=list(HealthCheck),
        )
        @given(st.lists(kind.spoilt(), min_size=BATCH, max_size=BATCH))
        def read(files: list[bytes]) -> None:
            for data in files:
                readers.read(data)

        read()
    assert readers.faults == {}
    assert readers.outcomes.total() >= kind.number
    assert min(readers.outcomes.values()) > kind.number // 100 or name in {"index", "spans"}, readers.outcomes
