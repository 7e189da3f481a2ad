from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from rlbench.harness.contract.device import Place
from rlbench.harness.metering.meter import RankMeter
from rlbench.systems.choices.average import ParameterServer
from rlbench.systems.engine.averaging.asynchronous import FINAL
from rlbench.systems.engine.averaging.averager import Averager
from rlbench.systems.engine.averaging.opening import open_averager
from rlbench.systems.engine.wire.group import Group
from tests.systems.engine.averaging.offices import Quadratic, meter_in, open_averagers, run_losing, sgd
from tests.systems.engine.ranks import run_ranks

RATE = 0.05
CURVATURE = [1.0, 3.0]


class Transcription:
    """Algorithm 3, line by line; its client i may take one turn of its loop at a time."""

    def __init__(self, num_clients: int, start: list[float], tau: int, alpha: float, mu: float) -> None:
        self.server, self.step = list(start), [0.0] * len(start)
        self.theta = [list(start) for _ in range(num_clients)]
        self.g = [[0.0] * len(start) for _ in range(num_clients)]
        self.t = [0] * num_clients
        self.tau, self.alpha, self.mu = tau, alpha, mu

    def turn(self, i: int, noise: list[float]) -> None:
        """One turn of client i's loop, and of the server's when they exchange."""
        if self.t[i] > 0 and self.t[i] % self.tau == 0:
            self.exchange(i)
        for k in range(len(self.server)):
            gradient = CURVATURE[k] * self.theta[i][k] + noise[k]
            self.g[i][k] += gradient
            self.theta[i][k] += -RATE * gradient
        self.t[i] += 1

    def exchange(self, i: int) -> None:
        """Sends client i's gradient and receives the server's parameters."""
        for k in range(len(self.server)):
            self.step[k] = -self.alpha * self.g[i][k] + self.mu * self.step[k]
            self.server[k] += self.step[k]
            self.theta[i][k] = self.server[k]
            self.g[i][k] = 0.0


@pytest.mark.parametrize("tau", [1, 3])
@pytest.mark.parametrize("num_ranks", [1, 3])
def test_it_is_algorithm_3(tau: int, num_ranks: int, meter: RankMeter) -> None:
    """Ranks and server go, in any order of the ranks' turns, where a slow transcription of Algorithm 3 goes."""
    policies = [Quadratic([2.0, -1.0], CURVATURE) for _ in range(num_ranks)]
    settings = ParameterServer(interval=tau, learning_rate=0.02, momentum=0.7)
    averagers, _ = open_averagers(settings, policies, meter)
    optimizers = [sgd(policy, RATE) for policy in policies]
    slow = Transcription(num_ranks, [2.0, -1.0], tau, 0.02, 0.7)
    generator = np.random.default_rng(1)
    for _ in range(40 * num_ranks):
        rank, noise = int(generator.integers(num_ranks)), generator.normal(size=2)
        policies[rank].update(averagers[rank], optimizers[rank], torch.from_numpy(noise))
        slow.turn(rank, noise.tolist())
        for policy, theta in zip(policies, slow.theta, strict=True):
            assert policy.theta.tolist() == pytest.approx(theta, rel=1e-11)
    for averager in averagers[1:]:
        averager._enter(FINAL)  # type: ignore[attr-defined]  # in one process they cannot all wait for each other
    slow.exchange(0)
    assert averagers[0].final_policy()
    assert policies[0].theta.tolist() == pytest.approx(slow.server, rel=1e-11)


def test_the_server_gets_gradients_as_they_were_clipped(meter: RankMeter) -> None:
    """What is summed up is what the rank's own optimiser has stepped on, after clipping."""
    policy = Quadratic([4.0], [2.0])
    settings = ParameterServer(learning_rate=1.0, momentum=0.0)
    averager = open_averagers(settings, [policy], meter)[0][0]
    averager.begin_update()
    policy.theta.grad = torch.tensor([8.0], dtype=torch.float64)
    averager.average_gradients(policy.parameters())
    torch.nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
    averager.end_update()
    averager.begin_update()
    assert policy.theta.item() == pytest.approx(3.5, rel=1e-5)


def test_a_gradient_is_never_applied_twice(meter: RankMeter) -> None:
    """When the server's answer is lost the rank keeps its own weights and does not send the same gradients again."""
    policies = [Quadratic([2.0], [0.0]) for _ in range(2)]
    settings = ParameterServer(learning_rate=1.0, momentum=0.0)
    averagers, office = open_averagers(settings, policies, meter)
    optimizer = sgd(policies[1], 0.1)
    policies[1].update(averagers[1], optimizer, 1.0)
    office.desks[1].lost_answers = 1
    policies[1].update(averagers[1], optimizer, 0.25)
    assert policies[1].theta.item() == pytest.approx(2 - 0.1 * 1.25)
    averagers[1].begin_update()
    assert policies[1].theta.item() == pytest.approx(2 - 1.25)


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"interval": 0}, "average.interval=0: must be at least 1"),
        ({"learning_rate": 0.0}, "average.learning_rate=0.0: must be above 0"),
        ({"momentum": 1.0}, "average.momentum=1.0: must be at least 0 and below 1"),
        ({"momentum": -0.1}, "average.momentum=-0.1: must be at least 0 and below 1"),
        ({"seconds": 0.0}, "average.seconds=0.0: must be above 0"),
    ],
)
def test_wrong_settings_are_refused(fields: dict[str, float], rule: str) -> None:
    """A setting that cannot be is refused with its rule."""
    with pytest.raises(ValueError, match=r"^average\.") as caught:
        ParameterServer(**fields)  # type: ignore[arg-type]
    assert str(caught.value) == rule


def update_for_ever(policy: Quadratic, averager: Averager, optimizer: torch.optim.Optimizer) -> None:
    """Until an update raises."""
    while True:
        policy.update(averager, optimizer)


def serve_and_die(folder: Path) -> None:
    """On each of 3 ranks: updates without end; rank 0 is killed, rank 1 and 2 note how that ends for them."""
    place = Place.from_environment()
    group, meter = Group(place), meter_in(folder, place.rank)
    policy = Quadratic([2.0, -1.0], CURVATURE)
    averager = open_averager(ParameterServer(seconds=5.0), group, meter, policy, np.random.default_rng(0))
    optimizer = sgd(policy, RATE)
    for _ in range(10):
        policy.update(averager, optimizer)
    group.sum(np.zeros(1))
    if place.rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(RuntimeError, match=r"^the parameter server \(rank 0\) is gone$"):
        update_for_ever(policy, averager, optimizer)
    (folder / f"raised-{place.rank}").touch()


def train_together(folder: Path) -> None:
    """On each of 3 ranks: 50 updates, with real exchanges; rank 0 leaves the server's weights."""
    place = Place.from_environment()
    group, meter = Group(place), meter_in(folder, place.rank)
    policy = Quadratic([2.0, -1.0], CURVATURE)
    settings = ParameterServer(learning_rate=0.02, momentum=0.5, seconds=60.0)
    averager = open_averager(settings, group, meter, policy, np.random.default_rng(0))
    optimizer = sgd(policy, RATE)
    for _ in range(50):
        policy.update(averager, optimizer)
    while not averager.is_over(bool(averager.agree(np.array([1.0]), 1)[0] == 3)):
        pass
    assert averager.final_policy() == (place.rank == 0)
    if place.rank == 0:
        (folder / "final").write_text(str(policy.theta.norm().item()))
    averager.close()
    meter.close()


def test_when_the_servers_process_dies_the_others_say_so(tmp_path: Path) -> None:
    """After a kill -9 of rank 0 every other rank raises, and names it."""
    outputs = run_losing(serve_and_die, 3, 0, tmp_path)
    assert {path.name for path in tmp_path.glob("raised-*")} == {f"raised-{rank}" for rank in outputs}
    assert len(outputs) == 2


def test_processes_train_through_the_server(tmp_path: Path) -> None:
    """Three processes bring the server's weights to the minimum, and leave together."""
    run_ranks(train_together, 3, tmp_path)
    assert float((tmp_path / "final").read_text()) < 0.1 * 5**0.5
