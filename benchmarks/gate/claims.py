"""A ratio that must hold, and whether it does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rlbench.results.summary.document import Estimate, Finding
from rlbench.results.verdicts.gate import Outcome


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A ratio that must be above a limit, or below one."""

    what: str
    """A over B, in words."""
    ratio: Estimate
    limit: float
    above: bool
    """Whether it must be above the limit."""
    spoilt_by: Sequence[Finding] = ()
    """What speaks against the figures of the runs; it does not decide."""

    @property
    def outcome(self) -> Outcome:
        """`passed` where the whole interval is on the right side of the limit, `regression` where it is on the wrong.

        Otherwise, or without an interval, nothing was shown: `inconclusive`, which does not pass.
        """
        low, high = self.ratio.low, self.ratio.high
        if low is None or high is None:
            return "inconclusive"
        if low > self.limit if self.above else high < self.limit:
            return "passed"
        return "regression" if (high < self.limit if self.above else low > self.limit) else "inconclusive"

    def lines(self) -> Iterator[str]:
        """The lines to print."""
        ratio = self.ratio
        ends = "no interval" if ratio.low is None or ratio.high is None else f"{ratio.low:.2f} to {ratio.high:.2f}"
        rule = f"{'above' if self.above else 'below'} {self.limit:g}"
        yield f"{self.outcome:12}  {ratio.value:5.2f} ({ends}), must be {rule}: {self.what}"
        for finding in self.spoilt_by:
            yield f"  {finding.severity}: {finding.text}"
