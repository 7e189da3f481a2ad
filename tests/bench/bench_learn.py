"""Times of the policies, on one thread: `pytest tests/bench/bench_learn.py`; the sizes are in the names."""

from __future__ import annotations

from collections.abc import Iterator

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict
from pytest_benchmark.fixture import BenchmarkFixture
from torch import Tensor

from systems.learn.policy import build_policy
from systems.learn.sequences import cut_sequences, fixed_runs, pack

GOAL = Box(-np.inf, np.inf, (3,), np.float32)
CASES = {
    "small-vectors": ("small", Dict({"goal": GOAL}), 1024),
    "small-depth64": ("small", Dict({"goal": GOAL, "depth": Box(0, 10, (1, 64, 64), np.float32)}), 1024),
    "conv-rgb72x128": ("conv", Dict({"pixels": Box(0, 255, (3, 72, 128), np.uint8)}), 128),
    "resnet-depth256": ("resnet", Dict({"goal": GOAL, "depth": Box(0, 10, (1, 256, 256), np.float32)}), 16),
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Runs torch on one thread, as ranks that share a CPU do."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def zeros(of: gymnasium.spaces.Dict, num: int) -> dict[str, Tensor]:
    """Observations; what is in them does not change the time."""
    return {key: torch.from_numpy(np.zeros((num, *(box.shape or ())), box.dtype)) for key, box in of.spaces.items()}


@pytest.mark.parametrize("case", CASES)
def test_act_16(benchmark: BenchmarkFixture, case: str) -> None:
    """One action for each of 16 environments."""
    kind, of, _ = CASES[case]
    policy = build_policy(kind, of, 4, seed=0)
    obs, prev_actions, state = zeros(of, 16), torch.zeros(16, dtype=torch.int64), policy.initial_state(16)
    benchmark(policy.act, obs, prev_actions, state, torch.Generator())


@pytest.mark.parametrize("case", CASES)
def test_evaluate_backward(benchmark: BenchmarkFixture, case: str) -> None:
    """Loss-like sum and its gradient over 8 environments: 1024 samples (small), 128 (conv), 16 (resnet)."""
    kind, of, num = CASES[case]
    policy = build_policy(kind, of, 4, seed=0)
    obs, actions = zeros(of, num), torch.zeros(num, dtype=torch.int64)
    packed = pack(cut_sequences(fixed_runs(num // 8, 8), range(8), np.zeros(num, np.bool_), policy.initial_state(num)))

    def evaluate_backward() -> None:
        log_probs, entropies, values = policy.evaluate(obs, actions, packed.batch_sizes, packed.states, actions)
        torch.autograd.backward((log_probs + entropies + values).sum())

    benchmark(evaluate_backward)
