from __future__ import annotations

import copy
import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import distributed, nn

from rlbench.harness.contract.device import Place
from rlbench.harness.metering.meter import RankMeter
from rlbench.systems.choices.average import AllReduce, Gossip, choose_peer
from rlbench.systems.engine.averaging.asynchronous import RUNNING, AsynchronousRank
from rlbench.systems.engine.averaging.averager import Averager
from rlbench.systems.engine.averaging.flat_weights import SKETCH_SIZE, Sketch, consensus_distance, to_bytes
from rlbench.systems.engine.averaging.gossiping import GossipingRank, Received, mix_pulled, mix_pushed
from rlbench.systems.engine.averaging.opening import open_averager
from rlbench.systems.engine.wire.group import Group
from rlbench.systems.engine.wire.mailbox import Mailbox
from rlbench.systems.engine.wire.sockets import Answer
from tests.systems.engine.averaging.offices import Quadratic, meter_in, open_averagers, run_losing, sgd
from tests.systems.engine.ranks import join_group, run_ranks

RATE = 0.1
MODES = ("pull", "push")


class Lockstep:
    """A mailbox whose owner waits for all ranks before and after each question about weights."""

    def __init__(self, mailbox: Mailbox, group: Group) -> None:
        self._mailbox, self._group = mailbox, group
        self.gone = mailbox.gone

    def publish(self, name: str, value: bytes) -> None:
        self._mailbox.publish(name, value)

    def ask(self, rank: int, name: str, payload: bytes = b"") -> Answer | None:
        self._group.sum(np.zeros(1))
        answer = self._mailbox.ask(rank, name, payload)
        self._group.sum(np.zeros(1))
        return answer


def network() -> nn.Module:
    """The same weights, whoever calls it."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)).double()


def update(policy: nn.Module, averager: Averager, optimizer: torch.optim.Optimizer, data: torch.Tensor) -> None:
    """One update on a batch."""
    averager.begin_update()
    optimizer.zero_grad()
    torch.autograd.backward(policy(data).square().mean())
    averager.average_gradients(policy.parameters())
    optimizer.step()
    averager.end_update()


def gossip_in_lockstep(folder: Path, mode: str, group: Group) -> None:
    """On each of 2 ranks: gossip in lock-step, and all-reduce on a copy, on the same batches."""
    meter = meter_in(folder, group.rank)
    policy, twin = network(), network()
    gossip = open_averager(Gossip(mode=mode, seconds=60), group, meter, policy, np.random.default_rng(group.rank))
    assert isinstance(gossip, GossipingRank)
    mailbox = gossip._mailbox
    gossip._mailbox = Lockstep(mailbox, group)  # type: ignore[assignment]
    reduce = open_averager(AllReduce(), group, meter, twin, np.random.default_rng(0))
    optimizers = sgd(policy, RATE), sgd(twin, RATE)
    generator = torch.Generator().manual_seed(group.rank)
    start = copy.deepcopy(policy.state_dict())
    for _ in range(20):
        data = torch.randn(16, 5, generator=generator, dtype=torch.float64)
        update(policy, gossip, optimizers[0], data)
        update(twin, reduce, optimizers[1], data)
        for ours, theirs in zip(policy.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-13)
    assert not torch.allclose(start["0.weight"], policy.state_dict()["0.weight"], atol=1e-3)
    gossip._mailbox = mailbox
    meter.close()
    gossip.close()


def both_in_lockstep(folder: Path) -> None:
    """Pulling, then pushing, each in a group of its own."""
    for number, mode in enumerate(MODES):
        join_group(number, per_machine=2)
        group = Group(Place.from_environment())
        gossip_in_lockstep(folder, mode, group)
        group.sum(np.zeros(1))
        distributed.destroy_process_group()
        (folder / f"done-{mode}-{group.rank}").touch()


def gossip_with_loss(folder: Path, lost: int, number: int) -> None:
    """On each of 3 ranks: iterations of 5 updates until there are 100 in all; one rank is lost after its third."""
    place = Place.from_environment()
    group, meter = Group(place), meter_in(folder, place.rank)
    policy = Quadratic([1.0, 1.0, 1.0], [1.0, 2.0, 3.0])
    # not an even mix: two ranks that pull from each other at the same moment would have the very same weights after it
    averager = open_averager(Gossip(beta=0.25, seconds=60.0), group, meter, policy, np.random.default_rng(place.rank))
    assert isinstance(averager, GossipingRank)
    mailbox = averager._mailbox
    optimizer = sgd(policy, RATE)
    generator = torch.Generator().manual_seed(place.rank)
    num_updates, total, is_over = 0, np.zeros(2), False
    while not is_over:
        for _ in range(5):
            policy.update(averager, optimizer, 0.1 * torch.randn(3, generator=generator, dtype=torch.float64))
        num_updates += 5
        total = averager.agree(np.array([num_updates, 1.0]), 2)
        if num_updates == 15:
            group.sum(np.zeros(1))
            averager.agree(np.array([num_updates, 1.0]), 2)  # all have heard all
            group.sum(np.zeros(1))
            if place.rank == lost:
                os.kill(os.getpid(), number)
            if number == signal.SIGSTOP:  # a death is heard of; a rank that is only slow is not to be lost
                mailbox._limit_s = 2.0
        if lost in mailbox.gone:
            mailbox._limit_s = 60.0
        is_over = averager.is_over(bool(total[0] >= 100))
    own = policy.theta.detach().clone()
    leaves_policy = averager.final_policy()
    found = {
        "updates": num_updates,
        "total": total.tolist(),
        "own": own.tolist(),
        "final": policy.theta.tolist() if leaves_policy else None,
        "statistics": averager.statistics(),
    }
    (folder / f"found-{place.rank}.json").write_text(json.dumps(found))
    averager.close()
    meter.close()


def lose_first_killed(folder: Path) -> None:
    """Rank 0, which hosts the group's store, is killed."""
    gossip_with_loss(folder, 0, signal.SIGKILL)


def lose_last_stopped(folder: Path) -> None:
    """Rank 2 is stopped and does not wake."""
    gossip_with_loss(folder, 2, signal.SIGSTOP)


def test_peers_are_uniform_among_the_others_that_are_there() -> None:
    """Every other rank that is not gone is chosen equally often, the rank itself and those gone never."""
    generator = np.random.default_rng(0)
    chosen = Counter(choose_peer(generator, 2, 6, {4}) for _ in range(8000))
    assert set(chosen) == {0, 1, 3, 5}
    assert all(abs(count - 2000) < 5 * 39 for count in chosen.values())  # 5 standard deviations
    assert choose_peer(generator, 0, 3, {1, 2}) is None
    assert choose_peer(generator, 0, 1, frozenset()) is None


def test_mixing() -> None:
    """A pull is (1 - beta) own + beta other; a push is the mean of the rank's own weights and all received."""
    own, other = torch.tensor([1.0, 8.0]), torch.tensor([3.0, 0.0])
    assert mix_pulled(own, other, 0.25).tolist() == [1.5, 6.0]
    assert mix_pushed(own, other + other, 2).tolist() == pytest.approx([7 / 3, 8 / 3])
    assert mix_pushed(own, torch.zeros(2), 0).tolist() == [1.0, 8.0]


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"mode": "shout"}, "average.mode=shout: must be one of: pull, push"),
        ({"interval": 0}, "average.interval=0: must be at least 1"),
        ({"beta": 0.0}, "average.beta=0.0: must be above 0 and at most 1"),
        ({"beta": 1.5}, "average.beta=1.5: must be above 0 and at most 1"),
        ({"mode": "push", "beta": 0.3}, "average.beta=0.3: a push averages evenly; leave it out, or use "),
        ({"order": "late"}, "average.order=late: must be one of: fresh, stale"),
        ({"seconds": 0.0}, "average.seconds=0.0: must be above 0"),
    ],
)
def test_wrong_settings_are_refused(fields: dict[str, object], rule: str) -> None:
    """A setting that cannot be is refused with its rule."""
    with pytest.raises(ValueError, match=r"^average\.") as caught:
        Gossip(**fields)  # type: ignore[arg-type]
    assert str(caught.value).startswith(rule)


def test_two_ranks_in_lockstep_equal_all_reduce(tmp_path: Path) -> None:
    """With 2 ranks, interval 1, beta 1/2 and equal starts, gossip in lock-step is all-reduce with plain SGD.

    Whether they pull or push.
    """
    run_ranks(both_in_lockstep, 2, tmp_path, num_groups=len(MODES))
    assert len(list(tmp_path.glob("done-*"))) == 2 * len(MODES)


@pytest.mark.parametrize(("function", "lost"), [(lose_first_killed, 0), (lose_last_stopped, 2)])
def test_the_run_goes_on_without_a_lost_rank(function: Callable[[Path], None], lost: int, tmp_path: Path) -> None:
    """Others skip a rank that is killed or stopped, say so once, count its last progress, and leave their mean."""
    outputs = run_losing(function, 3, lost, tmp_path)
    found = {rank: json.loads((tmp_path / f"found-{rank}.json").read_text()) for rank in outputs}
    assert len(found) == 2
    for rank, output in outputs.items():
        assert output.count(f"rank {lost} is gone: ") == output.count("is gone") == 1
        assert found[rank]["statistics"]["ranks_lost"] == 1
        assert found[rank]["total"][1] == 3
        assert 0 < found[rank]["statistics"]["consensus_distance"] < 3
    assert max(each["total"][0] for each in found.values()) >= 100
    for each in found.values():
        assert each["total"][0] <= 15 + sum(other["updates"] for other in found.values())
        assert each["updates"] > 15
    assert [each["final"] is not None for _, each in sorted(found.items())] == [True, False]
    mean = np.mean([each["own"] for each in found.values()], axis=0)
    assert next(each["final"] for each in found.values() if each["final"]) == pytest.approx(mean.tolist())


@pytest.mark.parametrize(("silences", "gone", "expected"), [(2, set(), b"weights"), (9, {1}, None)])
def test_a_last_question_is_asked_until_its_rank_is_gone(
    monkeypatch: pytest.MonkeyPatch, silences: int, gone: set[int], expected: bytes | None
) -> None:
    """A rank that is late is not left out of the mean for that."""
    answers = iter([*[None] * silences, b"weights"])
    rank = object.__new__(AsynchronousRank)
    monkeypatch.setattr(rank, "_mailbox", SimpleNamespace(gone=gone), raising=False)
    monkeypatch.setattr(rank, "_ask", lambda *_: next(answers))
    assert rank._ask_until_gone(1, "final") == expected


class Heard:
    """A mailbox of rank 0, in which the progress of two other ranks is."""

    def __init__(self, progress: dict[int, bytes]) -> None:
        self._progress, self.gone = progress, set[int]()

    def publish(self, name: str, value: bytes) -> None:
        """To nobody."""

    def ask(self, rank: int, name: str) -> bytes:
        assert name == "progress"
        return self._progress[rank]


def test_consensus_distance_is_that_of_the_ranks_that_are_there(tmp_path: Path) -> None:
    """Of three ranks one is 6 away from the others: (2 + 2 + 4) / 3 on average, and 0 when that one is gone.

    What a lost rank has learned still counts.
    """
    policy = nn.Linear(1, 1, bias=False)
    sketch = Sketch(1)
    theta = policy.weight.detach().reshape(-1)
    heard = Heard(
        {rank: np.concatenate([[RUNNING, 1.0], sketch.of(theta + far)]).tobytes() for rank, far in ((1, 0), (2, 6))}
    )
    group = SimpleNamespace(rank=0, num_ranks=3)
    meter = meter_in(tmp_path)
    averager = AsynchronousRank(group, meter, policy, heard)  # type: ignore[arg-type]  # it needs no more
    assert averager.agree(np.ones(1), 1) == 3
    assert averager.statistics()["consensus_distance"] == pytest.approx(8 / 3)
    heard.gone.add(2)
    assert averager.agree(np.ones(1), 1) == 3
    assert averager.statistics()["consensus_distance"] == pytest.approx(0, abs=1e-6)
    meter.close()


def test_pushed_weights_take_no_more_memory_when_they_wait() -> None:
    """However many pushes wait, one sum and one count are kept, and their mean is that of all."""
    generator = torch.Generator().manual_seed(0)
    sent = torch.randn(500, 10, generator=generator, dtype=torch.float64)
    received = Received(sent[0])
    for weights in sent:
        received.put(1, bytearray(to_bytes(weights)))
        assert received._total.shape == (10,)
    total, count = received.take()
    own = torch.ones(10, dtype=torch.float64)
    expected = torch.cat([sent, own[None]]).mean(0)
    torch.testing.assert_close(mix_pushed(own, total, count), expected)
    assert received.take()[1] == 0
    with pytest.raises(ValueError, match="79 bytes came, 80 are"):
        received.put(1, bytearray(79))


@pytest.mark.parametrize("size", [10, 20 * SKETCH_SIZE])
def test_consensus_distance(size: int) -> None:
    """The mean distance to the mean is exact for small policies, and within 5 % from the sketches of large ones."""
    weights = torch.randn(4, size, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 3
    expected = (weights - weights.mean(0)).norm(dim=1).mean().item()
    sketch = Sketch(size)
    found = consensus_distance([sketch.of(each) for each in weights])
    assert found == pytest.approx(expected, rel=1e-9 if size == 10 else 0.05)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (Gossip(order="fresh", beta=0.25), 0.75 * (4 - RATE * 8) + 0.25 * 10),  # eq. 3.65 and 3.67
        (Gossip(order="stale", beta=0.25), 0.75 * 4 + 0.25 * 10 - RATE * 8),  # eq. 3.62
        (Gossip(order="fresh", mode="push"), ((4 - RATE * 8) + 10) / 2),
        (Gossip(order="stale", mode="push"), (4 + 10) / 2 - RATE * 8),
        (Gossip(interval=2), 4 - RATE * 8),
    ],
)
def test_one_update(settings: Gossip, expected: float, meter: RankMeter) -> None:
    """An update does what the equations of section 3.6 say: theta 4, gradient 8, the other rank's theta 10."""
    policies = [Quadratic([4.0], [2.0]), Quadratic([10.0], [0.0])]
    averagers, _ = open_averagers(settings, policies, meter)
    policies[1].update(averagers[1], sgd(policies[1], RATE))
    if settings.mode == "push":
        policies[0].theta.data.fill_(4.0)
    policies[0].update(averagers[0], sgd(policies[0], RATE))
    assert policies[0].theta.item() == pytest.approx(expected, rel=1e-12)


def test_the_optimisers_momentum_is_not_mixed(meter: RankMeter) -> None:
    """Nesterov momentum is the rank's own: what gossip does to the weights does not enter it."""
    policies = [Quadratic([4.0], [2.0]), Quadratic([10.0], [0.0])]
    averager = open_averagers(Gossip(), policies, meter)[0][0]
    optimizer = torch.optim.SGD(policies[0].parameters(), lr=RATE, momentum=0.9, nesterov=True)
    velocity = 0.0
    for _ in range(5):
        gradient = policies[0].update(averager, optimizer).item()
        velocity = 0.9 * velocity + gradient
        assert optimizer.state[policies[0].theta]["momentum_buffer"].item() == pytest.approx(velocity, rel=1e-12)
