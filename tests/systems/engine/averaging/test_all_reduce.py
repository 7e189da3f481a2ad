from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rlbench.harness.contract.device import Place
from rlbench.harness.contract.settings import NORMALIZED, LearnSettings
from rlbench.systems.choices.average import AllReduce, Elastic, Gossip, ParameterServer
from rlbench.systems.engine.averaging.averager import Averager
from rlbench.systems.engine.averaging.opening import open_averager
from rlbench.systems.engine.wire.group import Group
from rlbench.systems.learn.optimizers import make_optimizer
from rlbench.systems.learn.ppo import update
from rlbench.systems.learn.sequences import pack
from rlbench.systems.policies.policy import build_policy
from tests.systems.actions import choices
from tests.systems.engine.averaging.offices import ALONE, Quadratic, meter_in, sgd
from tests.systems.engine.ranks import run_ranks
from tests.systems.learn.rollouts import play, sharpen, space

CHOICES = (AllReduce(), Gossip(), Gossip(mode="push", order="stale"), Elastic(), ParameterServer())


def reduce_together(folder: Path) -> None:
    """On each of 2 ranks: an update, the barrier, progress and the end, and what the group alone gives for them."""
    place = Place.from_environment()
    group, meter = Group(place), meter_in(folder, place.rank)
    policy, twin = (torch.nn.Linear(7, 3) for _ in range(2))
    generator = torch.Generator().manual_seed(place.rank)
    averager = open_averager(AllReduce(), group, meter, policy, np.random.default_rng(0))
    for ours, theirs in zip(policy.parameters(), twin.parameters(), strict=True):
        ours.grad = torch.randn(ours.shape, generator=generator)
        theirs.grad = ours.grad.clone()
    averager.begin_update()
    averager.average_gradients(policy.parameters())
    averager.end_update()
    group.average_gradients(twin.parameters())
    found = {
        "broke off": [averager.wait_for_ranks(broke_off=broke_off) for broke_off in (False, place.rank == 1)],
        "gradients": [parameter.grad for parameter in policy.parameters()],
        "of group": [parameter.grad for parameter in twin.parameters()],
        "total": averager.agree(np.array([1.0, 10.0 + place.rank]), 2).tolist(),
        "over": [averager.is_over(own=False), averager.is_over(own=True)],
        "final": averager.final_policy(),
        "statistics": averager.statistics(),
    }
    torch.save(found, folder / f"found-{place.rank}.pt")
    averager.close()
    meter.close()


def test_all_reduce_is_what_the_group_does(tmp_path: Path) -> None:
    """Gradients are the group's means to the bit, progress its sum, the end the rank's own; rank 0 leaves weights."""
    run_ranks(reduce_together, 2, tmp_path)
    found = [torch.load(tmp_path / f"found-{rank}.pt") for rank in range(2)]
    for rank, each in enumerate(found):
        for ours, theirs, others in zip(each["gradients"], each["of group"], found[1 - rank]["gradients"], strict=True):
            assert torch.equal(ours, theirs)
            assert torch.equal(ours, others)
            assert ours.any()
        assert each["total"] == [2.0, 21.0]
        assert each["over"] == [False, True]
        assert each["final"] is (rank == 0)
        assert each["broke off"] == [False, True], "both hear what rank 1 says"
        assert each["statistics"] == {}


NUM_ENVS = 8
SPACE = space()


def update_halves(folder: Path) -> None:
    """On each of 2 ranks: an update on half of the environments, with advantages normalised in each way."""
    place = Place.from_environment()
    group, meter = Group(place), meter_in(folder, place.rank)
    for over in NORMALIZED:
        averager = open_averager(AllReduce(), group, meter, torch.nn.Linear(1, 1), np.random.default_rng(0))
        envs = range(place.rank * NUM_ENVS // 2, (place.rank + 1) * NUM_ENVS // 2)
        weights = weights_after_update(over, envs, averager)
        torch.save(weights, folder / f"{over}-{place.rank}.pt")
    group.close()
    meter.close()


def weights_after_update(over: str, envs: range, averager: Averager | None = None) -> torch.Tensor:
    """All weights after one plain gradient step on the samples of `envs`; rewards differ much between environments."""
    policy = sharpen(build_policy("small", SPACE, choices(4), seed=2).double())
    settings = LearnSettings(optimizer="sgd", momentum=0.0, learning_rate=1.0, normalize_advantages=over)
    batch = play(policy, SPACE, num_steps=12, num_envs=NUM_ENVS, settings=settings)
    uneven = torch.linspace(-3, 8, NUM_ENVS, dtype=torch.float64).repeat(12)
    batch = replace(batch, advantages=batch.advantages * uneven + uneven)
    packed = pack([sequence for sequence in batch.sequences if sequence.env in envs])
    optimizer = make_optimizer(policy.parameters(), settings)
    means = (averager.average_gradients, averager.sum_moments) if averager else ()
    update(policy, optimizer, batch, packed, replace(settings, max_grad_norm=1e9), *means)
    return torch.nn.utils.parameters_to_vector(policy.parameters()).detach()


def test_the_gradient_does_not_depend_on_the_number_of_ranks(tmp_path: Path) -> None:
    """One rank of 8 environments and two of 4 learn the same, unless each rank normalises its own advantages."""
    run_ranks(update_halves, 2, tmp_path)
    for over in NORMALIZED:
        alone = weights_after_update(over, range(NUM_ENVS))
        halves = [torch.load(tmp_path / f"{over}-{rank}.pt") for rank in range(2)]
        assert torch.equal(*halves)
        if over == "rank":
            assert not torch.allclose(halves[0], alone, rtol=1e-3, atol=1e-4)
        else:
            torch.testing.assert_close(halves[0], alone, rtol=1e-9, atol=1e-12)


def test_alone_every_way_has_one_rank(tmp_path: Path) -> None:
    """One rank alone agrees with itself at once, keeps its weights where it may, and leaves its policy."""
    meter = meter_in(tmp_path)
    for choice in CHOICES:
        policy = Quadratic([2.0], [1.0])
        averager: Averager = open_averager(choice, Group(ALONE), meter, policy, np.random.default_rng(0))
        optimizer = sgd(policy, 0.01)
        for _ in range(5):
            policy.update(averager, optimizer)
            assert [averager.wait_for_ranks(broke_off=broke_off) for broke_off in (False, True)] == [False, True]
            assert averager.agree(np.array([3.0, 4.0]), 2).tolist() == [3.0, 4.0]
            assert not averager.is_over(own=False)
        if not isinstance(choice, (Elastic, ParameterServer)):
            assert policy.theta.item() == pytest.approx(2.0 * 0.99**5, rel=1e-12)
        assert averager.is_over(own=True)
        assert averager.final_policy()
        averager.close()
    meter.close()
