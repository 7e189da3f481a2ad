"""PointGoal navigation on habitat-sim: the task of `pointnav` over .glb scenes."""

from rlbench.scenarios.habitat.scenario import FAMILY, Habitat

__all__ = ["FAMILY", "Habitat"]
