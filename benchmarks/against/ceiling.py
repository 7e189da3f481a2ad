"""The speed that no system that simulates, infers and learns on the same cores can exceed.

Each env step must be simulated, inferred once and learned once. With all cores on one of the three at a time, an env
step takes 1/simulation + inference + training seconds. A system that overlaps them shares the same cores, so the
inverse is a ceiling, provided that each of the three uses the cores fully when it has them alone.

Letters: T steps of a sequence, K sequences.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import torch

from rlbench.harness.contract.scenario import Scenario
from rlbench.systems.policies.policy import Policy, policy_of
from rlbench.systems.spaces.observations import leaves_of
from tests.systems.actions import no_action

NUM_UPDATES = 5
NUM_INFERENCES = 100
NUM_WARM_UP = 2
"""Calls that are not counted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """What one env step costs when all cores do nothing else."""

    simulation_steps_per_s: float
    infer_s: float
    train_s: float

    @property
    def ceiling_steps_per_s(self) -> float:
        """Env steps per second."""
        return 1 / (1 / self.simulation_steps_per_s + self.infer_s + self.train_s)

    def __str__(self) -> str:
        return (
            f"simulation {self.simulation_steps_per_s:,.0f} env steps/s, inference {self.infer_s * 1e3:.2f} ms, "
            f"training {self.train_s * 1e3:.2f} ms a sample: ceiling {self.ceiling_steps_per_s:,.0f} env steps/s"
        )


def _median_s(work: Callable[[], object], num_calls: int) -> float:
    times = []
    for _ in range(NUM_WARM_UP + num_calls):
        begin = perf_counter()
        work()
        times.append(perf_counter() - begin)
    return median(times[NUM_WARM_UP:])


def _random_observations(scenario: Scenario, num: int) -> dict[str, torch.Tensor]:
    space = scenario.observation_space
    space.seed(0)
    samples = [space.sample() for _ in range(min(num, 16))]  # a few, repeated: what is in them does not matter
    rows = [samples[i % len(samples)] for i in range(num)]
    return {leaf.key: torch.stack([torch.as_tensor(leaf.read(row)) for row in rows]) for leaf in leaves_of(space)}


def infer_s(scenario: Scenario, num_envs: int, num_threads: int) -> float:
    """Seconds per sample of the scenario's policy, `num_envs` at a time, on the CPU."""
    torch.set_num_threads(num_threads)
    policy = policy_of(scenario, seed=0)
    obs, previous = _random_observations(scenario, num_envs), no_action(num_envs)
    state, generator = policy.initial_state(num_envs), torch.Generator()
    return _median_s(lambda: policy.act(obs, *previous, state, generator), NUM_INFERENCES) / num_envs


def train_s(scenario: Scenario, batch_size: int, num_steps: int, num_threads: int) -> float:
    """Seconds per sample of one update of the scenario's policy on the CPU, without fetching the batch.

    Args:
        scenario: its policy and learning settings.
        batch_size: K * T samples of the update.
        num_steps: T; no episode ends inside a sequence.
        num_threads: threads of torch.
    """
    torch.set_num_threads(num_threads)
    policy = policy_of(scenario, seed=0)
    optimizer = torch.optim.Adam(policy.parameters(), lr=scenario.learn.learning_rate)
    obs, zeros = _random_observations(scenario, batch_size), torch.zeros(batch_size, 1, dtype=torch.int64)
    states = policy.initial_state(batch_size // num_steps)
    sizes = torch.full((num_steps,), batch_size // num_steps)
    return _median_s(lambda: _update(policy, optimizer, obs, zeros, sizes, states, scenario), NUM_UPDATES) / batch_size


def _update(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    obs: dict[str, torch.Tensor],
    actions: torch.Tensor,
    batch_sizes: torch.Tensor,
    states: torch.Tensor,
    scenario: Scenario,
) -> None:
    """One optimiser step on PPO's loss with made-up advantages and returns of 1."""
    optimizer.zero_grad(set_to_none=True)
    log_probs, entropies, values = policy.evaluate(
        obs, actions, torch.zeros(len(actions), dtype=torch.bool), batch_sizes, states, actions
    )
    ratios = (log_probs - log_probs.detach()).exp()
    clipped = torch.minimum(ratios, ratios.clamp(1 - scenario.learn.clip, 1 + scenario.learn.clip))
    torch.autograd.backward((0.5 * (values - 1).square() - clipped - 0.01 * entropies).mean())
    torch.nn.utils.clip_grad_norm_(policy.parameters(), scenario.learn.max_grad_norm)
    optimizer.step()
