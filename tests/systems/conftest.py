"""Tests of systems compute on one thread.

Threads that wait for each other within tiny operations take several times what the operations do, and far more where
other programs use the cores too.
"""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
