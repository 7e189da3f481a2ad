"""Running statistics that bring observations and rewards to one scale, by the rules of `VecNormalize`.

    forward pass:                 normalizer(vectors)
    before a batch is made:       rewards = reward_scale.scale(rewards, ended, runs, envs, averager.sum_moments)
    during a learning phase:      normalizer.observe(vectors of the new samples)
    in its last optimiser step:   normalizer.apply_observed(averager.sum_moments)

`VecNormalize` is Stable-Baselines3's (Raffin et al. 2021, JMLR 22(268); `vec_normalize.py`, `running_mean_std.py`). It
updates its statistics at every env step. Here they change once per rollout: ranks exchange one message for it, and a
policy that collects and learns in turn reads the same numbers when it learns from a sample as when it acted.

`scale` and `apply_observed` block in `sum_over_ranks` until all ranks that it sums over have called it.
Letters: K numbers of a vector, N samples of any kind, S samples of a rollout, R runs, E environments, T steps of the
environment that has most.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Listed
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

EPSILON = 1e-8
"""Added to variances, as `VecNormalize` does."""
LIMIT = 10.0
"""What is normalised lies between -LIMIT and LIMIT (`clip_obs` and `clip_reward`)."""
PRIOR_COUNT = 1e-4
"""How many samples of mean 0 and variance 1 statistics begin with (`RunningMeanStd`). After N samples they add
PRIOR_COUNT * mean^2 / N to the variance, so numbers that lie far from 0 at first come out smaller than they should."""

SumOverRanks = Callable[[Tensor], Tensor]
"""The sum of a float64 tensor over the ranks that learn together; may change its argument."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Moments:
    """How many samples there were of K numbers, their means, and the sums of their squared distances from these.

    Parts are merged as in Chan, Golub & LeVeque 1983 (The American Statistician 37(3), equation 2.1).
    """

    count: Tensor
    """float64, 0-dimensional."""
    mean: Tensor
    """float64 [K]."""
    squares: Tensor
    """float64 [K], the sum of (x - mean)^2."""

    @classmethod
    def begin(cls, num: int, count: float = PRIOR_COUNT) -> Moments:
        """Those of `count` samples with mean 0 and variance 1, on the CPU; `num` is K."""
        squares = torch.full((num,), count, dtype=torch.float64)
        return cls(count=torch.tensor(count, dtype=torch.float64), mean=torch.zeros_like(squares), squares=squares)

    @property
    def variance(self) -> Tensor:
        """float64 [K], of all samples (divided by their number); NaN if there are none."""
        return self.squares / self.count

    def sums(self, x: Tensor) -> Tensor:
        """What `merged` needs of new samples, to be added up over calls and over ranks that have the same moments.

        Args:
            x: [N, K], of any dtype.

        Returns:
            float64 [1 + 2 K], on the device of `x`: N, the sums of (x - mean), the sums of (x - mean)^2. Distances are
            from this object's mean, since sums of x^2 would drown small variances in large means.
        """
        distances = x.double() - self.mean.to(x.device)  # [N, K]
        num = torch.full((1,), len(x), dtype=torch.float64, device=x.device)
        return torch.cat((num, distances.sum(0), distances.square().sum(0)))

    def merged(self, sums: Tensor) -> Moments:
        """The moments of the old and the new samples, on the device of `sums`, [1 + 2 K]."""
        num, shifts, squares = sums[0], *sums[1:].chunk(2)
        delta = shifts / num.clamp(min=1)
        new_squares = (squares - num * delta.square()).clamp(min=0)
        count = self.count.to(sums.device)
        total = count + num
        share = num / total.clamp(min=PRIOR_COUNT)
        return Moments(
            count=total,
            mean=self.mean.to(sums.device) + delta * share,
            squares=self.squares.to(sums.device) + new_squares + delta.square() * count * share,
        )


class Normalizer(nn.Module):
    """Brings each number of a vector to mean 0 and variance 1 over all that ranks have observed.

    Mean and variance are parameters without gradients, so they go where weights go: to actors, into `policy.pt`, at the
    start to other ranks. Ranks that do not wait for each other have their own. In float32 a mean is off by 6e-8 of
    itself, as a float32 observation is. The sums behind them, whose counts pass what float32 can count, stay in float64
    with the rank that learns.
    """

    def __init__(self, num: int) -> None:
        """Begins with mean 0 and variance 1; `num` is K."""
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(num), requires_grad=False)
        self.variance = nn.Parameter(torch.ones(num), requires_grad=False)
        self._moments = Moments.begin(num)
        self._observed: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Vectors [N, K] of any dtype, normalised and clipped to +-LIMIT, in the parameters' dtype.

        Before the first `apply_observed` they are only clipped.
        """
        # Weights may come from elsewhere, with a tiny variance that was rounded to below 0.
        deviations = (self.variance.clamp(min=0) + EPSILON).sqrt()
        return ((x - self.mean) / deviations).clamp(-LIMIT, LIMIT).to(self.mean.dtype)

    @torch.no_grad()
    def observe(self, x: Tensor) -> None:
        """Counts vectors [N, K], each of which is given once; `forward` stays as it is until `apply_observed`."""
        sums = self._moments.sums(x)
        self._observed = sums if self._observed is None else self._observed + sums

    @torch.no_grad()
    def apply_observed(self, sum_over_ranks: SumOverRanks | None = None) -> None:
        """Sets mean and variance to those of all that was ever observed.

        Changes parameters, so it is called where weights may change, before they are published to actors.

        Args:
            sum_over_ranks: adds up over ranks that have called this equally often with the same sums, which then have
                the same statistics to the bit; None for one rank. Ranks that do not wait for each other get their own
                sums back.
        """
        sums = self._moments.mean.new_zeros(1 + 2 * len(self.mean)) if self._observed is None else self._observed
        sums = sums.to(self.mean.device)
        self._moments = self._moments.merged(sum_over_ranks(sums) if sum_over_ranks else sums)
        self._observed = None
        self.mean.copy_(self._moments.mean)
        self.variance.copy_(self._moments.variance)


class RewardScale:
    """Divides rewards by the deviation of the environments' discounted returns, over all that ranks have seen.

    The return of an environment is R_t = discount * R_(t-1) + r_t, from 0 at each episode's start: it looks back, as
    `VecNormalize` has it. Rewards keep their sign, since no mean is subtracted.
    """

    def __init__(self, discount: float) -> None:
        """Begins with variance 1; `discount` is gamma, 0 to 1."""
        self.moments = Moments.begin(1)
        """Of the returns; equal on all ranks that add up their sums."""
        self._discount = discount
        self._returns = torch.zeros(0, dtype=torch.float64)  # [E], 0 where an episode begins

    @torch.no_grad()
    def scale(
        self,
        rewards: Tensor,
        ended: Tensor,
        runs: Listed[NDArray[np.int64]],
        envs: Listed[int],
        sum_over_ranks: SumOverRanks | None = None,
        starts: Tensor | None = None,
    ) -> Tensor:
        """Takes the new samples' returns into the statistics, then scales all rewards by these.

        So they are the statistics of all earlier rollouts and this one. `VecNormalize` also updates before it scales,
        which spares the first rewards a scale of 1. All samples of a batch are scaled alike.

        Args:
            rewards: float [S], as the environments gave them.
            ended: bool [S], whether the episode ended there, terminated or truncated.
            runs: the indices of the samples that were never given before, in order of time; an environment may have
                several runs, the older ones first. Samples that are learned again are in no run: they are only scaled.
            envs: the environment of each run; its return goes on from its last run.
            sum_over_ranks: see `Normalizer.apply_observed`.
            starts: bool [S], whether an episode began there, for environments some of whose steps are never given: the
                end of the episode before may be among those.

        Returns:
            float [S], like `rewards`: clipped to +-LIMIT. A reward that is not finite stays as it is, and out of the
            statistics, so that learning fails because of it, and of no other.
        """
        starts = torch.zeros_like(ended) if starts is None else starts
        returns = self._follow(rewards.double(), ended, starts, runs, envs)
        sums = self.moments.sums(returns[returns.isfinite()].unsqueeze(1))
        self.moments = self.moments.merged(sum_over_ranks(sums) if sum_over_ranks else sums)
        scaled = (rewards / (self.moments.variance + EPSILON).sqrt()).clamp(-LIMIT, LIMIT)
        return torch.where(rewards.isfinite(), scaled.to(rewards.dtype), rewards)

    def _follow(
        self, rewards: Tensor, ended: Tensor, starts: Tensor, runs: Listed[NDArray[np.int64]], envs: Listed[int]
    ) -> Tensor:
        """The returns after the runs' samples, float64, in some order; keeps those with which environments go on."""
        pieces: dict[int, list[NDArray[np.int64]]] = {}
        for env, run in zip(envs, runs, strict=True):
            pieces.setdefault(env, []).append(run)
        joined = [np.concatenate(of_env) for of_env in pieces.values()]
        lengths = np.array([len(run) for run in joined], np.int64)
        if not lengths.any():
            return rewards[:0]
        # Environments stand side by side with their starts aligned.
        held = np.arange(lengths.max())[:, None] < lengths  # [T, E]
        grid = np.zeros(held.shape, np.int64)
        for column, run in enumerate(joined):
            grid[: len(run), column] = run
        at, kept = torch.from_numpy(grid).to(rewards.device), torch.from_numpy(held).to(rewards.device)
        steps, ends, begins = rewards[at], ended[at] & kept, starts[at] & kept

        columns = torch.tensor(list(pieces), device=rewards.device)
        returns = self._returns_of(1 + max(pieces), rewards.device)
        going = returns[columns]  # [E]
        reached = torch.empty_like(steps)
        for step in range(len(steps)):
            reached[step] = self._discount * going.masked_fill(begins[step], 0.0) + steps[step]
            going = torch.where(kept[step], reached[step], going).masked_fill(ends[step], 0.0)
        returns[columns] = going
        return reached[kept]

    def _returns_of(self, num_envs: int, device: torch.device) -> Tensor:
        """The running returns of at least so many environments; those never seen before begin at 0."""
        more = max(0, num_envs - len(self._returns))
        self._returns = nn.functional.pad(self._returns.to(device), (0, more))
        return self._returns
