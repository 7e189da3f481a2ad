"""Which of several commits made a system slower, from measurements beside a commit that is good.

A measurement is of one commit: the logarithms of its steps/s / those of the good commit, one of each repetition.
The model has one change: all commits before some commit are as fast as the good one; it and those after it are slower
by one factor, unknown as is the noise. A priori each commit is as likely. Integrating over the factor (flat) and the
noise (Jeffreys) gives a hypothesis with n measured values after the change, of N in all, the weight

    R ** -((N - 1) / 2) / sqrt(n),  R: sum of squares around 0 before the change, and around their mean after it.

What is measured next is the commit that promises most information for its cost (noisy binary search; Ben-Or and
Hassidim, The Bayesian learner is optimal for noisy binary search, FOCS 2008).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rlbench.results.statistics import intervals

SURE = 0.95
"""Probability of a commit at which the search ends."""
LEAST_BITS = 0.01
"""A commit of which it is so clear whether it is slow is not measured again."""
LEAST_VALUES = 3
"""Fewest values of all commits that tell the noise."""

Floats = npt.NDArray[np.float64]


@dataclass(kw_only=True, slots=True)
class Bisection:
    """The search for the first slow one of commits 0 .. n - 1, which follow each other; the last one is slow."""

    num_commits: int
    logs: dict[int, list[float]] = field(default_factory=dict)
    """By commit: logarithms of its steps/s / those of the good commit."""
    unusable: set[int] = field(default_factory=set)
    """Commits that cannot be measured."""

    def add(self, commit: int, rates: Sequence[float], good: Sequence[float]) -> None:
        """Adds what was measured of a commit, and of the good one beside it."""
        assert len(rates) == len(good)
        assert 0 <= commit < self.num_commits
        self.logs.setdefault(commit, []).extend(np.log(np.array(rates) / np.array(good)).tolist())

    def probabilities(self) -> Floats:
        """That of each commit to be the first slow one, [n]; alike while too little was measured."""
        commits = np.repeat(list(self.logs), [len(each) for each in self.logs.values()]).astype(int)
        values = np.array([value for each in self.logs.values() for value in each], float)
        if len(values) < LEAST_VALUES:
            return np.full(self.num_commits, 1 / self.num_commits)
        weights = np.full(self.num_commits, -np.inf)
        for first in range(self.num_commits):
            slow = values[commits >= first]
            if not len(slow):
                continue
            squares = (values[commits < first] ** 2).sum() + ((slow - slow.mean()) ** 2).sum()
            weights[first] = -(len(values) - 1) / 2 * np.log(max(squares, 1e-300)) - np.log(len(slow)) / 2
        likelihoods = np.exp(weights - weights.max())
        probabilities: Floats = likelihoods / likelihoods.sum()
        return probabilities

    def ratio(self, first: int, level: float = intervals.LEVEL) -> tuple[float, float, float] | None:
        """How fast commits from `first` on are, by the good one, and the ends of its interval; None of one value."""
        slow = np.array([value for commit, values in self.logs.items() if commit >= first for value in values])
        if len(slow) < intervals.LEAST_SEEDS:
            return None
        half = intervals.half_width(float(slow.std(ddof=1)) / len(slow) ** 0.5, len(slow) - 1, level)
        return float(np.exp(slow.mean())), float(np.exp(slow.mean() - half)), float(np.exp(slow.mean() + half))

    def suspects(self) -> list[int]:
        """The fewest commits that together are `SURE`, in their order."""
        probabilities = self.probabilities()
        ranked = np.argsort(-probabilities, kind="stable")
        num = int(np.searchsorted(np.cumsum(probabilities[ranked]), SURE)) + 1
        return sorted(ranked[:num].tolist())

    def next(self, cost: Callable[[int], float]) -> int | None:
        """The commit to measure next; None where no usable one tells suspects apart.

        `cost` gives what a measurement of a commit costs, above 0, in any unit.
        """
        is_slow = np.cumsum(self.probabilities())  # the probability that a commit is
        usable = [commit for commit in range(self.num_commits - 1) if commit not in self.unusable]
        bits = {commit: _entropy(float(is_slow[commit])) for commit in usable}
        return max(
            (commit for commit in usable if bits[commit] > LEAST_BITS),
            key=lambda commit: bits[commit] / cost(commit),
            default=None,
        )


def _entropy(share: float) -> float:
    """That of a coin, in bits."""
    return 0.0 if not 0 < share < 1 else float(-share * np.log2(share) - (1 - share) * np.log2(1 - share))
