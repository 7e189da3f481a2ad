from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rlbench.systems.engine.workers.worker import MOST_SQUARES, _is_finite


@pytest.mark.parametrize("size", [1, 3, MOST_SQUARES, MOST_SQUARES + 1, 100_000])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_number_that_is_none_is_found(size: int, dtype: type, bad: float) -> None:
    """Wherever it stands, among however many."""
    for at in {0, size // 2, size - 1}:
        values: NDArray[np.floating[Any]] = np.ones(size, dtype)
        assert _is_finite(values)
        values[at] = bad
        assert not _is_finite(values)


@pytest.mark.filterwarnings("ignore:overflow encountered in dot:RuntimeWarning")  # some builds of numpy say so
def test_huge_numbers_are_finite() -> None:
    """Also those whose squares are not, and images that are a view."""
    assert _is_finite(np.full((2, 3), np.finfo(np.float32).max))
    assert _is_finite(np.ones((64, 64, 3), np.float32).transpose(2, 0, 1)[:, ::2])
