"""Converts the clocks of several machines to the head's: `perf_counter` counts from each machine's own start.

The head notes when it sends a ping, the agent answers with its clock, and the head notes when the answer arrives. The
agent's moment lies between the two, so the middle of the two is wrong by at most half of the ping's time (Cristian,
Probabilistic clock synchronization, Distributed Computing 3, 1989). There are many pings at the begin and at the end of
a run, and one a second between. Clocks run at slightly different rates, so the quickest ping of the begin and that of
the end give a straight line. All pings bound its error: the true distance of the clocks is within half of a ping's time
of what the ping says. The stated error is the worst, over the best ping of each `WINDOW_S` and every ping that
contradicts the line.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(frozen=True, kw_only=True, slots=True)
class Shift:
    """Converts a node's clock to the head's."""

    offset_s: float = 0.0
    """Seconds to add at `from_s`."""
    from_s: float = 0.0
    """A moment of the node's clock."""
    drift: float = 0.0
    """Seconds more to add for each second after that."""
    error_s: float = 0.0
    """How far a moment between the first and the last ping may be off, as far as pings tell."""

    def at(self, moment_s: float) -> float:
        """Converts a moment of the node's clock to the head's clock."""
        return moment_s + self.offset_s + self.drift * (moment_s - self.from_s)


@dataclass(frozen=True, slots=True)
class _Sample:
    node_s: float
    offset_s: float
    error_s: float


@dataclass(slots=True)
class NodeClock:
    """What pings have told about a node's clock."""

    _samples: list[_Sample] = field(default_factory=list)

    def add(self, sent_s: float, answered_s: float, received_s: float) -> None:
        """Adds one ping: sent and received by the head's clock, answered by the node's."""
        middle = (sent_s + received_s) / 2
        self._samples.append(_Sample(answered_s, middle - answered_s, (received_s - sent_s) / 2))

    @property
    def num_samples(self) -> int:
        """Number of pings that were answered."""
        return len(self._samples)

    def shift(self) -> Shift:
        """The conversion from the node's clock to the head's. Raises ValueError when no ping was answered."""
        if not self._samples:
            raise ValueError("no ping was answered")
        first = min(self._samples[:NUM_AT_ENDS], key=lambda one: one.error_s)
        last = min(self._samples[-NUM_AT_ENDS:], key=lambda one: one.error_s)
        apart = last.node_s - first.node_s
        drift = (last.offset_s - first.offset_s) / apart if apart > 0 else 0.0
        best = min(first, last, key=lambda one: one.error_s)
        level = self._with_error(Shift(offset_s=best.offset_s, from_s=best.node_s))
        # Over a short time, errors of the two pings look like a drift; real clocks drift by less.
        if abs(drift) > LARGEST_DRIFT:
            return level
        sloping = self._with_error(Shift(offset_s=first.offset_s, from_s=first.node_s, drift=drift))
        return min(level, sloping, key=lambda shift: shift.error_s)

    def _with_error(self, line: Shift) -> Shift:
        """The line with its largest error, in which each window counts by the ping that bounds the error best."""
        worst: dict[int, float] = {}
        for one in self._samples:
            window = int((one.node_s - self._samples[0].node_s) / WINDOW_S)
            most = abs(line.at(one.node_s) - one.node_s - one.offset_s) + one.error_s
            worst[window] = min(most, worst.get(window, most))
        # A ping that contradicts the line proves an error, however many other pings do not.
        proven = max(abs(line.at(one.node_s) - one.node_s - one.offset_s) - one.error_s for one in self._samples)
        least = min(one.error_s for one in self._samples)
        return replace(line, error_s=max(*worst.values(), proven + least))


LARGEST_DRIFT = 5e-4
"""Seconds per second; quartz clocks stay within 1e-4."""
NUM_AT_ENDS = 20
"""Number of pings at a run's begin, and at its end."""
WINDOW_S = 10.0
"""The rates of two clocks do not change within this time, and some pings in it are not delayed."""
