from __future__ import annotations

import numpy as np
import pytest
import torch

from rlbench.harness.metering.meter import RankMeter
from rlbench.systems.choices.average import Elastic, moving_rate
from rlbench.systems.engine.averaging.asynchronous import FINAL
from tests.systems.engine.averaging.offices import Quadratic, open_averagers, sgd

RATE = 0.05
CURVATURE = [1.0, 3.0]


class Transcription:
    """Algorithm 4, line by line; its client i may take one turn of its loop at a time. No momentum: mu = 0."""

    def __init__(self, num_clients: int, start: list[float], tau: int, beta: float) -> None:
        self.centre = list(start)
        self.theta = [list(start) for _ in range(num_clients)]
        self.t = [0] * num_clients
        self.tau, self.beta = tau, beta

    def turn(self, i: int, noise: list[float]) -> None:
        """One turn of client i's loop, and of the server's when they exchange."""
        theta, dimensions = self.theta[i], range(len(self.centre))
        if self.t[i] > 0 and self.t[i] % self.tau == 0:
            received = list(self.centre)
            sent = [self.beta * (theta[k] - received[k]) for k in dimensions]
            for k in dimensions:
                theta[k] = theta[k] - self.beta * (theta[k] - received[k])
                self.centre[k] = self.centre[k] + sent[k]
        for k in dimensions:
            theta[k] += -RATE * (CURVATURE[k] * theta[k] + noise[k])
        self.t[i] += 1


@pytest.mark.parametrize("tau", [1, 3])
@pytest.mark.parametrize("num_ranks", [1, 3])
def test_it_is_algorithm_4(tau: int, num_ranks: int, meter: RankMeter) -> None:
    """Ranks and centre go, in any order of the ranks' turns, where a slow transcription of Algorithm 4 goes."""
    policies = [Quadratic([2.0, -1.0], CURVATURE) for _ in range(num_ranks)]
    averagers, _ = open_averagers(Elastic(interval=tau, beta=0.3), policies, meter)
    optimizers = [sgd(policy, RATE) for policy in policies]
    slow = Transcription(num_ranks, [2.0, -1.0], tau, 0.3)
    generator = np.random.default_rng(1)
    for _ in range(40 * num_ranks):
        rank, noise = int(generator.integers(num_ranks)), generator.normal(size=2)
        policies[rank].update(averagers[rank], optimizers[rank], torch.from_numpy(noise))
        slow.turn(rank, noise.tolist())
        for policy, theta in zip(policies, slow.theta, strict=True):
            assert policy.theta.tolist() == pytest.approx(theta, rel=1e-11)
    for averager in averagers[1:]:
        averager._enter(FINAL)  # type: ignore[attr-defined]  # in one process they cannot all wait for each other
    assert averagers[0].final_policy()
    assert policies[0].theta.tolist() == pytest.approx(slow.centre, rel=1e-11)


def test_the_moving_rate_of_the_dissertation() -> None:
    """Beta is 0.8 / ranks unless it is set."""
    assert moving_rate(Elastic().beta, 8) == pytest.approx(0.1)
    assert moving_rate(0.3, 8) == 0.3


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"interval": 0}, "average.interval=0: must be at least 1"),
        ({"beta": -0.1}, "average.beta=-0.1: must be above 0 and at most 1, or 0 for 0.8 / ranks"),
        ({"beta": 1.1}, "average.beta=1.1: must be above 0 and at most 1, or 0 for 0.8 / ranks"),
        ({"seconds": -1.0}, "average.seconds=-1.0: must be above 0"),
    ],
)
def test_wrong_settings_are_refused(fields: dict[str, float], rule: str) -> None:
    """A setting that cannot be is refused with its rule."""
    with pytest.raises(ValueError, match=r"^average\.") as caught:
        Elastic(**fields)  # type: ignore[arg-type]
    assert str(caught.value) == rule


def test_a_rank_goes_on_without_an_answer(meter: RankMeter) -> None:
    """When no answer comes in time a rank keeps its own weights, and exchanges again the next time; it is counted."""
    policies = [Quadratic([2.0], [1.0]), Quadratic([2.0], [0.0])]
    averagers, office = open_averagers(Elastic(beta=0.5), policies, meter)
    optimizer = sgd(policies[1], RATE)
    policies[1].update(averagers[1], optimizer, 20.0)
    assert policies[1].theta.item() == pytest.approx(1.0)
    office.desks[1].lost_answers = 1
    policies[1].update(averagers[1], optimizer)
    assert policies[1].theta.item() == pytest.approx(1.0)
    assert averagers[1].statistics()["messages_lost_fraction"] == 1
    policies[1].update(averagers[1], optimizer)
    assert policies[1].theta.item() == pytest.approx(1.0 + 0.5 * (1.5 - 1.0))
    assert averagers[1].statistics()["messages_lost_fraction"] == 0.5


def test_without_rank_0_the_run_ends(meter: RankMeter) -> None:
    """A rank that finds the centre's host gone raises and names it, in an exchange and when progress is agreed on."""
    policies = [Quadratic([2.0], [1.0]) for _ in range(2)]
    averagers, office = open_averagers(Elastic(), policies, meter)
    optimizer = sgd(policies[1], RATE)
    policies[1].update(averagers[1], optimizer)
    office.desks[1].gone, office.desks[1].lost_answers = frozenset({0}), 2
    for act in (averagers[1].begin_update, lambda: averagers[1].agree(np.zeros(2), 2)):
        with pytest.raises(RuntimeError, match=r"^the parameter server \(rank 0\) is gone$"):
            act()
