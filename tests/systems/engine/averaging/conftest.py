from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rlbench.harness.metering.meter import RankMeter
from tests.systems.engine.averaging.offices import meter_in


@pytest.fixture
def meter(tmp_path: Path) -> Iterator[RankMeter]:
    """One meter for all ranks of this process."""
    meter = meter_in(tmp_path)
    yield meter
    meter.close()
