"""The clocks of several machines on one: `perf_counter` counts from each machine's own start.

The head sends a ping and notes when; the agent answers with its clock; the head notes when the answer is there. The
agent's moment lies between the two, so taken for their middle it is wrong by half of the time between at most
(Cristian, Probabilistic clock synchronization, Distributed Computing 3, 1989). Of many pings those that took least are
used: one from the run's first half and one from its second, and a straight line between, since clocks run at slightly
different rates.
"""

from __future__ import annotations

from dataclasses import dataclass, field


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
    """By how much a moment may be wrong, at most."""

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
        begin, end = self._samples[0].node_s, self._samples[-1].node_s
        middle = (begin + end) / 2
        first = min((one for one in self._samples if one.node_s <= middle), key=lambda one: one.error_s)
        last = min((one for one in self._samples if one.node_s >= middle), key=lambda one: one.error_s)
        apart = last.node_s - first.node_s
        # Over a short time the errors of both would be taken for a drift; real clocks drift by less than 1e-4.
        drift = (last.offset_s - first.offset_s) / apart if apart > 0 else 0.0
        if abs(drift) > LARGEST_DRIFT:
            best = min(first, last, key=lambda one: one.error_s)
            error_s = best.error_s + LARGEST_DRIFT * (end - begin)
            return Shift(offset_s=best.offset_s, from_s=best.node_s, error_s=error_s)
        return Shift(
            offset_s=first.offset_s, from_s=first.node_s, drift=drift, error_s=max(first.error_s, last.error_s)
        )


LARGEST_DRIFT = 5e-4
"""Seconds per second; quartz is within 1e-4."""
