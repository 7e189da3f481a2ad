from __future__ import annotations

import numpy as np
import pytest

from rlbench.harness.metering.window import PROTOCOLS, choose_window, steps_per_s
from tests.results.made_records import make_parts


def noisy(rates: list[float], seed: int = 0, noise: float = 0.02) -> list[float]:
    """The rates with relative Gaussian noise."""
    draws = np.random.default_rng(seed).normal(1, noise, len(rates))
    return [rate * float(draw) for rate, draw in zip(rates, draws, strict=True)]


def test_ddppo_counts_the_last_five_of_ten() -> None:
    """Throughput is the steps of the last 5 of 10 iterations over their time (DD-PPO, appendix D)."""
    window = choose_window(make_parts([10.0] * 5 + [100.0, 50.0, 100.0, 50.0, 100.0]), "ddppo")
    assert [part.iteration for part in window.parts] == [5, 6, 7, 8, 9]
    assert steps_per_s(window) == pytest.approx(5000 / (3 * 10 + 2 * 20))
    assert window.reason is None


@pytest.mark.parametrize(("num_parts", "first"), [(1, 0), (2, 1), (3, 2), (7, 4), (9, 5)])
def test_ddppo_with_fewer_iterations_says_so(num_parts: int, first: int) -> None:
    """With fewer than 10 iterations the last half counts, and the window is not called steady."""
    window = choose_window(make_parts([100.0] * num_parts), "ddppo").to_record()
    assert (window.first_iteration, window.last_iteration) == (first, num_parts - 1)
    assert not window.steady
    assert window.reason == f"protocol ddppo wants 10 iterations, the run has {num_parts}"


def test_sample_factory_counts_five_minutes_after_one() -> None:
    """Iterations of 8 s at first, then of 4: those that begin before a minute is over are dropped."""
    window = choose_window(make_parts([125.0] * 8 + [250.0] * 76), "sample-factory")
    assert window.parts[0].iteration == 8
    assert window.parts[0].begin_s - 60 == pytest.approx(4, abs=4)
    assert steps_per_s(window) == pytest.approx(250)
    assert window.reason is None


@pytest.mark.parametrize(("num_parts", "first"), [(1, 0), (2, 1), (6, 1), (12, 2), (35, 6)])
def test_sample_factory_with_less_time_says_so(num_parts: int, first: int) -> None:
    """Of a shorter run a sixth is dropped, one iteration is left, and the window is not called steady."""
    window = choose_window(make_parts([100.0] * num_parts), "sample-factory").to_record()
    assert (window.first_iteration, window.last_iteration) == (first, num_parts - 1)
    assert window.reason == f"protocol sample-factory wants 360 s, the run has {10 * num_parts} s"


def test_steady_drops_a_slow_start() -> None:
    """Three slow iterations are found and dropped; the rate is the settled one."""
    window = choose_window(make_parts(noisy([20.0, 50.0, 80.0] + [100.0] * 17)), "steady")
    assert window.parts[0].iteration == 3
    assert steps_per_s(window) == pytest.approx(100, rel=0.02)
    assert window.reason is None


def test_steady_on_a_constant_rate() -> None:
    """Where nothing changes, only the first iteration is dropped: one always is."""
    window = choose_window(make_parts([100.0] * 12), "steady")
    assert [part.iteration for part in window.parts] == list(range(1, 12))
    assert window.reason is None


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("rise", [0.3, -0.3])
def test_steady_sees_a_trend(rise: float, seed: int) -> None:
    """A rate that rises or falls by 30 % all through the run is not steady, on each of five seeds."""
    rates = [100 * (1 + rise * index / 29) for index in range(30)]
    assert choose_window(make_parts(noisy(rates, seed)), "steady").reason


def test_noise_alone_is_mostly_steady() -> None:
    """Of 100 runs of 20 iterations with nothing but noise, at most 8 are called not steady."""
    windows = [choose_window(make_parts(noisy([100.0] * 20, seed, 0.03)), "steady") for seed in range(100)]
    assert sum(window.reason is not None for window in windows) <= 8


def test_warm_up_of_half_the_run() -> None:
    """A warm-up that fills half of the run hits the bound, and at most half is dropped."""
    window = choose_window(make_parts(noisy([20.0 + 8 * index for index in range(10)] + [100.0] * 2)), "steady")
    assert len(window.parts) == 6
    assert window.reason == "the warm-up fills half of the run or more; give it more iterations"


@pytest.mark.parametrize(("num_parts", "num_left"), [(1, 1), (2, 1), (3, 2)])
def test_too_short_for_steady(num_parts: int, num_left: int) -> None:
    """With fewer than 3 iterations left there is a figure, but not a steady one."""
    window = choose_window(make_parts([100.0] * num_parts), "steady")
    assert len(window.parts) == num_left
    assert window.reason
    assert steps_per_s(window) == pytest.approx(100)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_default_length_is_enough(protocol: str) -> None:
    """A run of a protocol's own default length on a constant rate is steady."""
    of_protocol = PROTOCOLS[protocol]
    num_iterations = of_protocol.num_iterations or round((of_protocol.seconds or 0) / 2)
    window = choose_window(make_parts([500.0] * num_iterations), protocol)
    assert window.to_record().steady


def test_bad_input() -> None:
    """An unknown protocol lists the known ones; a run without an iteration is told apart from one that is slow."""
    with pytest.raises(ValueError, match="--protocol x: unknown; choose one of: ddppo, sample-factory, steady"):
        choose_window(make_parts([1.0]), "x")
    with pytest.raises(ValueError, match="no iteration was finished"):
        choose_window([], "steady")
