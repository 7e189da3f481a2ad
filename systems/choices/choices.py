"""The five choices of a system, as the engine and the model see them; `systems/spec.py` has the dataclass."""

from __future__ import annotations

from typing import Protocol

from rlbench.systems.choices.average import AverageChoice
from rlbench.systems.choices.collect import Collector
from rlbench.systems.choices.overlap import OverlapChoice
from rlbench.systems.choices.preempt import PreemptChoice
from rlbench.systems.choices.rollout import RolloutChoice


class Choices(Protocol):
    """One variant of each choice, and what follows from them."""

    @property
    def name(self) -> str:
        """The system's name."""

    @property
    def collect(self) -> Collector:
        """How actions meet environments."""

    @property
    def rollout(self) -> RolloutChoice:
        """What fills a batch."""

    @property
    def overlap(self) -> OverlapChoice:
        """Whether collecting goes on while the rank learns."""

    @property
    def preempt(self) -> PreemptChoice:
        """When stragglers are cut."""

    @property
    def average(self) -> AverageChoice:
        """How ranks agree on weights."""

    @property
    def in_step(self) -> bool:
        """Whether all ranks end each iteration together."""
