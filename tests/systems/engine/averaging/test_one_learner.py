from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from rlbench.harness.metering.meter import RankMeter
from rlbench.systems.choices.average import Central, rendering_rank
from rlbench.systems.engine.averaging.opening import open_averager
from tests.systems.engine.averaging.offices import Apart, group_of


@pytest.mark.parametrize(
    ("env", "rank", "ranks", "placement", "expected"),
    [
        (0, 0, range(1), "separate", 0),  # alone, all is on the one device
        (5, 0, range(1), "separate", 0),
        (0, 0, range(2), "separate", 1),
        (9, 1, range(2), "separate", 1),
        (0, 0, range(4), "separate", 1),
        (1, 0, range(4), "separate", 2),
        (2, 0, range(4), "separate", 3),
        (3, 0, range(4), "separate", 1),
        (3, 0, range(4), "together", 0),
        (9, 2, range(4), "together", 2),
        (0, 4, range(4, 8), "separate", 4),  # the learner is on another machine
        (9, 6, range(4, 8), "separate", 6),
        (9, 6, range(4, 8), "together", 6),
    ],
)
def test_where_environments_render(env: int, rank: int, ranks: range, placement: str, expected: int) -> None:
    """Separate: not beside the learner, if another rank is there (VER section 5.1); else: on its own rank."""
    assert rendering_rank(env, rank, ranks, placement) == expected


@pytest.mark.parametrize("num_ranks", [2, 3, 8])
@pytest.mark.parametrize("num_envs", [1, 4, 16])
def test_rendering_is_dealt_evenly(num_ranks: int, num_envs: int) -> None:
    """The devices that render have the same number of environments, or one more; `together` each its own."""
    envs = [(index, index // num_envs) for index in range(num_ranks * num_envs)]
    separate = Counter(rendering_rank(env, rank, range(num_ranks), "separate") for env, rank in envs)
    assert 0 not in separate
    assert set(separate) == set(range(1, num_ranks))
    assert max(separate.values()) - min(separate.values()) <= 1
    together = Counter(rendering_rank(env, rank, range(num_ranks), "together") for env, rank in envs)
    assert together == dict.fromkeys(range(num_ranks), num_envs)


def test_unknown_placement() -> None:
    """A placement that there is not is refused; the known ones are listed."""
    with pytest.raises(ValueError, match=r"average\.placement=apart: must be one of: separate, together"):
        Central(placement="apart")


def test_learner_and_owners_sum_progress_alone(tmp_path: Path) -> None:
    """Gradients and weights stay rank 0's, which leaves the policy; owners wait for it, and are metered as waiting."""
    for rank in range(2):
        meter = RankMeter(tmp_path, rank, 0)
        policy = torch.nn.Linear(2, 1)
        before = [parameter.clone() for parameter in policy.parameters()]
        for parameter in policy.parameters():
            parameter.grad = torch.ones_like(parameter)
        between = Apart()
        averager = open_averager(Central(), group_of(rank, 2, between), meter, policy, np.random.default_rng())
        averager.begin_update()
        averager.average_gradients(policy.parameters())
        averager.end_update()
        assert [averager.wait_for_ranks(broke_off=broke_off) for broke_off in (False, True)] == [False, True]
        assert all(torch.equal(parameter, old) for parameter, old in zip(policy.parameters(), before, strict=True))
        assert all((parameter.grad == 1).all() for parameter in policy.parameters() if parameter.grad is not None)
        assert averager.final_policy() == (rank == 0)
        assert between.num_sums == 0
        averager.agree(np.ones(3), 1)
        assert between.num_sums == 1
        seconds = meter._seconds(time.perf_counter())
        waited, spoke = seconds["span/wait:learner"] > 0, seconds["span/communicate"] > 0
        assert (waited, spoke) == (rank == 1, rank == 0)
        meter.close()
