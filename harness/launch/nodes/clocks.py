"""The clocks of several machines on one: `perf_counter` counts from each machine's own start.

The head sends a ping and notes when; the agent answers with its clock; the head notes when the answer is there. The
agent's moment lies between the two, so taken for their middle it is wrong by half of the time between at most
(Cristian, Probabilistic clock synchronization, Distributed Computing 3, 1989). There are many pings at a run's begin
and at its end, and one a second between. The quickest of the begin and of the end give a straight line, since clocks
run at slightly different rates, and all others say by how much the line may be off: the true distance lies within half
of each ping's time of what it says. What is stated is the worst of the line, looking at the best ping of each
`WINDOW_S`, and at each ping that the line contradicts.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(frozen=True, kw_only=True, slots=True)
class Shift:
    """From a node's clock to the head's."""

    offset_s: float = 0.0
    """What to add at `from_s`."""
    from_s: float = 0.0
    """On the node's clock."""
    drift: float = 0.0
    """What to add more with each second after that."""
    error_s: float = 0.0
    """By how much a moment may be wrong, as far as pings tell, between the first and the last."""

    def at(self, moment_s: float) -> float:
        """A moment of the node's clock on the head's."""
        return moment_s + self.offset_s + self.drift * (moment_s - self.from_s)


@dataclass(frozen=True, slots=True)
class _Sample:
    node_s: float
    offset_s: float
    error_s: float


@dataclass(slots=True)
class NodeClock:
    """What pings have told of a node's clock."""

    _samples: list[_Sample] = field(default_factory=list)

    def add(self, sent_s: float, answered_s: float, received_s: float) -> None:
        """One ping: sent and received by the head's clock, answered by the node's."""
        middle = (sent_s + received_s) / 2
        self._samples.append(_Sample(answered_s, middle - answered_s, (received_s - sent_s) / 2))

    @property
    def num_samples(self) -> int:
        """Pings that were answered."""
        return len(self._samples)

    def shift(self) -> Shift:
        """From the node's clock to the head's. Raises ValueError when no ping was answered."""
        if not self._samples:
            raise ValueError("no ping was answered")
        first = min(self._samples[:NUM_AT_ENDS], key=lambda one: one.error_s)
        last = min(self._samples[-NUM_AT_ENDS:], key=lambda one: one.error_s)
        apart = last.node_s - first.node_s
        drift = (last.offset_s - first.offset_s) / apart if apart > 0 else 0.0
        best = min(first, last, key=lambda one: one.error_s)
        level = self._with_error(Shift(offset_s=best.offset_s, from_s=best.node_s))
        # Over a short time the errors of both would be taken for a drift; real clocks drift by less.
        if abs(drift) > LARGEST_DRIFT:
            return level
        sloping = self._with_error(Shift(offset_s=first.offset_s, from_s=first.node_s, drift=drift))
        return min(level, sloping, key=lambda shift: shift.error_s)

    def _with_error(self, line: Shift) -> Shift:
        """The line with the worst that pings say of it, each window by the ping that says most."""
        worst: dict[int, float] = {}
        for one in self._samples:
            window = int((one.node_s - self._samples[0].node_s) / WINDOW_S)
            most = abs(line.at(one.node_s) - one.node_s - one.offset_s) + one.error_s
            worst[window] = min(most, worst.get(window, most))
        # A ping that contradicts the line proves an error, however many beside it do not.
        proven = max(abs(line.at(one.node_s) - one.node_s - one.offset_s) - one.error_s for one in self._samples)
        least = min(one.error_s for one in self._samples)
        return replace(line, error_s=max(*worst.values(), proven + least))


LARGEST_DRIFT = 5e-4
"""Seconds per second; quartz is within 1e-4."""
NUM_AT_ENDS = 20
"""Pings at a run's begin, and at its end."""
WINDOW_S = 10.0
"""Within so long the rates of two clocks do not change; each holds pings that nothing has delayed."""
