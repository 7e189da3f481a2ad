from __future__ import annotations

import numpy as np
import pytest
import torch

from rlbench.harness.metering.meter import RankMeter
from rlbench.systems.choices.average import Gossip, choose_peer
from rlbench.systems.engine.averaging.gossiping import mix_pulled
from tests.systems.engine.averaging.offices import Quadratic, open_averagers, sgd
from tests.systems.engine.moments import Array, exact, theorem_1

P, CURVATURE, VARIANCE, NUM_STEPS = 4, [1.0, 4.0], 1.0, 150
M, L = min(CURVATURE), max(CURVATURE)


def algorithm_5(alpha: float, beta: float, deviation: float, num_runs: int, seed: int) -> Array:
    """Sum over ranks of squared distances in runs of Alg. 5, [num_runs, NUM_STEPS + 1]; one random rank acts a step.

    Every run is 50 that share who acts and who is asked, each with noise of its own; what is returned is their mean.
    """
    generator = np.random.default_rng(seed)
    noise = torch.Generator().manual_seed(seed)
    curvature = torch.tensor(CURVATURE, dtype=torch.float64)
    found = np.empty((num_runs, NUM_STEPS + 1))
    runs = torch.arange(num_runs)
    theta = torch.ones(num_runs, P, 50, len(CURVATURE), dtype=torch.float64)
    for t in range(NUM_STEPS + 1):
        found[:, t] = theta.square().sum((1, 2, 3)).numpy() / 50
        ranks = generator.integers(P, size=num_runs)
        peers = [choose_peer(generator, rank, P, frozenset()) for rank in ranks.tolist()]
        mixed = mix_pulled(theta[runs, torch.from_numpy(ranks)], theta[runs, torch.tensor(peers)], beta)
        xi = torch.randn(mixed.shape, generator=noise, dtype=torch.float64) * deviation / len(CURVATURE) ** 0.5
        theta[runs, torch.from_numpy(ranks)] = mixed - alpha * (curvature * mixed + xi)
    return found


@pytest.mark.parametrize(("share", "factor"), [(0.2, 4.0), (1.0, 1.5)])
def test_gossip_stays_under_the_bound_of_theorem_1(share: float, factor: float) -> None:
    """On a strongly convex quadratic, E sum_i |theta_i - theta*|^2 is under eq. 3.6 at every t, and near it.

    Alg. 5 with one random rank acting a step, as the theorem's time model has it, and noisy gradients of variance
    sigma^2; alpha is `share` of the most that the theorem allows. The bound is at most `factor` times what is
    measured, and what is measured agrees with the exact second moments, so a wrong rule cannot hide under it.
    """
    alpha = share * 2 / (M + L)
    runs = algorithm_5(alpha, 0.5, VARIANCE**0.5, 200, seed=0)
    bound = theorem_1(P, alpha, M, L, VARIANCE, P * len(CURVATURE), NUM_STEPS)
    measured, error = runs.mean(0), runs.std(0) / len(runs) ** 0.5
    assert (measured + 2 * error <= bound).all()
    assert (bound <= factor * measured).all()
    expected = exact("algorithm 5", P, alpha, 0.5, CURVATURE, VARIANCE, NUM_STEPS)
    assert (np.abs(measured - expected) <= 4.5 * error + 1e-12).all()
    assert (expected <= bound).all()


@pytest.mark.parametrize(("beta", "deviation"), [(-0.5, 1.0), (1.5, 1.0), (0.5, 2.0)])
def test_wrong_gossip_breaks_the_bound_of_theorem_1(beta: float, deviation: float) -> None:
    """The bound tells wrong from right: with beta of the wrong sign or size, or with doubled noise, it is broken."""
    alpha = 2 / (M + L)
    runs = algorithm_5(alpha, beta, deviation, 200, seed=0)
    bound = theorem_1(P, alpha, M, L, VARIANCE, P * len(CURVATURE), NUM_STEPS)
    assert (runs.mean(0) - 4 * runs.std(0) / len(runs) ** 0.5 > bound).any()


@pytest.mark.parametrize("order", ["fresh", "stale"])
def test_ranks_of_the_engine_stay_under_the_bound(order: str, meter: RankMeter) -> None:
    """The engine's own ranks, one random one updating a step, have the second moments of eq. 3.62 and 3.65-3.67.

    Those are under the bound too, with this noise and step size; with little noise they need not be: an exchange
    shows what a rank had at its last one, which the theorem's time model leaves out.
    """
    num_runs, num_steps, alpha = 200, 60, 0.2 * 2 / (M + L)
    generator, noise = np.random.default_rng(0), torch.Generator().manual_seed(0)
    found = np.empty((num_runs, num_steps + 1))
    for run in range(num_runs):
        policies = [Quadratic([1.0, 1.0], CURVATURE) for _ in range(P)]
        averagers, _ = open_averagers(Gossip(order=order), policies, meter, seed=run)
        optimizers = [sgd(policy, alpha) for policy in policies]
        for t in range(num_steps + 1):
            found[run, t] = sum(policy.theta.detach().square().sum().item() for policy in policies)
            rank = int(generator.integers(P))
            xi = torch.randn(2, generator=noise, dtype=torch.float64) * (VARIANCE / 2) ** 0.5
            policies[rank].update(averagers[rank], optimizers[rank], xi)
    measured, error = found.mean(0), found.std(0) / num_runs**0.5
    expected = exact(order, P, alpha, 0.5, CURVATURE, VARIANCE, num_steps)
    assert (np.abs(measured - expected) <= 4.5 * error + 1e-12).all()
    bound = theorem_1(P, alpha, M, L, VARIANCE, P * len(CURVATURE), num_steps)
    assert (expected <= bound).all()
    assert (measured <= bound).all()
