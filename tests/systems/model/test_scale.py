from __future__ import annotations

import pytest

from rlbench.systems.model.setup import make_fleet_state, make_rules
from tests.systems.model.runs import ends_of, load, predicted, scenario_of

OPEN_FRIDGE = scenario_of({})
SYSTEMS = ("sync", "ddppo", "nover", "ver", "gossip", "appo")


@pytest.mark.parametrize("system", SYSTEMS)
def test_64_ranks(system: str) -> None:
    """64 GPUs with 16 environments each: all ranks go through all iterations, and learn more than one would."""
    many, one = (predicted(system, num_ranks, scenario=OPEN_FRIDGE) for num_ranks in (64, 1))
    assert all(len(ends_of(many, rank)) >= 3 for rank in range(64))
    rates = [
        sum(row["learned"] for row in prediction.rows) / max(row["end_s"] for row in prediction.rows)
        for prediction in (many, one)
    ]
    least = 1.5 if system == "appo" else 16
    assert least < rates[0] / rates[1] < 64


def num_bytes(system: str, num_ranks: int) -> int:
    """Of all arrays that the model of so many ranks begins with."""
    loaded = load(system)
    scenario = loaded.check(OPEN_FRIDGE)
    rules = make_rules(loaded, scenario, num_ranks)
    return sum(values.nbytes for values in make_fleet_state(loaded, scenario, num_ranks, rules))


@pytest.mark.parametrize("system", SYSTEMS)
def test_memory_grows_with_the_ranks_alone(system: str) -> None:
    """Twice as many GPUs take twice the memory, and 1,024 of them less than 1 GiB."""
    small, large = num_bytes(system, 128), num_bytes(system, 256)
    assert large / small == pytest.approx(2, rel=0.02)
    assert num_bytes(system, 1024) < 2**30
