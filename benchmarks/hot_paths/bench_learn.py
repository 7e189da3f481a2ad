"""Times the policies: `pytest benchmarks/hot_paths/bench_learn.py`; the sizes are in the names.

Torch runs on one thread, as in ranks that share a CPU; on two for Sample Factory's workload, as on an idle machine with
two cores.
"""

from __future__ import annotations

from collections.abc import Iterator

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict
from pytest_benchmark.fixture import BenchmarkFixture
from torch import Tensor

from rlbench.harness.contract.settings import LearnSettings
from rlbench.systems.learn.batch import make_batch
from rlbench.systems.learn.optimizers import make_optimizer
from rlbench.systems.learn.ppo import update
from rlbench.systems.learn.sequences import cut_sequences, fixed_runs, pack
from rlbench.systems.policies.policy import build_policy
from tests.systems.actions import choices, no_action

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
    """Observations of zeros; their values do not change the time."""
    return {key: torch.from_numpy(np.zeros((num, *(box.shape or ())), box.dtype)) for key, box in of.spaces.items()}


@pytest.mark.parametrize("case", CASES)
def test_act_16(benchmark: BenchmarkFixture, case: str) -> None:
    """One action for each of 16 environments."""
    kind, of, _ = CASES[case]
    policy = build_policy(kind, of, choices(4), seed=0)
    obs, before, state = zeros(of, 16), no_action(16), policy.initial_state(16)
    benchmark(policy.act, obs, *before, state, torch.Generator())


@pytest.mark.parametrize("case", CASES)
def test_evaluate_backward(benchmark: BenchmarkFixture, case: str) -> None:
    """Loss-like sum and its gradient over 8 environments: 1024 samples (small), 128 (conv), 16 (resnet)."""
    kind, of, num = CASES[case]
    policy = build_policy(kind, of, choices(4), seed=0)
    obs, actions, starts = zeros(of, num), torch.zeros(num, 1, dtype=torch.int64), torch.zeros(num, dtype=torch.bool)
    packed = pack(cut_sequences(fixed_runs(num // 8, 8), range(8), np.zeros(num, np.bool_), policy.initial_state(num)))

    def evaluate_backward() -> None:
        log_probs, entropies, values = policy.evaluate(obs, actions, starts, packed.batch_sizes, packed.states, actions)
        torch.autograd.backward((log_probs + entropies + values).sum())

    benchmark(evaluate_backward)


@pytest.fixture
def two_threads(one_thread: None) -> None:  # noqa: ARG001  # it puts the number of threads back
    """Runs torch on two threads."""
    torch.set_num_threads(2)


@pytest.mark.usefixtures("two_threads")
def test_act_16_on_two_threads(benchmark: BenchmarkFixture) -> None:
    """One action for each of 16 environments, 3x72x128 pixels."""
    kind, of, _ = CASES["conv-rgb72x128"]
    policy = build_policy(kind, of, choices(4), seed=0)
    obs, before, state = zeros(of, 16), no_action(16), policy.initial_state(16)
    benchmark(policy.act, obs, *before, state, torch.Generator())
    print_per_sample(benchmark, 16)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("episode_steps", [0, 40], ids=["one-episode", "episodes-of-40"])
def test_update_2048_on_two_threads(benchmark: BenchmarkFixture, episode_steps: int) -> None:
    """One update of Sample Factory's batch, with V-trace: 64 runs of 32 steps, 3x72x128 pixels, 2048 samples."""
    num_steps, num_envs = 32, 64
    num = num_steps * num_envs
    kind, of, _ = CASES["conv-rgb72x128"]
    policy = build_policy(kind, of, choices(4), seed=0)
    settings = LearnSettings(correct="vtrace", clip=0.1, clip_low=1 / 1.1, learning_rate=1e-4, adam_eps=1e-6)
    clock = np.add.outer(np.arange(num_steps), 7 * np.arange(num_envs)).ravel()  # environments out of step
    starts = clock % episode_steps == 0 if episode_steps else np.zeros(num, np.bool_)
    flat, never = torch.zeros(num), torch.zeros(num, dtype=torch.bool)
    batch = make_batch(
        runs=fixed_runs(num_steps, num_envs),
        envs=range(num_envs),
        states=policy.initial_state(num),
        obs=zeros(of, num),
        actions=torch.zeros(num, 1, dtype=torch.int64),
        prev_actions=torch.zeros(len(starts), 1, dtype=torch.int64),
        starts=torch.from_numpy(starts),
        log_probs=flat - 1.4,
        values=flat,
        rewards=flat + 1,
        terminated=never,
        truncated=never,
        bootstrap=flat,
        steps_per_env=num_steps,
        settings=settings,
    )
    optimizer, packed = make_optimizer(policy.parameters(), settings), pack(batch.sequences)
    benchmark(update, policy, optimizer, batch, packed, settings)
    print_per_sample(benchmark, num)


def print_per_sample(benchmark: BenchmarkFixture, num: int) -> None:
    """Prints the median and the shortest time of a sample."""
    assert benchmark.stats is not None
    times = benchmark.stats.stats
    print(f"  {1e3 * times.median / num:.3f} ms a sample (least {1e3 * times.min / num:.3f})")
