"""Statistics of observations go where weights go, and nothing takes them for weights that are learned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from rlbench.harness.contract.device import Place
from rlbench.harness.metering.meter import RankMeter
from rlbench.systems.choices.average import AverageChoice, Elastic, Gossip, ParameterServer
from rlbench.systems.engine.averaging.asynchronous import FINAL, AsynchronousRank
from rlbench.systems.engine.wire.group import Group
from rlbench.systems.learn.sequences import fixed_runs
from rlbench.systems.policies.normalizing import Normalizer, RewardScale
from tests.systems.engine.averaging.offices import Observing, open_averagers, sgd
from tests.systems.engine.ranks import run_ranks

RATE = 0.1
ASYNCHRONOUS = (Gossip(), Gossip(mode="push"), Gossip(order="stale"), Elastic(), ParameterServer())


def pair() -> list[Observing]:
    """Two policies whose ranks have observed different things."""
    policies = [Observing([2.0, -1.0], [1.0, 3.0]) for _ in range(2)]
    policies[0].have(4.0, 9.0)
    policies[1].have(8.0, 1.0)
    return policies


def enter_final(averager: object) -> None:
    """In one process ranks cannot wait for each other."""
    assert isinstance(averager, AsynchronousRank)
    averager._enter(FINAL)


@pytest.mark.parametrize("choice", ASYNCHRONOUS, ids=repr)
def test_ranks_that_do_not_wait_keep_their_own(choice: AverageChoice, meter: RankMeter) -> None:
    """Through every exchange, whatever becomes of the weights: mixed in between, samples would be read anew."""
    policies = pair()
    averagers, _ = open_averagers(choice, policies, meter)
    optimizers = [sgd(policy, RATE) for policy in policies]
    before = policies[1].theta.tolist()
    for rank in (0, 1, 1, 0, 1, 0, 1, 1):
        policies[rank].update(averagers[rank], optimizers[rank])
        assert [policy.statistics for policy in policies] == [[4.0, 9.0], [8.0, 1.0]]
    assert policies[1].theta.tolist() != before


@pytest.mark.parametrize("choice", [Gossip(), Elastic(), ParameterServer()], ids=repr)
def test_the_policy_that_is_left_has_those_of_the_rank_that_leaves_it(choice: AverageChoice, meter: RankMeter) -> None:
    """The mean of the ranks' variances would not hold what lies between their means."""
    policies = pair()
    averagers, _ = open_averagers(choice, policies, meter)
    averagers[1]._mailbox.publish("final", averagers[1]._weights.get().numpy().tobytes())  # type: ignore[attr-defined]
    enter_final(averagers[1])
    assert averagers[0].final_policy()
    assert policies[0].statistics == [4.0, 9.0]


@pytest.mark.parametrize("choice", ASYNCHRONOUS, ids=lambda choice: type(choice).__name__)
def test_weights_go_as_without_statistics(choice: AverageChoice, meter: RankMeter) -> None:
    """To the bit, for every way to average."""
    found = []
    for has_statistics in (False, True):
        policies = pair() if has_statistics else [Observing([2.0, -1.0], [1.0, 3.0]) for _ in range(2)]
        if not has_statistics:
            for policy in policies:
                del policy.normalizer
        averagers, _ = open_averagers(choice, policies, meter)
        optimizers = [sgd(policy, RATE) for policy in policies]
        generator = np.random.default_rng(0)
        for number in range(30):
            noise = torch.from_numpy(generator.normal(size=2))
            policies[number % 2].update(averagers[number % 2], optimizers[number % 2], noise)
        found.append([policy.theta.tolist() for policy in policies])
    assert found[0] == found[1]


def test_they_are_no_distance_between_weights(meter: RankMeter) -> None:
    """Ranks with equal weights have no consensus distance, whatever they have observed."""
    policies = pair()
    averagers, _ = open_averagers(Gossip(), policies, meter)
    for averager in (*averagers, averagers[0]):
        averager.agree(np.zeros(1), 1)
    assert averagers[0].statistics()["consensus_distance"] == 0
    with torch.no_grad():
        policies[1].theta[0] += 1
    for averager in (averagers[1], averagers[0]):
        averager.agree(np.zeros(1), 1)
    assert averagers[0].statistics()["consensus_distance"] == pytest.approx(0.5)


def observe_halves(folder: Path) -> None:
    """On each of 2 ranks: statistics from rank 0, then of its half of the observations and rewards, added up."""
    place = Place.from_environment()
    group = Group(place)
    normalizer, scale = Normalizer(3), RewardScale(0.9)
    with torch.no_grad():
        normalizer.mean.fill_(5.0 + place.rank)
    group.broadcast(normalizer.parameters())
    assert (normalizer.mean == 5).all()
    for part in range(2):
        x = halves(part)[place.rank]
        normalizer.observe(x)
        normalizer.apply_observed(group.sum_moments)
        scaled = scale.scale(x[:, 0], x[:, 1] > 1, fixed_runs(10, 4), range(4), group.sum_moments)
    torch.save([normalizer.mean, normalizer.variance, scale.moments.variance, scaled], folder / f"{place.rank}.pt")
    group.close()


def halves(part: int) -> list[torch.Tensor]:
    """What 2 ranks observe, [40, 3] each."""
    generator = torch.Generator().manual_seed(part)
    return list(3 + 2 * torch.randn(2, 40, 3, generator=generator))


def test_ranks_of_an_all_reduce_have_equal_ones(tmp_path: Path) -> None:
    """In two processes: to the bit, and those of one rank that has observed everything."""
    run_ranks(observe_halves, 2, tmp_path)
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first[:3], second[:3], strict=True))
    alone = Normalizer(3)
    alone.observe(torch.cat([x for part in range(2) for x in halves(part)]))
    alone.apply_observed()
    torch.testing.assert_close(first[:2], [alone.mean, alone.variance], rtol=1e-6, atol=0)
    assert not torch.equal(first[3], second[3])
