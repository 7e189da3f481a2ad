from __future__ import annotations

import numpy as np
import torch

from rlbench.systems.policies.graphed import Direct, graph_size


def test_graphs_have_at_most_half_as_many_rows_again() -> None:
    """Rows that are left over are computed for nothing."""
    sizes = [graph_size(num) for num in range(1, 2000)]
    assert all(num <= size <= 1.5 * num for num, size in enumerate(sizes, 1))


def test_two_graphs_cover_a_doubling_of_rows() -> None:
    """So few are captured."""
    assert sorted({graph_size(num) for num in range(1, 33)}) == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32]


def test_a_size_is_a_graph_s_own() -> None:
    """Rows that fill a graph take that one."""
    assert all(graph_size(graph_size(num)) == graph_size(num) for num in range(1, 500))


def test_on_the_cpu_rows_are_computed_as_they_are() -> None:
    """Nothing is added, and dtypes stay."""
    column, rows = np.arange(12.0).reshape(6, 2), np.array([4, 1, 4])
    double, first = Direct(lambda of: (2 * of["x"], of["x"][:, 0]))({"x": (column, rows)})
    np.testing.assert_array_equal(double, 2 * column[rows])
    np.testing.assert_array_equal(first, column[rows, 0])
    assert torch.from_numpy(double).dtype == torch.float64
