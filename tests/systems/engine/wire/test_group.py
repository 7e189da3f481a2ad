from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from rlbench.harness.contract.device import Place
from rlbench.harness.contract.settings import LearnSettings
from rlbench.systems.engine.wire.group import Group
from rlbench.systems.learn.batch import Batch
from rlbench.systems.learn.ppo import ppo_loss
from rlbench.systems.learn.sequences import Sequence, pack
from rlbench.systems.policies.policy import Policy, build_policy
from tests.systems.actions import choices
from tests.systems.engine.ranks import run_ranks
from tests.systems.learn.rollouts import play, sharpen, space

NUM_STEPS, NUM_ENVS, SHORT = 16, 8, 4
SETTINGS = LearnSettings()


def experience(num_steps: int = NUM_STEPS) -> tuple[Policy, Batch]:
    """The same policy, and the same experience of 8 environments, whoever calls it."""
    policy = sharpen(build_policy("small", space(), choices(4), seed=0).double())
    return policy, play(policy, space(), num_steps=num_steps, num_envs=NUM_ENVS, settings=SETTINGS)


def gradient(policy: Policy, batch: Batch, sequences: list[Sequence]) -> list[torch.Tensor]:
    """Of the loss on some of the experience; they stay in the policy."""
    policy.zero_grad()
    loss, _ = ppo_loss(policy, batch, pack(sequences), SETTINGS)
    torch.autograd.backward(loss)
    return [parameter.grad.clone() for parameter in policy.parameters() if parameter.grad is not None]


def half(batch: Batch, rank: int) -> list[Sequence]:
    """The sequences of the environments that a rank has: 4 of the 8."""
    return [sequence for sequence in batch.sequences if sequence.env // (NUM_ENVS // 2) == rank]


def average(folder: Path) -> None:
    """On each of 2 ranks: gradients of its half of the experience, averaged; whole, and with a short rollout."""
    place = Place.from_environment()
    group = Group(place)
    found: dict[str, list[torch.Tensor]] = {}
    for name, num_steps in (("whole", NUM_STEPS), ("short", SHORT if place.rank == 1 else NUM_STEPS)):
        policy, batch = experience(num_steps)
        gradient(policy, batch, half(batch, place.rank))
        group.average_gradients(policy.parameters())
        found[name] = [parameter.grad for parameter in policy.parameters() if parameter.grad is not None]
    torch.save(found, folder / f"gradients-{place.rank}.pt")
    weights = torch.full((3,), 5.0 + place.rank)
    group.broadcast([torch.nn.Parameter(weights)])
    counts = {
        "gather": group.gather(np.array([7.0 + place.rank, 3.0])).tolist(),
        "sum": group.sum(np.array([1.5, 10.0 * place.rank])).tolist(),
        "broadcast": weights.tolist(),
        "add": group.add("count", 1 + place.rank),
    }
    group.sum(np.zeros(1))
    counts["total"] = group.add("count", 0)
    group.sum(np.zeros(1))
    if place.rank == 0:
        group.delete("count")
    group.sum(np.zeros(1))
    counts["deleted"] = group.add("count", 0)
    (folder / f"counts-{place.rank}.json").write_text(json.dumps(counts))
    group.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two ranks have found."""
    folder = tmp_path_factory.mktemp("group")
    run_ranks(average, 2, folder)
    return folder


def assert_equal(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> None:
    """To the rounding of double precision."""
    assert len(ours) == len(theirs) > 5
    for gradient, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-9, atol=1e-12)
        assert gradient.any()


def test_two_ranks_have_the_gradient_of_one(folder: Path) -> None:
    """The same experience, split over 2 ranks x 4 environments, gives the gradient of 1 rank x 8, to rounding."""
    policy, batch = experience()
    expected = gradient(policy, batch, list(batch.sequences))
    for rank in range(2):
        assert_equal(torch.load(folder / f"gradients-{rank}.pt")["whole"], expected)


def test_ranks_weigh_the_same(folder: Path) -> None:
    """Every rank weighs the same however short its rollout: the mean of the ranks' gradients, not of the samples'."""
    parts = []
    for rank, num_steps in ((0, NUM_STEPS), (1, SHORT)):
        policy, batch = experience(num_steps)
        parts.append(gradient(policy, batch, half(batch, rank)))
    expected = [(first + second) / 2 for first, second in zip(*parts, strict=True)]
    for rank in range(2):
        assert_equal(torch.load(folder / f"gradients-{rank}.pt")["short"], expected)


@pytest.mark.parametrize("rank", [0, 1])
def test_sums_counters_and_weights(folder: Path, rank: int) -> None:
    """Sums are over all ranks, rows stand in their order, weights are rank 0's, counters begin at 0 when deleted."""
    counts = json.loads((folder / f"counts-{rank}.json").read_text())
    assert counts["gather"] == [[7.0, 3.0], [8.0, 3.0]]
    assert counts["sum"] == [3.0, 10.0]
    assert counts["broadcast"] == [5.0, 5.0, 5.0]
    assert counts["add"] in {1 + rank, 3}
    assert (counts["total"], counts["deleted"]) == (3, 0)


def test_one_rank_needs_no_connection() -> None:
    """Alone, a rank has the same calls without any variable of torchrun's."""
    group = Group(Place(rank=0, num_ranks=1, local_rank=0))
    assert [group.add("count", 2), group.add("count", 3)] == [2, 5]
    group.delete("count")
    group.delete("count")
    assert group.add("count", 0) == 0
    assert group.sum(np.array([1.0, 2.0])).tolist() == [1.0, 2.0]
    policy, batch = experience()
    expected = gradient(policy, batch, list(batch.sequences))
    group.average_gradients(policy.parameters())
    assert_equal([parameter.grad for parameter in policy.parameters() if parameter.grad is not None], expected)
    group.close()
