from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from torch import Tensor

from rlbench.harness.contract.settings import LearnSettings
from rlbench.harness.plan import registry
from rlbench.systems.learn.batch import Batch, make_batch
from rlbench.systems.learn.optimizers import make_optimizer
from rlbench.systems.learn.ppo import update
from rlbench.systems.learn.sequences import fixed_runs, pack
from rlbench.systems.policies.policy import Policy, build_policy
from rlbench.systems.spaces.actions import ActionLayout
from rlbench.systems.spaces.observations import leaves_of

from .spaces_of_systems import (
    ACTIONS,
    BEGIN,
    END,
    EXTERNAL,
    HWC,
    OBSERVATIONS,
    OURS,
    PAGE,
    PIXELS,
    VECTOR,
    Given,
    Space,
    columns,
    pairs_for,
    refusal,
    tables,
    why_not,
)

ALL = (*registry.names(registry.SYSTEMS), *registry.names(EXTERNAL))
OF_OURS = {row + str(number): spaces for number, (row, *spaces) in enumerate(pairs_for("sync"))}
WORKING = {row: spaces for row, spaces in OF_OURS.items() if why_not("sync", *spaces) is None}
NUM_ENVS, NUM_STEPS = 4, 3


def observed(space: Space, num: int) -> dict[str, Tensor]:
    """`num` random observations, by the keys of the leaves."""
    samples = [space.sample() for _ in range(num)]
    return {
        leaf.key: torch.from_numpy(np.stack([np.asarray(leaf.read(sample), leaf.dtype) for sample in samples]))
        for leaf in leaves_of(space)
    }


def play(policy: Policy, observation_space: Space, action_space: Space) -> Batch:
    """A rollout [T, N], of which every action lies in the space; rewards are random and one episode ends."""
    generator = torch.Generator().manual_seed(1)
    layout = policy.actions
    state, starts = policy.initial_state(NUM_ENVS), torch.ones(NUM_ENVS, dtype=torch.bool)
    prev_actions = torch.from_numpy(np.zeros((NUM_ENVS, layout.size), layout.dtype))
    seen: list[Mapping[str, Tensor]] = []
    rows: list[tuple[Tensor, ...]] = []
    for _ in range(NUM_STEPS):
        obs = observed(observation_space, NUM_ENVS)
        actions, log_probs, values, after = policy.act(obs, prev_actions, starts, state, generator)
        assert all(action_space.contains(layout.to_env(row)) for row in actions.numpy())
        seen.append(obs)
        rows.append((state, actions, prev_actions, starts, log_probs, values))
        prev_actions, starts, state = actions, torch.zeros_like(starts), after
    states, actions, prev_actions, starts, log_probs, values = (torch.cat(column) for column in zip(*rows, strict=True))
    nowhere = torch.zeros(NUM_STEPS * NUM_ENVS, dtype=torch.bool)
    return make_batch(
        runs=fixed_runs(NUM_STEPS, NUM_ENVS),
        envs=range(NUM_ENVS),
        states=states,
        obs={key: torch.cat([obs[key] for obs in seen]) for key in seen[0]},
        actions=actions,
        prev_actions=prev_actions,
        starts=starts,
        log_probs=log_probs,
        values=values,
        rewards=torch.randn(NUM_STEPS * NUM_ENVS, generator=generator),
        terminated=nowhere,
        truncated=nowhere,
        bootstrap=torch.zeros(NUM_STEPS * NUM_ENVS),
        steps_per_env=NUM_STEPS,
        settings=LearnSettings(),
    )


def test_the_page_says_what_the_systems_say() -> None:
    """If not, paste what follows between the marks, or `python -m tests.systems.spaces_of_systems` writes it."""
    stands = PAGE.read_text(encoding="utf-8").partition(f"{BEGIN}\n")[2].partition(f"\n{END}")[0]
    assert stands == tables(), f"docs/scenarios.md must have between its marks:\n\n{tables()}"


def test_ours_take_the_same_and_all_that_has_a_size() -> None:
    """One column for all ten; only the rows of `Text` are refused."""
    of_systems = columns()
    assert len(WORKING) == len(ACTIONS) + len(OBSERVATIONS) - 2
    assert [reason is None for reason in of_systems[OURS]] == [row in WORKING for row in OF_OURS]
    assert sum(len(heading.split(", ")) for heading in of_systems if heading != OURS) == len(registry.names(EXTERNAL))


@pytest.mark.parametrize("name", ALL)
def test_planning_refuses_what_the_table_refuses(name: str) -> None:
    """`check` takes a scenario of each row that works, and gives the table's reason, in one line, for all others."""
    for row, observation_space, action_space in pairs_for(name):
        reason = why_not(name, observation_space, action_space)
        said = refusal(name, Given(observation_space=observation_space, action_space=action_space))
        if reason is None:
            assert said is None, row
        else:
            assert (said or "").startswith(f"{name} on given: {reason}"), row
            assert "\n" not in (said or ""), row


@pytest.mark.parametrize("row", WORKING)
def test_what_works_is_played_and_learned_from(row: str) -> None:
    """Policy `auto` acts within the space and takes one optimiser step, after which its weights differ and are finite.

    All systems of ours have this policy and this loss.
    """
    observation_space, action_space = WORKING[row]
    observation_space.seed(0)
    policy = build_policy("auto", observation_space, ActionLayout.of(action_space), seed=0)
    batch = play(policy, observation_space, action_space)
    before = {name: parameter.clone() for name, parameter in policy.named_parameters()}
    settings = LearnSettings()
    update(policy, make_optimizer(policy.parameters(), settings), batch, pack(batch.sequences), settings)
    after = dict(policy.named_parameters())
    assert all(parameter.isfinite().all() for parameter in after.values())
    heads = [name for name in after if name.startswith(("policy_head", "value_head"))]
    assert all(not torch.equal(before[name], after[name]) for name in heads)


@pytest.mark.parametrize(
    ("spaces", "settings", "why"),
    [
        ((VECTOR, Discrete(2)), {"policy": "conv"}, "policy conv: must have 'pixels' or 'depth' or another image"),
        ((HWC, Discrete(2)), {"policy": "small"}, None),
        ((Box(0, 255, (40, 40, 3), np.uint8), Discrete(2)), {"policy": "nature"}, None),
        (
            (Box(0, 255, (40, 40, 3), np.uint8), Discrete(2)),
            {"policy": "resnet"},
            "policy resnet: images must be at least 64x64, are 40x40",
        ),
        (
            (Dict({"near": HWC, "far": PIXELS["pixels"]}), Discrete(2)),
            {"policy": "small"},
            "policy small: 'far' and 'near' must have one size",
        ),
        ((Box(0, 255, (40, 40, 40), np.uint8), Discrete(2)), {}, "does not show where the channels are"),
        ((Box(0, 255, (40, 40, 40), np.uint8), Discrete(2)), {"image_order": "chw"}, None),
        ((VECTOR, Discrete(2)), {"image_order": "whc"}, "image_order=whc: unknown; must be one of: auto, hwc, chw"),
        ((VECTOR, Box(-np.inf, np.inf, (2,))), {"action_bounds": "tanh"}, "action bounds tanh need a finite low"),
        ((VECTOR, Box(-1, 1, (2,))), {"action_bounds": "tanh", "action_std": "learned"}, None),
        ((VECTOR, Box(-1, 1, (2,))), {"action_std": "none"}, "action_std=none: unknown; must be one of: shared, lea"),
    ],
)
def test_planning_refuses_what_ours_cannot_play(
    spaces: tuple[Space, Space], settings: Mapping[str, Any], why: str | None
) -> None:
    """A network that does not read the observations, bounds, deviations, order of images: one line before any rank."""
    given = replace(Given(observation_space=spaces[0], action_space=spaces[1]), **settings)
    said = refusal("ver", given)
    if why is None:
        assert said is None
        return
    assert (said or "").startswith("ver on given: ")
    assert why in (said or "")
    assert "\n" not in (said or "")
